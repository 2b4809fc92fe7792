"""Random interleavings of jobs, queues, failures and crashes: what pods use never exceeds what is held.

A failure names its seed, and `python -m lab queues --seed <seed> --count 1` repeats it.
"""

from __future__ import annotations

from lab.virtual.play import play


def test_no_interleaving_uses_more_than_it_holds() -> None:
    assert play(0, 10) == 0
