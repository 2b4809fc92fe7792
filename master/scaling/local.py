"""The optimizer of a job without a Brain: it answers from the job's own records.

CREATE                                  start.py
a node waits too long for a machine     pending.py
any time                                memory.py
all nodes train at one size for long    cores.py, and servers.py (with parameter servers) or growth.py
"""

from __future__ import annotations

from elasticjob.master.scaling import cores, growth, memory, pending, servers, start
from elasticjob.master.scaling.optimizer import Question
from elasticjob.master.scaling.plan import ResourcePlan
from elasticjob.master.state.scaling import Mode, Stage


class LocalOptimizer:
    """Pure rules behind the three questions."""

    async def plan(self, question: Question) -> ResourcePlan:
        """Return what the job should have at this stage."""
        if question.stage is Stage.CREATE:
            return start.plan(question)
        if question.wish.mode is Mode.MANUAL:
            return ResourcePlan(reason="optimizeMode is manual")
        if found := pending.plan(question):
            return found
        sizes = servers.plan(question) if question.wish.has_servers else growth.plan(question)
        return _cores(question) | memory.plan(question) | sizes

    async def recovery_plan(self, question: Question, nodes: tuple[str, ...]) -> ResourcePlan:
        """Return what nodes get that were out of memory: the operator has given them more already."""
        return ResourcePlan(reason="the operator gives nodes more memory that were out of it")

    async def first_plan(self, question: Question) -> ResourcePlan:
        """Return what a job starts with of which nothing is known."""
        return start.default(question)


def _cores(question: Question) -> ResourcePlan:
    return cores.plan(question) if question.settled else ResourcePlan()
