"""A soak in small: a quarter of a minute of faults on either server, and its verdicts on a cluster."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.chaos.soak.gauges import Sample, growth, line, svg
from benchmarks.chaos.soak.players import Eyes, Kubelet, ended, job, say
from benchmarks.chaos.soak.run import Options, background, broken, leaks, soak
from benchmarks.chaos.soak.weather import EPISODES
from benchmarks.chaos.soak.world import OWNED, World, leftovers, twins, unfinished
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.controllers.install import install
from elasticjob.kube.cache.wire import Meta, Owner
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import POD, Pod
from tests.kit.clusters.served import Served
from tests.kit.waiting import until


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_an_operator_outlives_bad_weather_and_holds_nothing_afterwards(
    served: Served, client: Client, tmp_path: Path
) -> None:
    await install(client)
    messages: list[str] = []
    outcome = await soak(served.config(), tmp_path, Options(0.25, 8, seed=3), None, messages.append)
    log = (tmp_path / "operator.log").read_text()
    assert outcome.wrong == [], log[-4000:]
    assert outcome.faults.total() - outcome.faults["passed"] > 0
    assert outcome.episodes.total() > 0
    assert outcome.deeds.total() > 0
    assert outcome.empty[1].jobs == 0
    assert "all as specified" in messages[-1]


class Slow(random.Random):
    """A kubelet with this takes the same moment for each pod."""

    def uniform(self, a: float, b: float) -> float:
        return b


async def test_a_pod_that_ended_before_the_kubelet_came_does_not_run_again(
    client: Client, namespace: str
) -> None:
    await install(client)
    eyes = Eyes(client, namespace)
    kubelet = Kubelet(client, eyes, Slow())  # follows the pods from now on, and acts when it runs
    async with eyes.open():

        async def made(name: str) -> Pod:
            container = {"name": "main", "image": "none"}
            spec = {"containers": [container], "schedulerName": "nobody"}  # so that none writes its status
            return await client.create(POD, {"metadata": {"name": name}, "spec": spec}, namespace)

        await say(client, await made("ends"), "Succeeded", ended(0))
        await made("later")

        async def phases() -> dict[str, str]:
            return {pod.metadata.name: pod.status.phase for pod in await client.list(POD, namespace)}

        async def the_later_one_runs() -> bool:
            return (await phases())["later"] == "Running"

        async with background(kubelet.run()):
            await until(the_later_one_runs, "the later pod runs")
        assert (await phases())["ends"] == "Succeeded"


def test_every_fault_has_its_turn() -> None:
    assert set(Counter({name: weight for name, (weight, _) in EPISODES.items()}).values()) <= {1, 2, 3}
    assert "crash" in EPISODES


def job_named(name: str, workers: int, status: dict[str, Any], **spec: Any) -> ElasticJob:
    made = job(name, workers)
    metadata = {"name": name, "namespace": "soak", "uid": f"uid-{name}", "generation": 2}
    whole = {"apiVersion": ELASTICJOB.api_version, "kind": "ElasticJob", "metadata": metadata}
    return ELASTICJOB.convert(whole | {"spec": made["spec"] | spec, "status": status})


def pod_of(name: str, role: str, index: int, phase: str = "Running", life: str = "") -> Pod:
    labels = {LABEL_JOB: name, LABEL_ROLE: role, LABEL_INDEX: str(index)}
    metadata = {"name": f"{name}-{role}-{index}{life}", "namespace": "soak", "labels": labels}
    return POD.convert({"metadata": metadata, "spec": {}, "status": {"phase": phase}})


RUNNING = {"phase": "Running", "workers": "2/2", "observedGeneration": 2}
OVER = {
    "phase": "Succeeded",
    "conditions": [
        {"type": "Complete", "status": "True", "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ],
}
WORKERS = [pod_of("j", "worker", 0), pod_of("j", "worker", 1)]


def worlds() -> Iterator[tuple[str, ElasticJob, list[Pod], str]]:
    """Name, job, pods, and what is said of them."""
    master = pod_of("j", "master", 0)
    yield "as specified", job_named("j", 2, RUNNING), [master, *WORKERS], ""
    yield "no master", job_named("j", 2, RUNNING), WORKERS, "has 0 masters"
    yield "a worker too few", job_named("j", 2, RUNNING), [master, WORKERS[0]], "workers ['0'] of 2"
    yield "a worker too many", job_named("j", 1, RUNNING), [master, *WORKERS], "workers ['0', '1'] of 1"
    pending = pod_of("j", "worker", 1, "Pending")
    yield "not running yet", job_named("j", 2, RUNNING), [master, WORKERS[0], pending], "do not run yet"
    stale = job_named("j", 2, RUNNING | {"workers": "1/2"})
    yield "an old status", stale, [master, *WORKERS], "says Running 1/2"
    unseen = job_named("j", 2, RUNNING | {"observedGeneration": 1})
    yield "an old generation", unseen, [master, *WORKERS], "newest spec"
    suspended = job_named("j", 2, {"phase": "Suspended"}, suspend=True)
    yield "suspended", suspended, [], ""
    yield "suspended and running", suspended, WORKERS, "has 2 pods"
    ended = [pod_of("j", "worker", 0, "Succeeded")]
    yield "over", job_named("j", 2, OVER), ended, ""
    yield "over and running", job_named("j", 2, OVER), WORKERS, "is Succeeded and has 2 pods"


@pytest.mark.parametrize(
    ("found", "pods", "message"), [row[1:] for row in worlds()], ids=[r[0] for r in worlds()]
)
def test_a_job_that_is_not_as_specified_is_told_of(found: ElasticJob, pods: list[Pod], message: str) -> None:
    messages = list(unfinished(World({"j": found}, pods, {})))
    assert (not messages) if not message else (len(messages) == 1 and message in messages[0])


def test_what_has_lost_its_owner_is_left_over() -> None:
    mine, lost = (
        Meta(name=name, labels={LABEL_JOB: "j"}, owner_references=[Owner(uid=uid)])
        for name, uid in (("mine", "uid-j"), ("lost", "uid-gone"))
    )
    foreign = Meta(name="foreign")
    owned: dict[str, list[Meta]] = {kind.name: [] for kind in OWNED}
    world = World({"j": job_named("j", 1, {})}, [], owned | {"Secret": [mine, lost, foreign]})
    assert list(leftovers(world)) == ["Secret lost has lost its owner"]


def test_two_pods_of_one_place_are_seen() -> None:
    second = pod_of("j", "worker", 0, life="-1")
    assert list(twins(World({}, [*WORKERS, second], {}))) == [
        "one place is held by j-worker-0 and j-worker-0-1"
    ]
    ended = pod_of("j", "worker", 0, "Failed", life="-1")
    assert list(twins(World({}, [*WORKERS, ended], {}))) == []


def sample(mib: float = 100, *, tasks: int = 10, inbound: int = 0) -> Sample:
    return Sample(mib, int(mib * 2**20), 20 + inbound, 5, inbound, 2, tasks + inbound, 0, 0)


def test_what_others_keep_open_is_no_leak() -> None:
    assert leaks(sample(), sample(inbound=7)) == []
    assert leaks(sample(), sample(tasks=11)) == ["11 tasks at the end, 10 at the start"]


def test_growth_compares_the_middle_with_the_end() -> None:
    assert growth([sample(mib) for mib in (10, 20, 30, 40, 50, 60, 70, 80, 90)]) == (50, 80)


def test_errors_that_no_weather_excuses() -> None:
    assert broken({"controller_runtime_reconcile_errors_total": 9}) == []
    assert broken({"controller_runtime_reconcile_panics_total": 1}) == ["1 runs broke unexpectedly"]


def test_plots() -> None:
    assert line([0, 1, 2, 4, 8], width=5) == " ▁▂▄█"
    assert line([0, 1, 8, 0], width=2) == "▁█"
    assert line([]) == ""
    assert svg([sample(1), sample(2)], "a < b", 1.5).count("<polyline") == 2
