"""A soak in small: some seconds of faults on either server, and what a soak calls wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.controllers.install import install
from elasticjob.kube.cache.wire import Meta, Owner
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import POD, Pod
from lab.clusters.served import Served
from lab.jobs.crowd import JOBS, Plane, crowded, job
from lab.jobs.gauges import Sample, growth
from lab.story import Length, Outcome, Story, tell
from lab.troubles import network
from lab.truths import pods, status
from lab.truths.pods import twins
from lab.truths.status import OWNED, World, broken, grown, leaks, leftovers, places, slow, unfinished


@pytest.mark.story
@pytest.mark.timeout(600)
async def test_an_operator_outlives_bad_weather_and_holds_nothing_afterwards(
    served: Served, client: Client, tmp_path: Path
) -> None:
    await install(client)
    progress: list[str] = []
    crowd = replace(JOBS[0], opens=partial(crowded, pace=0.3, faults=10))
    story = Story(3, 0, Length(minutes=0.08, size=6), progress.append)
    weights = {row: crowd.troubles[row.name] for row in network.TROUBLES}
    outcome = Outcome("crowd", 0)
    timeless = [row for row in (*status.TRUTHS, *pods.TRUTHS) if row.name not in ("soon", "no-growth")]
    await tell(crowd, Plane(served.config(), tmp_path), story, weights, timeless, outcome)
    assert not outcome.wrong, [*outcome.wrong, (tmp_path / "operator.log").read_text()[-4000:]]
    *told, end = progress
    assert outcome.troubles.total() == len(told) > 0
    assert end == str(outcome)
    assert "all jobs deleted, nothing left" in outcome.figures


def job_named(name: str, workers: int, status: dict[str, Any], **spec: Any) -> ElasticJob:
    made = job(name, workers)
    metadata = {"name": name, "namespace": "soak", "uid": f"uid-{name}", "generation": 2}
    whole = {"apiVersion": ELASTICJOB.api_version, "kind": "ElasticJob", "metadata": metadata}
    return ELASTICJOB.convert(whole | {"spec": made["spec"] | spec, "status": status})


def pod_of(role: str, index: int, phase: str = "Running", life: str = "") -> Pod:
    labels = {LABEL_JOB: "j", LABEL_ROLE: role, LABEL_INDEX: str(index)}
    metadata = {"name": f"j-{role}-{index}{life}", "namespace": "soak", "labels": labels}
    return POD.convert({"metadata": metadata, "spec": {}, "status": {"phase": phase}})


RUNNING = {"phase": "Running", "workers": "2/2", "observedGeneration": 2}
OVER = {
    "phase": "Succeeded",
    "conditions": [
        {"type": "Complete", "status": "True", "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ],
}
MASTER, *WORKERS = pod_of("master", 0), pod_of("worker", 0), pod_of("worker", 1)


def worlds() -> Iterator[tuple[ElasticJob, list[Pod], str]]:
    """Job, pods, and what is said of them."""
    good = job_named("j", 2, RUNNING)
    yield good, [MASTER, *WORKERS], ""
    yield good, WORKERS, "has 0 masters"
    yield good, [MASTER, WORKERS[0]], "workers ['0'] of 2"
    yield job_named("j", 1, RUNNING), [MASTER, *WORKERS], "workers ['0', '1'] of 1"
    yield good, [MASTER, WORKERS[0], pod_of("worker", 1, "Pending")], "do not run yet"
    yield job_named("j", 2, RUNNING | {"workers": "1/2"}), [MASTER, *WORKERS], "says Running 1/2"
    yield job_named("j", 2, RUNNING | {"observedGeneration": 1}), [MASTER, *WORKERS], "newest spec"
    suspended = job_named("j", 2, {"phase": "Suspended"}, suspend=True)
    yield suspended, [], ""
    yield suspended, WORKERS, "has 2 pods"
    yield job_named("j", 2, OVER), [pod_of("worker", 0, "Succeeded")], ""
    yield job_named("j", 2, OVER), WORKERS, "is Succeeded and has 2 pods"


@pytest.mark.parametrize(("found", "pods", "message"), [*worlds()])
def test_a_job_that_is_not_as_specified_is_told_of(found: ElasticJob, pods: list[Pod], message: str) -> None:
    messages = list(unfinished(World({"j": found}, pods, {})))
    assert (not messages) if not message else (len(messages) == 1 and message in messages[0])


def test_what_has_lost_its_owner_and_two_pods_of_one_place_are_told_of() -> None:
    mine, lost = (
        Meta(name=name, labels={LABEL_JOB: "j"}, owner_references=[Owner(uid=uid)])
        for name, uid in (("mine", "uid-j"), ("lost", "uid-gone"))
    )
    owned: dict[str, list[Meta]] = {kind.name: [] for kind in OWNED}
    world = World({"j": job_named("j", 1, {})}, [], owned | {"Secret": [mine, lost, Meta(name="foreign")]})
    assert list(leftovers(world)) == ["Secret lost has lost its owner"]
    for phase, count in (("Running", 1), ("Failed", 0)):
        second = pod_of("worker", 0, phase, life="-1")
        assert len(twins(places(World({}, [*WORKERS, second], {})))) == count


def sample(mib: float = 100, *, tasks: int = 10, inbound: int = 0) -> Sample:
    return Sample(mib, int(mib * 2**20), 20 + inbound, 5, inbound, 2, tasks + inbound, 0, 0)


def test_what_is_held_at_the_end_is_a_leak_unless_others_hold_it() -> None:
    assert leaks(sample(), sample(inbound=7)) == []
    assert leaks(sample(), sample(tasks=11)) == ["11 tasks at the end, 10 at the start"]
    assert growth([sample(mib) for mib in (10, 20, 30, 40, 50, 60, 70, 80, 90)]) == (50, 80)
    assert not grown([sample(mib) for mib in (10, 90, 99)])
    assert grown([sample(mib) for mib in (10, 90, 100)]) == [
        "memory grew from 90 to 100 MiB in the last third"
    ]
    assert slow(5.0) == []
    assert slow(5.1) == ["it took 5.1 s until all was as specified"]
    assert broken({"controller_runtime_reconcile_errors_total": 9}) == []
    assert broken({"controller_runtime_reconcile_panics_total": 1}) == ["1 runs broke unexpectedly"]
