"""The copies of a training's state: when they are taken, and the one that a step goes back to."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from elasticjob.trainer.checkpoint.flash import Flash
from elasticjob.trainer.checkpoint.part import Save
from elasticjob.trainer.checks import whole
from elasticjob.trainer.link.pulse import Page
from elasticjob.trainer.loop.world import State, World

log = logging.getLogger("elasticjob")

OFTEN: Final = "a whole number of steps, at least 1; for none leave out checkpoint="


class Copies:
    """Copies of `state` in this node's memory, each `memory_every` steps, and in storage, each `save_every`.

    Without a `flash` there are none. This worker `takes` some: one of each node does for all, or each of
    `together` workers its part. With `clones` it also keeps one to itself, for `roll_back`.
    `older` restores what an older program has written, for rank 0; it returns whether there is something.
    """

    def __init__(
        self,
        state: State[Any],
        flash: Flash | None,
        *,
        save_every: int,
        memory_every: int,
        together: int,
        takes: bool,
        clones: bool,
        page: Page | None,
        older: Callable[[], bool] = bool,
    ) -> None:
        self._state, self._flash, self._page = state, flash, page
        self._save_every = whole("save_every", save_every, OFTEN)
        self._memory_every = whole("memory_every", memory_every, OFTEN)
        self._together, self._takes, self._clones, self._older = together, takes, clones, older
        self._settled = 0  # the step after which the script's own code has run
        self._written: tuple[Any, ...] = ()  # the newest that goes to storage, and what may come after it
        self._clone: Any = None

    def settle(self) -> None:
        """The script's own code after the present step has run."""
        self._settled = self._state.done.step

    def take_if_due(self, peers: World) -> None:
        """Copy the state after a step that is due, once its own code has run."""
        done, before = self._state.done.step, self._settled
        self.settle()
        if done == before:
            return
        if done % self._save_every == 0 or done % self._memory_every == 0:
            self.take(peers, persist=done % self._save_every == 0)
            self.clone()
        elif self._flash is not None and self._takes:
            self._flash.expect(self._state.snapshot, peers.rank)

    def take_before_leaving(self, peers: World) -> None:
        """Write the state of a worker that was told to leave, if the script's own code after it has run."""
        if self._state.whole and self._settled == self._state.done.step:
            self.take(peers, persist=True)
        elif self._state.whole:
            log.warning("step %d is not saved: its epoch is not closed", self._state.done.step)

    def take(self, peers: World, *, persist: bool) -> None:
        """Copy the state to this node's memory, for the others too; the first node's goes to storage.

        Once: a last step that is due is the same save. Its parts could mix, or wait for one that never comes.
        """
        save, began = Save(self._state.done.step, peers.place.round), time.monotonic()
        written = save, self._state.meetings, self._state.ended
        if self._flash is None or not (self._takes or peers.rank == 0) or self._written == written:
            return
        self._written = written if persist else self._written
        self._flash.save(
            self._state.snapshot(),
            save,
            peers.rank,
            persist=persist,
            exchange=lambda data: [data],
            keeps=peers.gives(0),
        )
        if self._page is not None:
            self._page.saved(time.monotonic() - began)

    def restore(self, peers: World, pause: Callable[[float], None]) -> bool:
        """Restore the newest checkpoint for rank 0; return whether there is one. All workers call it.

        `pause` waits for storage that cannot be read.
        """
        if self._flash is None:
            return False
        found = self._flash.load(
            peers.exchange,
            peers.rank,
            self._state.into,
            readers=lambda rank: rank < self._together,
            pause=pause,
        )
        if found is None:
            return peers.gives(0) and self._older()
        if peers.gives(0):
            for warning in self._state.restore(found[0], self._flash.where):
                if peers.rank == 0:
                    log.warning("%s", warning)
        return True

    def clone(self) -> None:
        """Keep a copy to roll back to, if that is wanted."""
        if self._clones:
            self._clone = copy.deepcopy(self._state.snapshot())

    def roll_back(self) -> None:
        """Go back to what the last clone had trained."""
        if self._clone is not None:
            self._state.roll_back(self._clone)

    def close(self) -> None:
        """End the work on copies: no other is taken."""
        if self._flash is not None:
            self._flash.close()
