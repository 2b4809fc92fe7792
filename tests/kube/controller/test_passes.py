"""Loops over all objects: what an error of one costs."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from typing import cast

import pytest

from elasticjob.kube.client.recorder import Recorder
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.errors import Conflict, Fenced, Forbidden, ServerError, TooManyRequests, Unreachable
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.views import ObjectReference

ABOUT = ObjectReference(name="b")
FORBIDDEN = Forbidden(403, "Forbidden", "the quota is spent")
BUSY = TooManyRequests(429, "TooManyRequests", "busy", retry_after=40.0)


class Told:
    """Takes Events as a Recorder does."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, about: ObjectReference, type_: str, reason: str, note: str) -> None:
        self.events.append(f"{type_} {about.name} {reason}: {note}")


class Loop:
    """A loop over a, b and c whose pass over b raises what it is told to."""

    def __init__(self) -> None:
        self.clock, self.metrics, self.told = VirtualClock(), Metrics(), Told()
        self.passes = Passes("samples", self.clock, self.metrics, cast(Recorder, self.told))

    def look(self, error: BaseException | None) -> str:
        """Return the objects that were passed over."""
        seen = ""
        for name in "abc":
            if self.passes.is_due(name):
                with self.passes.over(name, ABOUT):
                    seen += name
                    if name == "b" and error:
                        raise error
        return seen

    @property
    def failed(self) -> float | None:
        return self.metrics.registry.get_sample_value(
            "elasticjob_kube_failed_passes_total", {"loop": "samples"}
        )


@pytest.mark.parametrize(
    ("error", "events", "pauses"),
    [
        (FORBIDDEN, ["Warning b PassFailed: samples: the quota is spent (403 Forbidden)"], (1, 1.2)),
        (ZeroDivisionError(), ["Warning b PassFailed: samples: ZeroDivisionError"], (1, 1.2)),
        (ServerError(500, "InternalError", "failed calling webhook"), [], (1, 1.2)),
        (BUSY, [], (40, 48)),
        (Conflict(409, "Conflict", "changed meanwhile"), [], None),
        (Fenced("not the leader"), [], None),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
async def test_an_error_costs_the_pass_of_its_object(
    error: Exception, events: list[str], pauses: tuple[float, float] | None
) -> None:
    loop = Loop()
    assert loop.look(error) == "abc"
    assert (loop.failed, loop.told.events) == (1.0, events)
    if pauses is not None:
        await loop.clock.advance(0.9 * pauses[0])
        assert loop.look(None) == "ac"
        await loop.clock.advance(pauses[1] - 0.9 * pauses[0])
    assert loop.look(None) == "abc"
    assert loop.failed == 1.0


async def test_pauses_double_to_five_minutes_and_end_with_the_trouble() -> None:
    loop, looks = Loop(), []
    for second in range(0, 3600, 5):
        if "b" in loop.look(FORBIDDEN):
            looks.append(second)
        await loop.clock.advance(5)
    longest = max(later - before for before, later in pairwise(looks))
    assert 300 <= longest <= 365
    assert 12 < len(looks) < 25
    await loop.clock.advance(400)
    loop.look(None)
    loop.look(FORBIDDEN)
    await loop.clock.advance(1.2)
    assert loop.look(None) == "abc"


async def test_a_server_that_is_away_is_no_objects_fault(caplog: pytest.LogCaptureFixture) -> None:
    loop, away = Loop(), Unreachable("connection refused")
    with caplog.at_level(logging.INFO):
        for _ in range(60):
            assert loop.look(away) in ("ab", "a", "")
            await loop.clock.advance(1)
        await loop.clock.advance(2.4)
        assert loop.look(None) == "abc"
    assert [each.getMessage() for each in caplog.records] == ["the server is away", "the server is back"]
    assert loop.told.events == []


async def test_cancellation_ends_the_loop() -> None:
    with pytest.raises(asyncio.CancelledError):
        Loop().look(asyncio.CancelledError())


async def test_objects_that_are_gone_are_forgotten() -> None:
    loop = Loop()
    for number in range(400):
        with loop.passes.over(f"pod-{number}"):
            raise FORBIDDEN
        await loop.clock.advance(5)
    assert len(loop.passes._failures) < 150


async def test_an_error_of_no_pass_is_counted_and_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    for _ in range(1000):
        loop.passes.count("Watch", ZeroDivisionError())
    assert (loop.failed, len(caplog.records)) == (1000.0, 1)
    await loop.clock.advance(1.2)
    loop.passes.count("Watch", ZeroDivisionError())
    assert (loop.failed, len(caplog.records)) == (1001.0, 2)


async def test_the_pauses_of_a_loop_may_be_bounded() -> None:
    loop = Loop()
    loop.passes = Passes("samples", loop.clock, Metrics(), at_most=10.0)
    for _ in range(6):
        assert loop.look(FORBIDDEN) == "abc"
        await loop.clock.advance(12)
