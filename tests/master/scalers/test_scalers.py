"""What every scaler promises, whoever carries it out: the operator, the master's own pods, or processes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
import pytest

from elasticjob.api.resources import Resources
from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.cli.podrules import OperatorsRules
from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.errors import NotFound, Unreachable
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import POD, Pod
from elasticjob.master.scalers.pods import MANAGED_BY, Pods
from elasticjob.master.scalers.processes import Command, Processes
from elasticjob.master.scalers.scaleplan import ScalePlanScaler
from elasticjob.master.scalers.scaler import Scaler, ScalerError
from lab.clusters.definitions import define

WORKER = "worker"
SMALL = {"requests": {"cpu": "1", "memory": "1Gi"}}
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "python:3", "resources": SMALL}]}}


def sized(count: int) -> Change:
    return Change({WORKER: Group(count)}, reason=f"{count} workers")


class Stage(Protocol):
    """A place where a scaler works, which outlives the scaler."""

    scaler: Scaler

    async def crash(self) -> None:
        """Another scaler takes over, of which nothing is left but what was recorded."""

    async def nodes(self) -> dict[int, str]:
        """Have all done that is recorded; return the workers by index, with a mark of what each is."""

    def break_down(self) -> None:
        """Nothing can be recorded."""

    def repair(self) -> None: ...


class Breakable:
    """A client that may be away."""

    def __init__(self, client: Client) -> None:
        self.client, self.away = client, False

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise Unreachable("the API server is away")
        return getattr(self.client, name)


class OnServer:
    """A job on an API server; the operator is not there."""

    def __init__(self, client: Client, job: ElasticJob) -> None:
        self.breakable, self.job = Breakable(client), job
        self.client = client

    def break_down(self) -> None:
        self.breakable.away = True

    def repair(self) -> None:
        self.breakable.away = False


class ByOperator(OnServer):
    """ScalePlans; what the operator would do is read from them, in their order."""

    def __init__(self, client: Client, job: ElasticJob) -> None:
        super().__init__(client, job)
        self.scaler: Scaler = self._new()

    def _new(self) -> Scaler:
        return ScalePlanScaler(cast(Client, self.breakable), self.job)

    async def crash(self) -> None:
        self.scaler = self._new()

    async def nodes(self) -> dict[int, str]:
        rules = OperatorsRules()
        resource = JOBRESOURCE.convert(rules.first(self.job))
        for plan in sorted(
            await self.client.list(SCALEPLAN, self.job.metadata.namespace),
            key=lambda plan: plan.metadata.name,
        ):
            spec, _ = rules.fold(self.job, resource, plan)
            manifest = rules.first(self.job)
            resource = JOBRESOURCE.convert({**manifest, "spec": {**manifest["spec"], **spec}})
        return places(resource)


def places(resource: JobResource) -> dict[int, str]:
    own = {node.name: str(sorted(node.resource.items())) for node in resource.spec.nodes}
    specs = resource.spec.replica_resource_specs
    return {index: own.get(f"digits-worker-{index}", "") for index in specs[WORKER].indices}


class Seen:
    """The cache of pods, which is as new as the test wants it."""

    def __init__(self) -> None:
        self.pods: list[Pod] = []

    def list(self) -> list[Pod]:
        return self.pods


class ByMaster(OnServer):
    """Pods that the master makes. No machine is there, so they never run."""

    def __init__(self, client: Client, job: ElasticJob) -> None:
        super().__init__(client, job)
        self.cache, self.clock = Seen(), VirtualClock()
        self.scaler: Pods = self._new()

    def _new(self) -> Pods:
        client = cast(Client, self.breakable)
        return Pods(client, self.job, OperatorsRules(), self.cache, self.clock, "10.0.0.1:1")

    async def crash(self) -> None:
        self.scaler = self._new()

    async def refresh(self) -> None:
        self.cache.pods = await self.client.list(POD, self.job.metadata.namespace)

    async def nodes(self) -> dict[int, str]:
        for _ in range(4):
            await self.refresh()
            await self.scaler.step()
        await self.refresh()
        return {int(pod.metadata.labels[INDEX]): amounts(pod) for pod in self.cache.pods}


INDEX = "elasticjob.dlrover/replica-index"


def amounts(pod: Pod) -> str:
    given = pod.spec.containers[0].resources.requests
    return f"{pod.metadata.uid} {sorted(given.items())}" if given else ""


class OnMachine:
    """Processes that sleep."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder / "nodes", VirtualClock()
        self.folder.mkdir()
        self.before = list[Processes]()
        self.scaler: Processes = self._new()

    def _new(self) -> Processes:
        return Processes(self.folder, "digits", lambda _: Command(SLEEPS), self.clock, grace=0.0)

    async def crash(self) -> None:
        self.before.append(self.scaler)
        self.scaler = self._new()

    async def nodes(self) -> dict[int, str]:
        for _ in range(3):
            await self.scaler.look()
            await self.clock.advance(1)
        return {m.rank: "" if m.id == m.rank else str(m.id) for m in await self.scaler.members() if m.alive}

    def break_down(self) -> None:
        self.folder.rename(self.folder.with_name("away"))
        self.folder.touch()

    def repair(self) -> None:
        self.folder.unlink()
        self.folder.with_name("away").rename(self.folder)


SLEEPS = ("/bin/sleep", "infinity")


@pytest.fixture
async def job(client: Client, namespace: str) -> AsyncIterator[ElasticJob]:
    await define(client)
    yield await declared(client, namespace)
    for kind in (POD.untyped(), JOBRESOURCE.untyped(), SCALEPLAN.untyped()):
        for found in await client.list(kind, namespace):
            with suppress(NotFound):
                await client.delete(kind, found["metadata"]["name"], namespace, grace=0)


async def declared(client: Client, namespace: str) -> ElasticJob:
    worker = {"template": TEMPLATE, "replicas": 3, "minReplicas": 1, "maxReplicas": 8}
    manifest = {
        "apiVersion": ELASTICJOB.api_version,
        "kind": "ElasticJob",
        "metadata": {"name": "digits", "namespace": namespace},
        "spec": {"managedBy": MANAGED_BY, "replicaSpecs": {WORKER: worker}},
    }
    return await client.create(ELASTICJOB, manifest)


@pytest.fixture
def by_operator(client: Client, job: ElasticJob) -> ByOperator:
    return ByOperator(client, job)


@pytest.fixture
def own(client: Client, job: ElasticJob) -> ByMaster:
    return ByMaster(client, job)


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[OnMachine]:
    made = OnMachine(tmp_path)
    yield made
    await made.scaler.close()
    assert not any(scaler.pids for scaler in made.before)


@pytest.fixture
async def of_three(machine: OnMachine) -> OnMachine:
    await machine.scaler.apply("k0", sized(3))
    return machine


@pytest.fixture(params=["by_operator", "own", "of_three"])
def place(request: pytest.FixtureRequest) -> Stage:
    return cast(Stage, request.getfixturevalue(request.param))


MOVED = Resources.parse({"memory": "2Gi"})


@pytest.mark.parametrize(
    ("change", "indices"),
    [
        (sized(5), {0, 1, 2, 3, 4}),
        (sized(1), {0}),
        (Change(nodes={"digits-worker-1": MOVED}, reason="one moves"), {0, 1, 2}),
    ],
    ids=["up", "down", "migrate"],
)
async def test_a_change_is_carried_out_once_whatever_happens(
    place: Stage, change: Change, indices: set[int]
) -> None:
    before = await place.nodes()
    assert set(before) == {0, 1, 2}
    await place.scaler.apply("k1", change)
    await place.crash()  # recorded, and nothing of it is carried out
    await place.scaler.apply("k1", change)
    after = await place.nodes()
    assert set(after) == indices
    assert {index for index in before if after.get(index, before[index]) != before[index]} == (
        {1} if change.nodes else set()
    )
    await place.scaler.apply("k1", change)
    await place.crash()
    assert await place.nodes() == after


async def test_changes_follow_each_other(place: Stage) -> None:
    await place.nodes()
    for number, (count, expected) in enumerate([(6, 6), (2, 2), (4, 4), (4, 4)], 1):
        await place.scaler.apply(f"k{number}", sized(count))
        assert set(await place.nodes()) == set(range(expected))
        await place.crash()


async def test_what_cannot_be_recorded_is_an_error_and_may_be_tried_again(place: Stage) -> None:
    await place.nodes()
    place.break_down()
    await place.crash()
    with pytest.raises(ScalerError, match=r"k1|digits"):
        await place.scaler.apply("k1", sized(4))
    place.repair()
    await place.crash()
    assert set(await place.nodes()) == {0, 1, 2}
    await place.scaler.apply("k1", sized(4))
    assert set(await place.nodes()) == {0, 1, 2, 3}


async def test_a_cache_that_is_behind_makes_no_second_pod(own: ByMaster) -> None:
    for _ in range(3):
        await own.scaler.step()  # none of the new pods is seen
    await own.refresh()
    assert sorted(pod.metadata.name for pod in own.cache.pods) == [f"digits-worker-{n}" for n in range(3)]
    assert own.cache.pods[0].metadata.owner_references[0].kind == "JobResource"


async def test_one_pod_that_is_refused_holds_up_no_other_and_waits_longer_each_time(own: ByMaster) -> None:
    attempts = list[float]()
    create = own.client.create

    async def refusing(kind: Kind[Any], manifest: Manifest) -> Any:
        if manifest["metadata"]["name"] == "digits-worker-1":
            attempts.append(own.clock.monotonic())
            raise Unreachable("no")
        return await create(kind, manifest)

    own.breakable.create = refusing  # type: ignore[attr-defined]
    for _ in range(80):
        await own.refresh()
        await own.scaler.step()
        await own.clock.advance(0.5)
    await own.refresh()
    assert {pod.metadata.name for pod in own.cache.pods} == {"digits-worker-0", "digits-worker-2"}
    assert attempts == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5]


async def test_a_new_size_by_the_user_is_carried_out_once(own: ByMaster) -> None:
    await own.nodes()
    worker = own.job.spec.replica_specs[WORKER].model_copy(update={"replicas": 5})
    spec = own.job.spec.model_copy(update={"replica_specs": {WORKER: worker}})
    metadata = msgspec.structs.replace(own.job.metadata, generation=2)
    own.scaler.follow(own.job.model_copy(update={"spec": spec, "metadata": metadata}))
    assert len(await own.nodes()) == 5
    await own.scaler.apply("k1", sized(2))
    assert len(await own.nodes()) == 2
    status = (await own.client.get(JOBRESOURCE, "digits", own.job.metadata.namespace)).status
    assert status.replica_statuses[WORKER].desired == 2


async def test_the_master_says_itself_that_its_job_is_suspended(own: ByMaster) -> None:
    await own.nodes()
    suspended = own.job.model_copy(update={"spec": own.job.spec.model_copy(update={"suspend": True})})
    resource = JOBRESOURCE.convert(OperatorsRules().first(own.job))
    work = OperatorsRules().work(suspended, resource, own.cache.pods, "10.0.0.1:1", datetime.now(UTC))
    assert len(work.delete) == len(own.cache.pods) > 0
    assert work.sentences == ("Suspended: the job is suspended",)


async def test_a_process_that_fails_is_replaced_until_its_budget_is_spent(machine: OnMachine) -> None:
    fails = Command((sys.executable, "-S", "-c", "raise SystemExit(200)"))
    scaler = Processes(machine.folder, "digits", lambda _: fails, machine.clock, budget=2)
    await scaler.apply("k1", sized(1))
    while any(member.alive for member in await scaler.members()):
        await scaler.look()
        await machine.clock.advance(1)
    assert [(m.rank, m.relaunches, m.phase) for m in await scaler.members()] == [(0, 2, "Failed")]


async def test_a_program_that_is_missing_is_tried_again(machine: OnMachine) -> None:
    commands = [Command(("/nowhere/at/all",)), Command(SLEEPS)]
    machine.scaler = Processes(machine.folder, "digits", lambda _: commands[0], machine.clock, grace=0.0)
    await machine.scaler.apply("k1", sized(1))
    await machine.scaler.look()
    commands.pop(0)
    assert set(await machine.nodes()) == {0}


async def test_close_ends_what_was_started_before_a_crash_as_well(machine: OnMachine) -> None:
    await machine.scaler.apply("k1", sized(2))
    await machine.nodes()
    old = machine.scaler
    await machine.crash()
    await machine.nodes()
    assert set(machine.scaler.pids) == set(old.pids)
    assert len(old.pids) == 2
    await machine.scaler.close()
    assert not list(old.pids)
