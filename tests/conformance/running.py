"""Many probes against one server, a few at a time, normalised."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tests.conformance.normal import normalise
from tests.conformance.play import Observation, Server, play
from tests.conformance.probe import Probe

TOGETHER = 6


async def seen_by(server: Server, probes: Iterable[Probe]) -> dict[str, list[Observation]]:
    """Probe → what it saw, in its normal form."""
    gate = asyncio.Semaphore(TOGETHER)

    async def one(each: Probe) -> tuple[str, list[Observation]]:
        async with gate:
            return each.name, normalise(await play(server, each))

    return dict(await asyncio.gather(*(one(each) for each in probes)))
