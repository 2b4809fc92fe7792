"""Random interleavings of jobs, queues, failures and crashes: what pods use never exceeds what is held.

A failure names its seed, and `SEED=<seed> INTERLEAVINGS=1` repeats it; `INTERLEAVINGS=1000` runs as many.
"""

from __future__ import annotations

import os

import pytest

from lab.virtual.loop import run
from lab.virtual.story import tell

FIRST, COUNT = int(os.environ.get("SEED", "0")), int(os.environ.get("INTERLEAVINGS", "10"))
AT_ONCE = 10
"""Interleavings of one test."""


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, AT_ONCE))
def test_no_interleaving_uses_more_than_it_holds(first: int) -> None:
    for seed in range(first, min(first + AT_ONCE, FIRST + COUNT)):
        run(tell(seed))
