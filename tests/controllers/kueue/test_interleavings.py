"""Random interleavings of jobs, queues, failures and crashes: what pods use never exceeds what is held.

A failure names its seed, and `python -m lab queues --seed <seed> --count 1` repeats it.
"""

from __future__ import annotations

import pytest

from elasticjob.controllers.kueue.decide import Seen
from lab.virtual.play import play


def test_no_interleaving_uses_more_than_it_holds() -> None:
    assert play(0, 10) == 0


def test_a_crash_of_the_operator_breaks_its_story(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(seen: Seen) -> dict[str, str]:
        raise RuntimeError("planted")

    monkeypatch.setattr(Seen, "to_reclaim", property(crash))
    assert play(100, 1) == 1
    printed = capsys.readouterr().out
    assert "in crash: RuntimeError: planted" in printed.partition("\n")[0]
    assert "again: python -m lab queues --seed 100 --count 1" in printed
