"""More memory after a kill: the one rule for operator, simulator and processes of one machine.

    twice as much, at most 8 GiB more, up to a ceiling

The operator applies it at once, in all modes but manual (controllers/nodes/out_of_memory.py). Masters and
Brain plan nothing for a kill: their next sample shows what the successor uses.
"""

from __future__ import annotations

from typing import Final

from elasticjob.api.resources import Bytes

MOST_AT_ONCE: Final = Bytes.parse("8Gi")
"""The most that one kill adds."""
CEILING: Final = Bytes.parse("64Gi")
"""The most memory of a node whose job has no resourceLimits, where no machine is known either."""


def next_memory(had: Bytes, ceiling: Bytes = CEILING) -> Bytes | None:
    """Return what a node gets that was killed with `had`; None if that is no more."""
    wanted = min(had * 2, had + MOST_AT_ONCE, ceiling)
    return wanted if wanted > had else None
