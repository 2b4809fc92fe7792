"""Episodes of faults between the operator and the API server, and the death of the server itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

from elasticjob.kube.testing import (
    CutAfter,
    Delay,
    Fault,
    FaultProxy,
    Flaky,
    Lose,
    Refuse,
    Stall,
    asking,
    failure,
    html,
)
from elasticjob.kube.testing.faults import PASSED
from lab.story import Trouble

Crash = Callable[[], Awaitable[None]]
"""Kills the API server and brings it back."""


@dataclass
class Weather:
    """The line to an API server, for episodes of faults."""

    proxy: FaultProxy
    chance: Random
    crash: Crash | None = None
    pace: float = 1.0
    """Factor of every pause."""

    @property
    def faults(self) -> int:
        """How many requests had one."""
        return self.proxy.counts.total() - self.proxy.counts[PASSED]

    def clear(self) -> None:
        """End all faults; reset connections that a stall left half-open, which would never end."""
        self.proxy.clear()
        self.proxy.heal()
        self.proxy.cut_connections()

    async def last(self, shortest: float, longest: float) -> None:
        """Let some time pass: a random one is the point, nothing announces bad weather."""
        await asyncio.sleep(self.chance.uniform(shortest, longest) * self.pace)

    @contextmanager
    def raining(self, when: str, *faults: Fault, share: float = 0.5) -> Iterator[None]:
        """Inject faults for the duration of the block."""
        rule = self.proxy.add(asking(when), Flaky(share, *faults))
        try:
            yield
        finally:
            self.proxy.remove(rule)


async def cut(weather: Weather) -> None:
    weather.proxy.cut_connections()


async def busy(weather: Weather) -> None:
    busy_ = [failure(429, "TooManyRequests", Retry_After="1"), failure(429, "TooManyRequests")]
    with weather.raining("", *busy_, failure(500, "InternalError"), failure(503, "ServiceUnavailable")):
        await weather.last(0.5, 2)


async def proxied(weather: Weather) -> None:
    with weather.raining("", html(502), html(503), html(404, "Not Found"), html(200, "Sign in")):
        weather.proxy.cut_connections()
        await weather.last(0.5, 2)


async def slow(weather: Weather) -> None:
    with weather.raining("", Delay(0.2), Delay(1.5)):
        await weather.last(1, 3)


async def torn(weather: Weather) -> None:
    cuts = [CutAfter(weather.chance.randrange(1, 20_000)) for _ in range(5)]
    with weather.raining("watch list", *cuts, share=0.8):
        weather.proxy.cut_connections()
        await weather.last(1, 3)


async def lossy(weather: Weather) -> None:
    with weather.raining("write", Lose(), Refuse()):
        await weather.last(0.5, 2)


async def stalled(weather: Weather) -> None:
    with weather.raining("", Stall(0), Stall(500), share=0.3):
        await weather.last(0.5, 2)
    await weather.last(1, 4)
    weather.proxy.cut_connections()


async def forgetful(weather: Weather) -> None:
    with weather.raining("watch", failure(410, "Expired", "too old resource version")):
        weather.proxy.cut_connections()
        await weather.last(0.2, 1)


async def partitioned(weather: Weather) -> None:
    weather.proxy.partition()
    await weather.last(1, 5)
    late = weather.chance.random() < 0.5
    weather.proxy.heal(deliver=late)
    if not late:
        await weather.last(0, 2)
        weather.proxy.cut_connections()


async def crashed(weather: Weather) -> None:
    assert weather.crash is not None
    await weather.crash()


Episode = Callable[[Weather], Awaitable[None]]
EPISODES: Final[Mapping[str, tuple[int, Episode]]] = {
    "cut": (3, cut),
    "busy": (3, busy),
    "proxied": (2, proxied),
    "slow": (2, slow),
    "torn": (2, torn),
    "lossy": (2, lossy),
    "stalled": (2, stalled),
    "forgetful": (1, forgetful),
    "partitioned": (2, partitioned),
    "crash": (1, crashed),
}
"""The episodes, with relative frequencies."""


def _row(name: str, episode: Episode) -> Trouble:
    async def act(weather: Weather) -> str:
        await episode(weather)
        return name

    return Trouble(name, Weather, act)


TROUBLES: Final = tuple(_row(name, episode) for name, (_, episode) in EPISODES.items())
