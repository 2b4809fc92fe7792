"""The loop that sizes a job: what an error of it costs."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from elasticjob.api.sizes.change import Change
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.metrics import Metrics
from elasticjob.master.cluster.autoscaler import Autoscaler
from elasticjob.master.scalers.scaler import Scaler
from elasticjob.master.scaling import stages
from elasticjob.master.scaling.optimizer import Optimizer, OptimizerError
from elasticjob.master.serving.server import Master
from elasticjob.master.state.job import Job, Spec
from elasticjob.sizing.facts import Facts
from lab.build.sizing import asked


class Standin:
    """A master of a job, and an optimizer that raises what it is told to, in turn."""

    def __init__(self, *errors: Exception) -> None:
        self.clock, self.job, self.errors, self.answers = (
            VirtualClock(),
            Job(spec=Spec(job="digits")),
            [*errors],
            0,
        )
        self.now, self.metrics = self.clock.now, Metrics()

    async def plan(self, facts: Facts) -> Change:
        if self.errors:
            raise self.errors.pop(0)
        return Change(reason="as it is")

    def observe(self, change: Any) -> None:
        self.answers += 1


@pytest.mark.parametrize(
    "error", [ZeroDivisionError(), OptimizerError("away"), FileNotFoundError("brain-token")]
)
async def test_a_job_whose_sizes_cannot_be_decided_trains_on(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    standin, facts = Standin(error, error), asked({})
    monkeypatch.setattr(stages, "question", lambda job, now: facts)
    scaler = Autoscaler(cast(Master, standin), cast(Optimizer, standin), cast(Scaler, None))
    running = asyncio.create_task(scaler.run())
    await standin.clock.advance(10)
    assert not running.done()
    assert standin.answers > 1
    running.cancel()
