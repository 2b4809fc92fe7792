"""The optimizer of a job without a Brain: the rows of the one table that need the job's own samples alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from elasticjob.api.sizes.change import Change
from elasticjob.api.sizes.facts import Stage
from elasticjob.sizing.algorithm import Algorithm, Decider
from elasticjob.sizing.decide import decide
from elasticjob.sizing.facts import Event, Facts
from elasticjob.sizing.table import ALGORITHMS


class LocalOptimizer:
    """Pure rules behind the question."""

    def __init__(self, algorithms: Sequence[Algorithm] = ALGORITHMS) -> None:
        self._algorithms = algorithms

    async def plan(self, facts: Facts) -> Change:
        """Return what the job should have; an empty change says why nothing changes."""
        event = Event.START if facts.stage is Stage.CREATE else Event.IDLE
        change = decide(facts, event, Decider.MASTER, self._algorithms).change
        return replace(change, algorithm="")
