"""Where each worker is in the script: all take part in the same, or the script is wrong.

Workers that have done the same steps and meetings, and are then at different places, would wait for each
other without end: operations of different kinds do not meet. So each tells what it has been in for some
seconds in the store of the world, and who finds another place there gives the world up. All compare their
places when the next one begins, and raise the same error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final

LOOK: Final = 5.0  # seconds


class At(IntEnum):
    """Where a worker is."""

    ELSEWHERE = 0  # in the script's own code
    BOUNDARY = 1  # at the start of a step, where the world ends as planned
    STEP = 2
    EVALUATE = 3
    MEAN = 4
    GATHER = 5


def check(step: int, ats: Sequence[int]) -> None:
    """Raise ValueError if workers that have done the same, up to `step`, are at different places."""
    places = [At.STEP if at == At.BOUNDARY else At(at) for at in ats]
    ranks = {at: [rank for rank, each in enumerate(places) if each is at] for at in sorted({*places})}
    ranks.pop(At.ELSEWHERE, None)
    if len(ranks) < 2:
        return
    where = ", ".join(
        f"{'rank' if len(which) == 1 else 'ranks'} {', '.join(map(str, which))} in "
        f"{f'step {step + 1}' if at is At.STEP else f'elastic.{at.name.lower()}'}"
        for at, which in ranks.items()
    )
    raise ValueError(
        f"the workers are at different places of the script after step {step}: {where}; call evaluate, mean "
        "and gather at the same places on all workers, not on some of them alone"
    )


class Watch:
    """Calls `look` every few seconds, in a thread of its own, until it is closed."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look, self._closed = look, threading.Event()
        self._thread = threading.Thread(target=self._watch, name="elasticjob-places", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; it may be in the midst of a look, which a lost store fails."""
        self._closed.set()
        self._thread.join(1.0)

    def _watch(self) -> None:
        while not self._closed.wait(LOOK):
            self._look()
