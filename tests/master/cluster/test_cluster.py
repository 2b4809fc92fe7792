"""What a master reads of its ElasticJob and pods, and what it writes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from elasticjob.api.sizes.role import Range
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, NodeCheck, Training
from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.errors import KubeError, Unauthorized, Unreachable
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import (
    POD,
    Container,
    ContainerState,
    ContainerStatus,
    ContainerTerminated,
    PodSpec,
)
from elasticjob.master.cluster import cluster as module
from elasticjob.master.cluster.cluster import (
    Cluster,
    after_told,
    is_urgent,
    pods_of,
    spec_of,
    training_status,
)
from elasticjob.master.durable.store import Nowhere
from elasticjob.master.handlers.incarnations import JUMP
from elasticjob.master.health.watch import add_finding
from elasticjob.master.serving.pages import JobCollector
from elasticjob.master.serving.server import Master
from elasticjob.master.state.condition import Kind
from elasticjob.master.state.job import End, Job, Limits, Spec, Spot, Verdict
from elasticjob.master.state.node import Phase
from elasticjob.master.state.training import Account
from lab.virtual.master import Played, played, ran, report, watch


def elasticjob(unit: int = 1, **roles: dict[str, Any]) -> ElasticJob:
    spec = {
        "nodeUnit": unit,
        "replicaSpecs": {role: {"template": {}, **given} for role, given in roles.items()},
    }
    metadata = {"name": "digits", "namespace": "default", "uid": "1234"}
    return ElasticJob.model_validate({"metadata": metadata, "spec": spec})


@pytest.mark.parametrize(
    ("given", "bounds", "replicas"),
    [
        ({"replicas": 2, "minReplicas": 1, "maxReplicas": 4}, (1, 4), 2),
        ({"replicas": 3}, (3, 3), 3),
        ({"minReplicas": 2, "maxReplicas": 4}, (2, 4), 2),
        ({"minReplicas": 2}, (2, None), 2),
        ({}, (1, None), 1),
    ],
)
def test_the_size_of_the_world_is_the_size_of_the_role(
    given: dict[str, int], bounds: tuple[int, int | None], replicas: int
) -> None:
    spec = spec_of(elasticjob(worker={**given, "restartCount": 7}), Limits())
    assert spec.bounds == Range(least=bounds[0], most=bounds[1])
    assert (spec.replicas, spec.restart_count, spec.roles) == (replicas, 7, ("worker",))


def test_a_chief_trains_with_the_workers_and_an_evaluator_does_not() -> None:
    spec = spec_of(
        elasticjob(2, worker={"replicas": 3}, chief={"replicas": 1}, evaluator={"replicas": 1}), Limits()
    )
    assert (spec.bounds.smallest, spec.bounds.largest, spec.roles) == (4, 4, ("chief", "worker"))


def listed(name: str, phase: str, role: str = "worker", **metadata: Any) -> Any:
    labels = {
        "elasticjob.dlrover/replica-type": role,
        "elasticjob.dlrover/replica-index": "1",
        "elasticjob.dlrover/relaunch-count": "2",
    }
    about = {"name": name, "namespace": "default", "uid": "u", "labels": labels, **metadata}
    return POD.decode(msgspec.json.encode({"metadata": about, "status": {"phase": phase}}))


def test_pods_are_seen_by_their_labels_not_by_their_names() -> None:
    pods = [
        listed("some-name", "Running"),
        listed("dying", "Running", deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=90),
        listed("cut-off", "Unknown"),
        listed("digits-master-0", "Running", role="dlrover-master"),
    ]
    seen = pods_of("digits", pods)
    assert [(pod.name, pod.node, pod.phase, pod.leaving, pod.grace, pod.relaunch) for pod in seen] == [
        ("some-name", "digits-worker-1", Phase.RUNNING, False, None, 2),
        ("dying", "digits-worker-1", Phase.RUNNING, True, 90, 2),
        ("cut-off", "digits-worker-1", Phase.RUNNING, False, None, 2),
    ]


@pytest.mark.parametrize(("code", "phase"), [(0, Phase.SUCCEEDED), (3, Phase.FAILED)])
@pytest.mark.parametrize("whole", ["Running", "Failed"])
def test_the_main_container_ends_a_node_whatever_runs_beside(code: int, phase: Phase, whole: str) -> None:
    pod = listed("some-name", whole)
    ended = ContainerStatus(name="main", state=ContainerState(terminated=ContainerTerminated(exit_code=code)))
    spec = PodSpec(containers=[Container(name="proxy"), Container(name="main")])
    status = replace(pod.status, container_statuses=[ended])
    (seen,) = pods_of("digits", [replace(pod, spec=spec, status=status)])
    assert seen.phase is phase


def test_status_says_how_training_goes() -> None:
    game = played("node-0", "node-1")
    for step in (10, 20):
        game.ask(report("node-0", 1, step, samples=step * 32, total_steps=100, epoch=step / 50, loss=0.7))
        game.now += timedelta(seconds=5)
    assert training_status(game.job) == {
        "step": 20,
        "epoch": 0.4,
        "progress": 0.2,
        "stepsPerSecond": 2.0,
        "samplesPerSecond": 64.0,
        "eta": "2026-01-01T00:00:45Z",
        "worldSize": 2,
        "round": 1,
        "goodput": 1.0,
    }


def test_status_of_a_job_without_a_world_has_no_speed() -> None:
    game = played("node-0", "node-1")
    for step in (10, 20):
        game.ask(report("node-0", 1, step, total_steps=100))
        game.now += timedelta(seconds=5)
    suspended = game.job.but(spec=game.job.spec.but(suspended=True))
    over = game.job.but(verdict=Verdict(End.SUCCEEDED, "Finished", "done", game.now))
    for job in (suspended, over):
        known = training_status(job)
        assert (known["step"], known["progress"], known["worldSize"]) == (20, 0.2, 0)
        assert known.keys().isdisjoint({"stepsPerSecond", "samplesPerSecond", "eta"})


@pytest.mark.parametrize(
    ("seconds", "goodput", "badput"),
    [
        ({"productive": 90.0, "init": 10.4, "data": 0.4}, 0.893, {"init": 10}),
        (
            {"productive": 4321.0, "rendezvous": 1234.5, "hang": 99.9},
            0.764,
            {"rendezvous": 1200, "hang": 100},
        ),
        ({"schedule": 3.0}, 0.0, {"schedule": 3}),
    ],
)
def test_status_says_where_the_time_went_in_numbers_that_seldom_change(
    seconds: dict[str, float], goodput: float, badput: dict[str, int]
) -> None:
    status = training_status(Played().job.but(account=Account(seconds=seconds)))
    assert (status["goodput"], status["badputSeconds"]) == (goodput, badput)
    assert not is_urgent(status, {**status, "badputSeconds": {}, "goodput": 1.0})
    Training.model_validate(status)


def test_status_has_the_verdicts_at_once() -> None:
    game = played("node-0", "node-1")
    before = training_status(game.job)
    game.job = add_finding(game.job, Kind.HANG, "rank 1 on node-1 hangs", game.now)
    status = training_status(game.job)
    assert status["findings"] == [
        {"time": "2026-01-01T00:00:00Z", "reason": "Hang", "message": "rank 1 on node-1 hangs"}
    ]
    assert is_urgent(before, status)
    Training.model_validate(status)
    metrics = {
        s.labels.get("reason", s.name): s.value for m in JobCollector(game.job).collect() for s in m.samples
    }
    assert (metrics["Hang"], metrics["Straggler"], metrics["elasticjob_stragglers"]) == (1, 0, 0)


def test_status_names_nodes_that_the_check_excludes() -> None:
    game = Played(minimum=2, maximum=2)
    game.ask(watch("node-0"), watch("node-1"), ran("node-0"), ran("node-1", error="no device"))
    assert training_status(game.job)["nodeCheck"] == "node-1 fails alone: no device"


def test_groups_are_read_from_the_labels_of_workers() -> None:
    pods = [listed("digits-worker-1", "Running"), listed("digits-worker-2", "Running")]
    pods[0].metadata.labels.update({"scheduling/rack-group": "1", "scheduling/rack-id": "r7"})
    assert [pod.spot for pod in pods_of("digits", pods)] == [Spot(group=1, rack="r7"), None]


@pytest.mark.parametrize(("check", "excluding"), [("ExcludeFaults", False), ("ExcludeStragglers", True)])
def test_the_job_says_whether_slow_nodes_are_excluded(check: str, excluding: bool) -> None:
    job = elasticjob(worker={"replicas": 2})
    checked = job.model_copy(update={"spec": job.spec.model_copy(update={"node_check": NodeCheck(check)})})
    assert spec_of(checked, Limits()).exclude_stragglers is excluding


def test_status_before_the_first_step_claims_nothing() -> None:
    assert training_status(Played().job) == {"worldSize": 0, "round": 0}


GOES_ON = {"step": 9, "round": 2, "worldSize": 4, "stepsPerSecond": 2.0, "progress": 0.9}


@pytest.mark.parametrize(
    ("case", "old", "new", "urgent"),
    [
        ("another step", GOES_ON, {**GOES_ON, "step": 10, "eta": "soon", "goodput": 0.9}, False),
        ("the first report", {}, {"worldSize": 0, "round": 0}, True),
        ("the first step", {"round": 2, "worldSize": 4}, GOES_ON, True),
        ("a round ends", GOES_ON, {**GOES_ON, "worldSize": 0}, True),
        ("a round begins", GOES_ON, {**GOES_ON, "round": 3}, True),
        ("the check finds a node", GOES_ON, {**GOES_ON, "nodeCheck": "digits-worker-1 is slow"}, True),
        ("the last step", GOES_ON, {**GOES_ON, "progress": 1.0}, True),
    ],
)
def test_progress_alone_can_wait(case: str, old: Manifest, new: Manifest, urgent: bool) -> None:
    assert is_urgent(old, new) is urgent


class Server:
    """Takes statuses."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.steps: list[int] = []
        self.error: KubeError | None = None

    def measure(self, metrics: object) -> None:
        pass

    async def apply(self, kind: Any, manifest: Manifest, **how: Any) -> None:
        if self.error:
            raise self.error
        self.steps.append(manifest["status"]["training"]["step"])


async def test_a_minute_of_steps_is_a_handful_of_writes() -> None:
    game, clock = played("node-0", "node-1"), VirtualClock()
    server = Server(clock)
    master = Master(game.job, "secret", Nowhere(), clock=clock)
    cluster = Cluster(cast(Client, server), elasticjob(worker={"replicas": 2}), master, Limits())
    reporting = asyncio.create_task(cluster.report())
    for step in range(1, 61):
        game.ask(report("node-0", 1, step))
        master.become(game.job)
        await clock.advance(1)
    reporting.cancel()
    assert server.steps[0] == 1
    assert 5 <= len(server.steps) <= 9


REFUSED = Unauthorized(401, "Unauthorized", "no")


@pytest.mark.parametrize(
    ("error", "seconds", "ends"),
    [(REFUSED, 70, True), (REFUSED, 30, False), (Unreachable("away"), 300, False)],
)
async def test_a_master_whose_credentials_are_refused_for_long_ends(
    error: KubeError, seconds: int, ends: bool
) -> None:
    clock = VirtualClock()
    server, master = Server(clock), Master(played("node-0").job, "secret", Nowhere(), clock=clock)
    cluster = Cluster(cast(Client, server), elasticjob(worker={"replicas": 1}), master, Limits())
    server.error = error
    reporting = asyncio.create_task(cluster.report())
    for _ in range(seconds):
        await clock.advance(1)
    reporting.cancel()
    assert (master.retired, master.ended.is_set()) == (ends, ends)


@pytest.mark.parametrize(
    ("told", "begins"), [(None, 2), (1, 2), (2, 2), (5, 5), (2 + JUMP, 2 + JUMP), (3 + JUMP, 2)]
)
def test_a_master_begins_in_no_earlier_round_than_was_told(told: int | None, begins: int) -> None:
    declared = elasticjob(worker={"replicas": 2})
    status = declared.status.model_copy(update={"training": Training(round=told)})
    job = Job(spec=Spec(job="digits"), round=2)
    assert after_told(job, declared).round == 2
    assert after_told(job, declared.model_copy(update={"status": status})).round == begins


def test_an_end_beyond_the_calendar_is_not_told() -> None:
    game = played("node-0")
    for step in (1, 2):
        game.ask(report("node-0", 1, step, total_steps=2**53))
        game.now += timedelta(seconds=5)
    assert "eta" not in training_status(game.job)


@pytest.mark.parametrize("index", ["first", "-1", "", "²", 60 * "9"])
def test_a_pod_whose_labels_are_not_ours_is_no_node(index: str) -> None:
    odd = listed("odd", "Running")
    labels = {**odd.metadata.labels, "elasticjob.dlrover/replica-index": index}
    odd = replace(odd, metadata=replace(odd.metadata, labels=labels))
    assert [found.name for found in pods_of("digits", [odd, listed("some-name", "Running")])] == ["some-name"]


class Held:
    """A cache of a few objects, and when it changes."""

    def __init__(self, *objects: Any) -> None:
        self.objects = list(objects)

    def list(self) -> list[Any]:
        return self.objects

    def get(self, _: object) -> Any:
        return self.objects[0] if self.objects else None


@pytest.mark.parametrize("fails", ["spec_of", "placed_of", "pods_of"])
async def test_a_look_that_fails_costs_that_look_and_comes_again(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, job = VirtualClock(), elasticjob(worker={"replicas": 2, "restartCount": 7})
    master = Master(Job(spec=Spec(job="digits")), "secret", Nowhere(), clock=clock)
    cluster = Cluster(cast(Client, Server(clock)), job, master, Limits())
    for name, held in {"jobs": job, "pods": listed("digits-worker-1", "Running")}.items():
        monkeypatch.setattr(cluster, f"_{name}", Held(held))
    monkeypatch.setattr(cluster, "_resources", Held())
    monkeypatch.setattr(cluster, "_plans", Held())
    read, errors = getattr(module, fails), [ZeroDivisionError(), ZeroDivisionError()]

    def reads(*given: Any) -> Any:
        if errors:
            raise errors.pop()
        return read(*given)

    monkeypatch.setattr(module, fails, reads)
    monkeypatch.setattr(cluster._operator, "wait_started", lambda: asyncio.sleep(0))
    observing = asyncio.create_task(cluster._observe())
    await clock.advance(0.1)
    assert (master.job.spec.restart_count == 7, bool(master.job.nodes)) == (
        fails != "spec_of",
        fails != "pods_of",
    )
    for _ in range(8):
        await clock.advance(1)
    assert not observing.done()
    assert (master.job.spec.restart_count, [*master.job.nodes]) == (7, ["digits-worker-1"])
    assert master.failed_passes()["observations"] == 2.0
    observing.cancel()
