"""Pages of a master: its nodes, and the time of its workers."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request

from elasticjob.api.rpc.nodes import Doing, Gpus, Kept, Report, Usage, WorkerState
from elasticjob.master.progress import progress
from elasticjob.master.serving.pages import NONE, JobCollector, render, status
from elasticjob.master.state.job import Job
from elasticjob.master.state.node import Phase
from lab.virtual.master import Played, played, pod, report

DEVICES = Gpus(count=2, utilization=0.0, memory=3, memory_total=80)


def reported(usage: Usage, *workers: WorkerState) -> Job:
    """A job whose only node has reported so."""
    game = played("node-0")
    game.ask(Report(node="node-0", incarnation="node-0-life", round=1, usage=usage, workers=workers))
    return game.job


def worker(slot: int, usual: float, samples: float) -> WorkerState:
    return WorkerState(local_rank=slot, doing=Doing.COMPUTING, usual=usual, samples=samples)


def metrics(job: Job) -> dict[str, float]:
    """The metrics of node-0."""
    samples = (sample for metric in JobCollector(job).collect() for sample in metric.samples)
    prefix = "elasticjob_node_"
    return {
        each.name.removeprefix(prefix): each.value for each in samples if each.labels.get("node") == "node-0"
    }


@pytest.mark.parametrize(
    ("usage", "workers", "expected"),
    [
        (
            Usage(cpu=1.5, memory=64, peak=96, gpus=DEVICES),
            (worker(0, 0.25, 30.0), worker(1, 0.5, 10.0)),
            {
                "cpu_cores": 1.5,
                "memory_bytes": 64,
                "memory_peak_bytes": 96,
                "step_seconds": 0.5,
                "samples_per_second": 40.0,
                "gpu_utilization_ratio": 0.0,
                "gpu_memory_bytes": 3,
                "gpu_memory_total_bytes": 80,
            },
        ),
        (Usage(cpu=1.5, memory=64), (), {"cpu_cores": 1.5, "memory_bytes": 64}),
        (Usage(cpu=1.5, memory=64), (worker(0, 0.0, 0.0),), {"cpu_cores": 1.5, "memory_bytes": 64}),
    ],
)
def test_metrics_of_a_node_are_those_that_are_known(
    usage: Usage, workers: tuple[WorkerState, ...], expected: dict[str, float]
) -> None:
    assert metrics(reported(usage, *workers)) == expected


def test_metrics_have_one_name_each_and_sums_are_counters() -> None:
    job = reported(Usage(cpu=1.5, memory=64), worker(0, 0.25, 30.0))
    job = job.but(training=job.training.but(standstill=12.5, productive=37.5))
    found = list(JobCollector(job).collect())
    names = [metric.name for metric in found]
    assert len(names) == len(set(names))
    samples = {each.name: each.value for metric in found for each in metric.samples}
    assert samples["elasticjob_standstill_seconds_total"] == 12.5
    assert samples["elasticjob_goodput_ratio"] == 0.75
    assert [name for name in names if "goodput" in name] == ["elasticjob_goodput_ratio"]
    gauges = [metric for metric in found if metric.type == "gauge"]
    assert [metric.name for metric in gauges if "in all" in metric.documentation] == []


def shown(job: Job) -> dict[str, float]:
    """The metrics that have no label but the job's."""
    samples = [sample for metric in JobCollector(job).collect() for sample in metric.samples]
    plain = [each for each in samples if set(each.labels) == {"job"}]
    return {each.name.removeprefix("elasticjob_"): each.value for each in plain}


def test_the_last_step_and_the_usual_one_are_shown() -> None:
    game = played("node-0")
    assert "last_step_timestamp_seconds" not in shown(game.job)
    assert "usual_step_seconds" not in shown(game.job)
    for step in (1, 2):
        game.wait(2, "node-0")
        game.ask(report("node-0", 1, step))
    assert shown(game.job)["last_step_timestamp_seconds"] == game.now.timestamp()
    assert shown(game.job)["usual_step_seconds"] == 2.0
    game.wait(5, "node-0")
    told = WorkerState(local_rank=0, doing=Doing.COMPUTING, idle=1.0, usual=0.25)
    game.ask(Report(node="node-0", incarnation="node-0-life", round=1, workers=(told,)))
    assert shown(game.job)["last_step_timestamp_seconds"] == game.now.timestamp() - 1
    assert shown(game.job)["usual_step_seconds"] == 0.25


def test_restarts_of_the_node_with_the_most_failures_are_left() -> None:
    game = played("node-0", "node-1", replicas=2, restart_count=3)
    assert (shown(game.job)["restarts_left"], shown(game.job)["restarts_allowed"]) == (3, 3)
    for failures, left in ((1, 2), (3, 0), (4, 0)):
        job = game.job.put(game.job.nodes["node-1"].but(failures=failures))
        assert shown(job)["restarts_left"] == left
    assert "restarts_left" not in shown(played("node-0").job)  # nodes without pods are not replaced


def test_a_checkpoint_is_as_old_as_its_commit() -> None:
    game = played("node-0")
    assert "checkpoint_timestamp_seconds" not in shown(game.job)
    ages = []
    name = "checkpoint_timestamp_seconds"
    for stored in (0, 0, 4, 4):
        game.wait(1, "node-0")
        kept = Kept(in_memory=8, stored=stored)
        usage = Usage(cpu=1.0, memory=1)
        game.ask(Report(node="node-0", incarnation="node-0-life", round=1, usage=usage, kept=kept))
        ages.append(game.now.timestamp() - shown(game.job)[name])
    assert ages == [0, 1, 0, 1]
    moved = progress.shift(game.job, timedelta(hours=1))
    assert shown(moved)[name] == shown(game.job)[name] + 3600


def test_trouble_with_storage_ends_with_the_node_that_had_it() -> None:
    job = played("node-0", "node-1").job
    broken = job.nodes["node-1"].but(kept=Kept(stored=4, error="Read-only file system"))
    job = job.put(broken)
    assert shown(job)["checkpoint_failing"] == 1
    for lost in (broken.but(phase=Phase.DELETED), broken.but(failed=True), broken.but(excluded="slow")):
        assert shown(job.put(lost))["checkpoint_failing"] == 0
        assert shown(job.put(lost))["checkpoint_step"] == 4
    assert shown(job.put(broken.but(finished=True)))["checkpoint_failing"] == 1


def test_status_has_the_same_of_each_node() -> None:
    job = reported(Usage(cpu=1.5, memory=64, gpus=DEVICES), worker(0, 0.25, 30.0))
    [node] = msgspec.json.decode(msgspec.json.encode(status(job, Played().now)["nodes"]))
    assert (node["stepSeconds"], node["samplesPerSecond"]) == (0.25, 30.0)
    assert node["usage"] == {"cpu": 1.5, "memory": 64, "gpus": msgspec.to_builtins(DEVICES)}


def test_a_node_that_left_its_world_makes_no_steps() -> None:
    job = reported(Usage(cpu=1.5, memory=64), worker(0, 0.25, 30.0))
    job = job.put(job.nodes["node-0"].but(round=0))
    assert metrics(job) == {"cpu_cores": 1.5, "memory_bytes": 64}


def test_pages_account_the_time_until_they_are_asked() -> None:
    game = Played(1, 1)
    game.tick()
    game.see(pod("node-0"))
    request = make_mocked_request("GET", "/status")
    response = render(request, game.job, game.now + timedelta(seconds=0.2), NONE)
    assert isinstance(response.body, bytes)
    assert msgspec.json.decode(response.body)["badputSeconds"]["init"] == 0.2
