"""What a worker writes to the page that it shares with its agent, and what the agent makes of it."""

from __future__ import annotations

import os

import pytest

from elasticjob.trainer.agent.seeing.health import EVERY, Sight, Watcher, rate
from elasticjob.trainer.link import pulse
from elasticjob.trainer.link.pulse import Page, Phase, Pulse


def test_the_page_says_what_was_written_last() -> None:
    fd, clock = pulse.page(), iter((10.0, 12.0, 15.0))
    writer = Page(fd, clock=lambda: next(clock))
    writer.say(Phase.COMPUTING)
    writer.say(Phase.OUTSIDE, step=1, busy=1.5, reduced=12.0, records=24)
    writer.say(Phase.OUTSIDE, step=2, reduced=15.0, records=8)
    spent = (0.0, 3.0, 2.0, *[0.0] * 5)
    assert Page(fd).read() == Pulse(Phase.OUTSIDE, 2, 15.0, 1.5, 15.0, 32, spent)
    os.close(fd)


@pytest.mark.parametrize(
    ("points", "expected"),
    [((), 0.0), (((5.0, 3.0),), 0.0), (((5.0, 3.0), (7.0, 4.0)), 0.5), (((5.0, 3.0), (7.0, 1.0)), 0.0)],
)
def test_a_rate_needs_two_points(points: tuple[tuple[float, float], ...], expected: float) -> None:
    assert rate(points) == expected


def test_the_agent_tells_step_time_and_records_a_second() -> None:
    watcher, step = Watcher(), 0.25
    for look in range(60):
        now = 100.0 + look * EVERY
        done = int(look * EVERY / step)
        ended = 100.0 + done * step
        watcher.look({0: 1}, {0: Sight(Pulse(Phase.OUTSIDE, done, ended, 0.1, ended, 12 * done))}, now)
    [state] = watcher.states(now)
    assert state.usual == pytest.approx(step)
    assert state.samples == pytest.approx(12 / step, rel=0.01)
