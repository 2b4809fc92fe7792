"""The optimizer of a job without a Brain: it answers from the job's own records."""

from __future__ import annotations

from elasticjob.master.scaling.optimizer import Question
from elasticjob.master.scaling.plan import ResourcePlan


class LocalOptimizer:
    """Pure rules behind the three questions."""

    async def plan(self, question: Question) -> ResourcePlan:
        """Return what the job should have at this stage."""
        return ResourcePlan(reason=f"nothing is known for stage {question.stage}")

    async def recovery_plan(self, question: Question, nodes: tuple[str, ...]) -> ResourcePlan:
        """Return what nodes get that were out of memory."""
        return ResourcePlan(reason="the operator doubles the memory of nodes that were out of it")

    async def first_plan(self, question: Question) -> ResourcePlan:
        """Return what a job starts with of which nothing is known."""
        return ResourcePlan(reason="the user's minimum")
