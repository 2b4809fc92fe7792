"""Pages of a master: its nodes, and the time of its workers."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request

from elasticjob.api.rpc.nodes import Doing, Gpus, Report, Usage, WorkerState
from elasticjob.master.serving.pages import NONE, JobCollector, render, status
from elasticjob.master.state.job import Job
from tests.kit.master.turns import Played, played, pod

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
