"""A master against a real API: it continues from its snapshot, reports to its job, and follows its pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from elasticjob.api.rpc.nodes import Order
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.cli.podrules import OperatorsRules
from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import SystemClock
from elasticjob.kube.errors import Forbidden, NotFound, Unreachable
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.kube.objects.views import CONFIG_MAP, POD, Pod
from elasticjob.master.cluster.settings import Settings
from elasticjob.master.durable.store import ConfigMap, StoreError, snapshot
from elasticjob.master.main import in_cluster
from elasticjob.master.scalers.pods import MANAGED_BY
from elasticjob.master.state.job import Job, Spec
from elasticjob.master.state.node import Node
from elasticjob.master.state.roster import Roster
from elasticjob.master.state.training import Change, Training
from lab.clusters.definitions import define
from lab.clusters.served import Served
from lab.truths.leftovers import let_go
from lab.virtual.master import START, finish, join, report, watch
from lab.waiting import PATIENCE, until


class Place:
    """A namespace with one ElasticJob, and what its master needs to start."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.client, self.settings = client, settings
        self.namespace = settings.namespace

    async def declare(self, managed_by: str = "", **worker: Any) -> None:
        template = {"spec": {"containers": [{"name": "main", "image": "python:3"}]}}
        manifest = {
            "apiVersion": ELASTICJOB.api_version,
            "kind": "ElasticJob",
            "metadata": {"name": "digits", "namespace": self.namespace},
            "spec": {"managedBy": managed_by, "replicaSpecs": {"worker": {"template": template, **worker}}},
        }
        await self.client.create(ELASTICJOB.untyped(), manifest)

    async def pod(self, index: int, machine: str = "") -> None:
        """A pod that stays when it is deleted, until it is let go; without a machine it has no grace."""
        labels = {
            "elasticjob.dlrover/name": "digits",
            "elasticjob.dlrover/replica-type": "worker",
            "elasticjob.dlrover/replica-index": str(index),
        }
        metadata = {
            "name": f"digits-worker-{index}",
            "namespace": self.namespace,
            "labels": labels,
            "finalizers": ["elasticjob.dlrover/test"],
        }
        placed = {"nodeName": machine} if machine else {"nodeSelector": {"no": "where"}}
        spec = {"containers": [{"name": "main", "image": "python:3"}], **placed}
        await self.client.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def pods(self, many: int) -> list[Pod]:
        """So many pods, once they are there."""

        async def are_there() -> bool:
            return len(await self.client.list(POD, self.namespace)) == many

        await until(are_there, f"there are {many} pods")
        return await self.client.list(POD, self.namespace)

    async def plans(self) -> list[ScalePlan]:
        """The plans, once there is one."""
        await until(lambda: self.client.list(SCALEPLAN, self.namespace), "there is a plan")
        return await self.client.list(SCALEPLAN, self.namespace)

    async def let_go(self) -> None:
        """Nothing holds back what is being deleted."""
        for kind in (POD.untyped(), CONFIG_MAP.untyped()):
            for found in await self.client.list(kind, self.namespace):
                with suppress(NotFound):
                    await let_go(self.client, kind, found)


@pytest.fixture
async def place(served: Served, client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[Place]:
    await define(client)
    token = tmp_path / "token"
    token.write_text("secret\n")
    settings = Settings(
        job="digits",
        namespace=namespace,
        host="127.0.0.1",
        port=0,
        token_file=token,
        kubeconfig=served.kubeconfig,
    )
    place = Place(client, settings)
    yield place
    await place.let_go()


async def test_a_successor_continues_and_the_job_says_how_training_goes(place: Place) -> None:
    await place.declare(replicas=2, minReplicas=1, maxReplicas=3)
    names = ("digits-worker-0", "digits-worker-1")
    async with in_cluster(place.settings, SystemClock()) as master:
        for name in names:
            await master.ask(watch(name))
        world, _ = await asyncio.gather(*(master.ask(join(name)) for name in names))
        await master.ask(report(names[0], 1, 7, samples=448))
    training = (await place.client.get(ELASTICJOB, "digits", place.namespace)).status.training
    assert training is not None
    assert (training.step, training.world_size, training.round) == (7, 2, 1)
    kept = await place.client.get(CONFIG_MAP, "digits-master-state", place.namespace)
    assert kept.metadata.owner_references[0].name == "digits"
    async with in_cluster(place.settings, SystemClock()) as master:
        assert master.job.world == world
        orders = await master.ask(watch(names[0], round=1, seen=1))
        assert (orders.order, orders.round) == (Order.TRAIN, 1)


async def test_the_master_of_a_suspended_job_leaves_no_speed_behind(place: Place) -> None:
    """It may be told to end before it sees that the job is suspended."""
    await place.declare(replicas=1)
    async with in_cluster(place.settings, SystemClock()) as master:
        await master.ask(watch("digits-worker-0"))
        await master.ask(join("digits-worker-0"))
        await master.ask(report("digits-worker-0", 1, 7, samples=448))
        await place.client.merge_patch(ELASTICJOB, "digits", {"spec": {"suspend": True}}, place.namespace)
        master.observe(lambda job, now: job.but(spec=job.spec.but(suspended=False)))
    training = (await place.client.get(ELASTICJOB, "digits", place.namespace)).status.training
    assert training is not None
    assert (training.step, training.world_size, training.steps_per_second) == (7, 0, None)


@pytest.mark.parametrize("many", [2, 2_000])
async def test_a_snapshot_of_many_nodes_fits_into_its_config_map(place: Place, many: int) -> None:
    await place.declare(replicas=2)
    job = crowd(many)
    declared = await place.client.get(ELASTICJOB, "digits", place.namespace)
    owner = owner_reference(declared, ELASTICJOB, controller=False)
    store = ConfigMap(place.client, place.namespace, "digits-master-state", owner)
    for data in (snapshot(job), snapshot(crowd(2)), snapshot(job)):
        await store.save(data)
        assert await store.load() == data
    kept = await place.client.get(CONFIG_MAP, "digits-master-state", place.namespace)
    assert [*kept.data, *kept.binary_data] == (["job.json"] if many == 2 else ["job.json.gz"])


async def test_a_config_map_of_a_user_is_not_taken_for_the_snapshot(place: Place) -> None:
    await place.declare(replicas=2)
    declared = await place.client.get(ELASTICJOB, "digits", place.namespace)
    about = {"name": "digits-master-state", "namespace": place.namespace}
    made = await place.client.create(CONFIG_MAP.untyped(), {"metadata": about, "data": {"mine": "1"}})
    owner = owner_reference(declared, ELASTICJOB, controller=False)
    store = ConfigMap(place.client, place.namespace, "digits-master-state", owner)
    with pytest.raises(StoreError, match="exists and is not of this job"):
        await store.save(b"{}")
    assert await place.client.get(CONFIG_MAP.untyped(), "digits-master-state", place.namespace) == made
    await place.client.delete(CONFIG_MAP, "digits-master-state", place.namespace)
    for _ in range(2):  # also where it was deleted in between
        await store.save(b"{}")
        assert await store.load() == b"{}"
        await place.client.delete(CONFIG_MAP, "digits-master-state", place.namespace)
        with pytest.raises(StoreError):
            await store.save(b"{}")


async def test_a_save_that_got_no_answer_is_made_again_without_the_right_to_create(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.declare(replicas=2)
    declared = await place.client.get(ELASTICJOB, "digits", place.namespace)
    owner = owner_reference(declared, ELASTICJOB, controller=False)
    store = ConfigMap(place.client, place.namespace, "digits-master-state", owner)
    await store.save(b"{}")

    async def away(*_: object, **__: object) -> None:
        raise Unreachable("no answer within 30 s")

    async def forbidden(*_: object, **__: object) -> None:
        raise Forbidden(403, "Forbidden", "cannot create configmaps")

    with monkeypatch.context() as slow:
        slow.setattr(place.client, "apply", away)
        with pytest.raises(StoreError, match="no answer"):
            await store.save(b'{"a": 1}')
    monkeypatch.setattr(place.client, "create", forbidden)
    await store.save(b'{"a": 1}')
    assert await store.load() == b'{"a": 1}'


def crowd(many: int) -> Job:
    """A job with a long name that has lost half of its nodes again and again."""
    names = [f"a-job-with-a-name-of-forty-letters-worker-{index}" for index in range(many)]
    nodes = Roster(Node(name=name, pods=(name,), uid=str(uuid4()), incarnation=uuid4().hex) for name in names)
    half = tuple(names[: many // 2])
    change = Change(round=1, reason="lost", formed=START, nodes=many, workers=many, lost=half, joined=half)
    return Job(spec=Spec(job="digits"), nodes=nodes, training=Training(changes=(change,) * 16))


async def test_the_first_world_waits_for_all_pods_that_run(place: Place) -> None:
    """Ranks that join first may be the first to leave again, with all that was trained till then."""
    await place.declare(replicas=2, minReplicas=1)
    names = ("digits-worker-0", "digits-worker-1")
    running = {"status": {"phase": "Running"}}
    for index, name in enumerate(names):
        await place.pod(index)
        await place.client.merge_patch(POD, name, running, place.namespace, subresource="status")
    async with in_cluster(place.settings, SystemClock()) as master:
        await master.ask(watch(names[1]))
        early = asyncio.create_task(master.ask(join(names[1])))

        await until(
            lambda: master.job.world or master.job.nodes[names[1]].joined, f"{names[1]} has asked to join"
        )
        assert master.job.world is None
        await master.ask(watch(names[0]))
        world = await master.ask(join(names[0]))
        assert await early == world
        assert [member.node for member in world.members] == [*names]


async def test_a_pod_that_is_being_deleted_is_left_at_a_boundary(place: Place) -> None:
    await place.declare(replicas=2)
    names = ("digits-worker-0", "digits-worker-1")
    for index in range(2):
        await place.pod(index, "elsewhere")
    async with in_cluster(place.settings, SystemClock()) as master:
        for name in names:
            await master.ask(watch(name, pod=name))
        await asyncio.gather(*(master.ask(join(name)) for name in names))
        await place.client.delete(POD, names[1], place.namespace)
        orders = await master.ask(watch(names[0], pod=names[0], seen=master.job.version, round=1))
        assert (orders.order, orders.lost) == (Order.REGROUP, ())
        assert orders.reason == "pod digits-worker-1 is being deleted"


async def test_a_master_whose_pod_is_gone_leaves_the_job_to_its_successor(place: Place) -> None:
    await place.declare(replicas=1)
    await place.pod(0)
    settings = place.settings.model_copy(update={"pod": "digits-worker-0"})
    async with in_cluster(settings, SystemClock()) as master:
        await until(lambda: master.job.nodes, "the master sees its pod")
        await place.client.delete(POD, "digits-worker-0", place.namespace)
        assert not master.retired
        async with in_cluster(place.settings, SystemClock()) as successor:
            await successor.ask(watch("digits-worker-0"))
            await successor.ask(join("digits-worker-0"))
            await place.let_go()
            await asyncio.wait_for(master.ended.wait(), PATIENCE)
        master.become(master.job.but(restarts=7, version=master.job.version + 1))
    assert (master.retired, master.job.verdict) == (True, None)
    async with in_cluster(place.settings, SystemClock()) as third:
        assert (third.job.round, third.job.restarts) == (1, 0)


async def test_a_size_that_nobody_gave_is_planned_once(place: Place) -> None:
    await place.declare(minReplicas=2, maxReplicas=4)
    for _ in range(2):
        async with in_cluster(place.settings, SystemClock()):
            plans = await place.plans()
    assert [plan.spec.replica_resource_specs["worker"].replicas for plan in plans] == [2]
    assert not plans[0].manual


async def test_a_master_makes_the_pods_of_a_job_that_leaves_them_to_it(place: Place) -> None:
    await place.declare(MANAGED_BY, replicas=2, minReplicas=1, maxReplicas=4)
    async with in_cluster(place.settings, SystemClock(), OperatorsRules) as master:
        pods = {pod.metadata.name: pod for pod in await place.pods(2)}
        assert set(pods) == {"digits-worker-0", "digits-worker-1"}
        given = {each.name: each.value for each in pods["digits-worker-0"].spec.containers[0].env}
        assert given["ELASTICJOB_MASTER"] == master.address
        await place.client.delete(POD, "digits-worker-1", place.namespace, grace=0)
        patch = {"spec": {"replicaSpecs": {"worker": {"replicas": 3}}}}
        await place.client.merge_patch(ELASTICJOB.untyped(), "digits", patch, place.namespace)
        names = {pod.metadata.name for pod in await place.pods(3)}
        assert names == {"digits-worker-0", "digits-worker-1", "digits-worker-2"}
    assert await place.client.list(SCALEPLAN, place.namespace) == []


async def test_what_a_deleted_namesake_left_behind_is_not_ours(place: Place) -> None:
    await place.declare(replicas=1)
    async with in_cluster(place.settings, SystemClock()) as master:
        await master.ask(watch("digits-worker-0"))
        await master.ask(join("digits-worker-0"))
        await master.ask(finish("digits-worker-0", 1))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "digits", "uid": "of-another-life"}
    patch = {"metadata": {"ownerReferences": [owner], "finalizers": ["elasticjob.dlrover/test"]}}
    await place.client.merge_patch(CONFIG_MAP, "digits-master-state", patch, place.namespace)
    async with in_cluster(place.settings, SystemClock()) as master:
        assert (master.job.verdict, master.job.world) == (None, None)
