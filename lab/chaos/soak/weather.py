"""The faults of a soak: seeded random episodes between the operator and the server."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

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

CALM = (0.5, 4.0)
"""Seconds between two episodes."""

Crash = Callable[[], Awaitable[None]]
"""Kills the API server and brings it back."""


@dataclass
class Weather:
    """`run()` plays episodes until it is cancelled; `clear()` ends the active faults."""

    proxy: FaultProxy
    chance: random.Random
    crash: Crash | None = None
    pace: float = 1.0
    """Factor of every pause."""
    saw: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        while True:
            # the moment is meant to be random: nothing announces bad weather
            await self.last(*CALM)
            names = [name for name in EPISODES if name != "crash" or self.crash]
            name = self.chance.choices(names, weights=[EPISODES[each][0] for each in names])[0]
            self.saw[name] += 1
            await EPISODES[name][1](self)

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
EPISODES: Mapping[str, tuple[int, Episode]] = {
    "connections cut": (3, cut),
    "429, 500, 503": (3, busy),
    "pages of a proxy": (2, proxied),
    "delays": (2, slow),
    "streams torn": (2, torn),
    "writes lost or refused": (2, lossy),
    "answers stalled": (2, stalled),
    "versions too old": (1, forgetful),
    "partition": (2, partitioned),
    "crash": (1, crashed),
}
"""The episodes, with relative frequencies."""
