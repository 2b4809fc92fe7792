"""The loop of scaling: asks the optimizer when it is time, and has its answers carried out."""

from __future__ import annotations

import logging
from typing import Final

from elasticjob.kube.controller.passes import Passes
from elasticjob.master.scalers.scaler import Scaler, ScalerError
from elasticjob.master.scaling import stages
from elasticjob.master.scaling.optimizer import Optimizer, OptimizerError
from elasticjob.master.serving.core import Core
from elasticjob.sizing.facts import Facts

log = logging.getLogger("elasticjob.master")

EVERY: Final = 1.0
"""Seconds between two looks whether something is to be asked."""


class Autoscaler:
    """What is asked and remembered is decided in `stages.py`; this does the waiting, asking and writing."""

    def __init__(self, master: Core, optimizer: Optimizer, scaler: Scaler) -> None:
        self._master, self._optimizer, self._scaler = master, optimizer, scaler

    async def run(self) -> None:
        """Run until cancelled: a job whose sizes cannot be decided trains on."""
        job = self._master.job.spec.job
        passes = Passes("scaling", self._master.clock, self._master.metrics)
        while True:
            if passes.is_due(job):
                with passes.over(job):
                    await self._look()
            await self._master.clock.sleep(EVERY)

    async def _look(self) -> None:
        if facts := stages.question(self._master.job, self._master.now()):
            try:
                await self._answer(facts)
            except (OptimizerError, ScalerError) as error:
                log.warning("job %s is not sized now, again in a second: %s", facts.job.name, error)

    async def _answer(self, facts: Facts) -> None:
        """Apply the plan, and record it in the job. Raises the scaler's error."""
        job = self._master.job
        change = stages.permit(job, facts, await self._optimizer.plan(facts))
        if change:
            name = stages.name_of(job, facts)
            log.info("scale plan %s: %s", name, change.reason)
            await self._scaler.apply(name, change)
        self._master.observe(lambda job, now: stages.after_answer(job, facts, change, now))
