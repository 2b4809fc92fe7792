"""The question that an optimizer answers: what should this job have?

`LocalOptimizer` (local.py) answers from the job's own samples and is pure; `BrainOptimizer`
(cluster/brain.py) asks the Brain service. `stages.py` bounds the answer by the user's settings.
"""

from __future__ import annotations

from typing import Protocol

from elasticjob.api.sizes.change import Change
from elasticjob.sizing.facts import Facts


class Optimizer(Protocol):
    """Raises OptimizerError if it cannot answer now: another one stands in, and it is asked again later."""

    async def plan(self, facts: Facts) -> Change:
        """Return what the job should have; an empty change says why nothing changes."""


class OptimizerError(Exception):
    """No answer; the message says why."""
