"""The facts that both sides of a story show when nothing changes any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from lab.incumbents.oracle import INCUMBENT, OURS, Seen

LONGEST: Final = 90.0
"""Seconds that two sides which are not alike are given at most."""


async def at_rest(
    look: Callable[[], Seen], *, quiet: float, unlike: float, meant: Sequence[str] = ()
) -> Seen:
    """Return what is there after `quiet` seconds without a change, or `unlike` where the sides differ.

    `meant`: patterns of the keys in which the sides are not waited for to be alike.
    """
    began = changed = time.monotonic()
    last: Seen = {}
    while True:
        now, found = time.monotonic(), look()
        if found != last:
            last, changed = found, now
        theirs, ours = found[INCUMBENT], found[OURS]
        differ = {key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key)}
        alike = all(any(fnmatchcase(key, each) for each in meant) for key in differ)
        if now - changed >= (quiet if alike else max(quiet, unlike)) or now - began >= LONGEST:
            return found
        await asyncio.sleep(0.25)
