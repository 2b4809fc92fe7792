"""The three questions that an optimizer answers.

`LocalOptimizer` (local.py) answers from the job's own records and is pure; `BrainOptimizer` (brain.py) asks
the Brain service. Whatever answers, `stages.py` bounds the answer by what the user said.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from elasticjob.master.scaling.plan import ResourcePlan
from elasticjob.master.scaling.state import Placed, Record, Stage, Wish


@dataclass(frozen=True)
class Question:
    """All that an answer rests on: the stage, the user's wish, what runs, and the records, oldest first."""

    job: str
    stage: Stage
    wish: Wish
    placed: Placed
    records: tuple[Record, ...]
    now: datetime


class Optimizer(Protocol):
    """Raises OptimizerError if it cannot answer now: another one stands in, and it is asked again later."""

    async def plan(self, question: Question) -> ResourcePlan:
        """Return what the job should have at this stage."""

    async def recovery_plan(self, question: Question, nodes: tuple[str, ...]) -> ResourcePlan:
        """Return what nodes get that were out of memory."""

    async def first_plan(self, question: Question) -> ResourcePlan:
        """Return what a job starts with of which nothing is known."""


class OptimizerError(Exception):
    """No answer; the message says why."""
