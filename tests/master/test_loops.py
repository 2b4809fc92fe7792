"""The loops of a master: an error of one pass ends none of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final, cast

import pytest

import elasticjob.master
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.kube.clock import VirtualClock
from elasticjob.master.scalers.pods import Pods
from elasticjob.master.scalers.processes import Processes
from tests.kit.loops import endless

OTHERWISE: Final = {
    "main.py _until_answer": "waits before there is a master",
    "main.py _load": "waits before there is a master",
    "serving/saving.py run": "a save that failed is tried again",
    "serving/shell.py wake": "an error is its poll's",
}
"""Loops that live by other means; see tests/master/serving."""


def test_no_loop_ends_with_a_pass() -> None:
    found = dict(endless(Path(elasticjob.master.__file__).parent))
    assert {
        "serving/shell.py tick",
        "cluster/cluster.py _observe",
        "scalers/processes.py run",
    } <= found.keys()
    assert {name for name, over in found.items() if not over} == OTHERWISE.keys()


@pytest.mark.parametrize("kind", [Pods, Processes])
async def test_a_scaler_that_meets_an_unexpected_error_looks_again(
    kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, given, looks = VirtualClock(), cast(Any, None), list[float]()

    async def look() -> float:
        looks.append(clock.monotonic())
        if len(looks) < 3:
            raise ZeroDivisionError("a defect")
        return 1.0

    job = ElasticJob.model_validate({"metadata": {"name": "digits", "namespace": "default"}, "spec": {}})
    scaler: Pods | Processes = Processes(tmp_path, "digits", given, clock)
    if kind is Pods:
        scaler = Pods(given, job, given, given, clock, "10.0.0.1:1")
    monkeypatch.setattr(scaler, "step" if kind is Pods else "look", look)
    running = asyncio.create_task(scaler.run())
    for _ in range(40):
        await clock.advance(0.25)
    assert not running.done()
    assert len(looks) > 5
    assert looks[1] - looks[0] >= 1
    running.cancel()
