"""Reading answers of bounded size."""

from __future__ import annotations

import aiohttp


async def read_at_most(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body, or of a longer one its first bytes: more than `most`, which tells the caller so."""
    found = await answer.content.read(most + 1)
    while len(found) <= most and (more := await answer.content.read(most)):
        found += more
    return found
