"""The gate: where a worker that begins the script anew gets the state of the others.

They pass it together, when the others are at the start of a step too, or after the last one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, NoReturn

from elasticjob.trainer.link.channel import Behind
from elasticjob.trainer.link.line import Line
from elasticjob.trainer.loop import whereabouts
from elasticjob.trainer.loop.whereabouts import At
from elasticjob.trainer.loop.world import NOTHING, State, W, World, is_behind

FOREVER: Final = 3600.0  # seconds of one sleep


class Gate(Generic[W]):
    """Brings the workers of a world to the same state; `closed` while a member has none yet.

    `newcomer`: the others began long ago, and this worker has not been at a step. With `at_once`
    newcomers get the state when they enter a world: nothing but steps is done together.
    """

    def __init__(self, state: State[W], line: Line, *, at_once: bool = False) -> None:
        self.closed = self.newcomer = False
        self._state, self._line, self._at_once = state, line, at_once
        self._sources = [0]  # the workers that held the state when this world began

    def agree(self, peers: W, restore: Callable[[], bool], at: At) -> None:
        """Bring the workers that hold a state to the newest one, and see who has none.

        Survivors of a broken collective may be one whole step or one meeting apart. If no worker holds
        a state, the script has begun on all of them. Workers without one get it at the gate: at once, if all
        others are at the start of a step. `at` is this worker's place; ValueError if survivors' differ.
        """
        state = self._state
        ages = peers.gather((*state.age, at))
        holders = [rank for rank, age in enumerate(ages) if age[0] != NOTHING]
        if not holders:
            state.begin(peers, restore)
            return
        held = [ages[rank][:2] for rank in holders]
        if state.whole and is_behind(state.age, max(held)):
            self.fall_behind(peers, max(held))
        whereabouts.check(max(held)[0], [at if [*age] == max(held) else At.ELSEWHERE for *age, at in ages])
        if min(held) != max(held):
            state.catch_up(peers, holders[held.index(max(held))])
        self._sources, self.closed = holders, len(holders) < len(ages)
        if not self.closed:
            return
        self.newcomer |= not state.whole
        if self._at_once or all(ages[rank][2] == At.BOUNDARY for rank in holders):
            self.take(peers)
        else:
            peers.divide(holders)

    def take(self, peers: W) -> None:
        """Pass the gate: all workers of this world are at a step."""
        self._state.take(peers, self._sources)
        peers.unite()
        self.closed = False

    def fall_behind(self, peers: W, newest: Sequence[int]) -> NoReturn:
        """Wait to be killed: only a new process can reach the place of the others in the script."""
        begin_anew(self._line, peers, f"{misses(self._state.age, newest)}, so it begins as a newcomer")


def begin_anew(line: Line, peers: World, reason: str) -> NoReturn:
    """Wait to be killed: the next process enters the next world."""
    line.send(Behind(round=peers.place.round, reason=reason))
    while True:
        time.sleep(FOREVER)


def misses(mine: Sequence[int], newest: Sequence[int]) -> str:
    """Return what a worker of age `mine` has missed of what others did, in words."""
    if mine[0] == newest[0]:
        return f"it missed the others' calls {mine[1] + 1} to {newest[1]} of evaluate, mean and gather"
    return f"it missed the others' steps {mine[0] + 1} to {newest[0]}"
