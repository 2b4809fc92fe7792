"""The loop of scaling: asks the optimizer when it is time, and has its answers carried out."""

from __future__ import annotations

import logging
from typing import Final

from elasticjob.master.scalers.scaler import Scaler, ScalerError
from elasticjob.master.scaling import stages
from elasticjob.master.scaling.optimizer import Optimizer, OptimizerError, Question
from elasticjob.master.scaling.plan import ResourcePlan
from elasticjob.master.serving.server import Master

log = logging.getLogger("elasticjob.master")

EVERY: Final = 1.0
"""Seconds between two looks whether something is to be asked."""


class Autoscaler:
    """What is asked and remembered is decided in `stages.py`; this does the waiting, asking and writing."""

    def __init__(self, master: Master, optimizer: Optimizer, scaler: Scaler) -> None:
        self._master, self._optimizer, self._scaler = master, optimizer, scaler

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            if question := stages.question(self._master.job, self._master.now()):
                try:
                    await self._answer(question)
                except (OptimizerError, ScalerError) as error:
                    log.warning("job %s is not sized now, again in a second: %s", question.job, error)
            await self._master.clock.sleep(EVERY)

    async def _answer(self, question: Question) -> None:
        """Carry out the answer to a question; what was carried out is remembered. Raises what failed."""
        job = self._master.job
        plan = stages.allowed(job, question, await self._ask(question))
        if change := stages.change(job, question, plan):
            log.info("scale plan %s: %s", change.key, change.reason)
            await self._scaler.apply(change)
        self._master.observe(lambda job, now: stages.answered(job, question, plan, now))

    async def _ask(self, question: Question) -> ResourcePlan:
        if question.killed:
            return await self._optimizer.recovery_plan(question, question.killed)
        return await self._optimizer.plan(question)
