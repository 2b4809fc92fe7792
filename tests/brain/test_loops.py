"""The loops of Brain: an error of one pass ends none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import elasticjob.brain
from tests.kit.loops import endless

INSIDE: Final = {"store.py _sweep"}
"""Loops of one pass, whose error is that pass's."""


def test_no_loop_ends_with_a_pass() -> None:
    found = dict(endless(Path(elasticjob.brain.__file__).parent))
    assert {"monitor/watch.py run", "sharing.py run"} <= found.keys()
    assert {name for name, over in found.items() if not over} == INSIDE
