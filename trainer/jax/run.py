"""One worker's part in a training with JAX: its place in the records, and its devices in each world."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from elasticjob.api.rpc.permutation import key_of, place
from elasticjob.trainer.jax import coordination, older
from elasticjob.trainer.jax.arrays import Arrays, on_device, on_host
from elasticjob.trainer.jax.coordination import Services
from elasticjob.trainer.jax.peers import Peers
from elasticjob.trainer.jax.state import State
from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.link.line import Line
from elasticjob.trainer.loop import reading, run
from elasticjob.trainer.loop.membership import Membership
from elasticjob.trainer.loop.reports import Reports
from elasticjob.trainer.records.sampler import Piece, Sampler, Window
from elasticjob.trainer.shards import Dataset

log = logging.getLogger("elasticjob")


class Devices:
    """JAX's devices, which are made anew for each world: the state is in host memory meanwhile."""

    def __init__(self, state: State) -> None:
        self._state, self.services = state, Services()

    def peers(self, place: Enter) -> Peers:
        """Return the workers of a world."""
        return Peers(place, self.services)

    def enter(self, peers: Peers) -> None:
        """Put the state on the devices of a world."""
        self._state.tree = on_device(self._state.tree)
        self.services.stop_unused()

    def leave(self) -> None:
        """Take the state from the devices of a world that is over."""
        self._state.tree = on_host(self._state.tree)


class Reading(reading.Reading):
    """The numbers of a dataset's records."""

    begun = True

    def __init__(self, state: State, data: Dataset, batch: int) -> None:
        super().__init__(state)
        self._data, self._batch = data, batch
        self.limit = data.epochs or None, None

    def sampler(self, place: Enter) -> Sampler:
        """Return how the records are cut into steps."""
        return Sampler(self._data.size, self._batch, place.batch_slots)

    def order(self) -> dict[str, Any]:
        """Return what the order of the records depends on, by name."""
        data = self._data
        shuffled = {"dataset": data.name, "seed": data.seed} if data.shuffle else {}
        return {"records": data.size, "batch": self._batch, "shuffle": data.shuffle, **shuffled}

    def numbers(self, epoch: int, places: range) -> np.ndarray[Any, Any]:
        """Return the numbers of the records at `places` of an epoch's order."""
        if not self._data.shuffle:
            return np.arange(places.start, places.stop)
        key = key_of(self._data.seed, self._data.name, epoch)
        return np.array([place(each, self._data.size, key) for each in places])


class Run(run.Run[Peers, State, Reading]):
    """The training of one worker: `Elastic` and `Step` are what a script sees of it."""

    def __init__(
        self,
        state: Any,
        data: Dataset,
        *,
        batch: int,
        checkpoint: str | None,
        save_every: int,
        memory_every: int,
        environment: Mapping[str, str],
    ) -> None:
        mine, line, reports = State(state), Line(environment), Reports()
        self._devices = Devices(mine)
        self._beginning: Any = None
        copies = run.copies_of(
            mine,
            Arrays(),
            line,
            environment,
            checkpoint=checkpoint,
            save_every=save_every,
            memory_every=memory_every,
            older=lambda: self._restore_older(checkpoint or ""),
        )
        lacks = "" if line.is_alone else coordination.missing()
        membership = Membership(mine, self._devices, copies, line, reports, at_once=True, lacks=lacks)
        super().__init__(mine, Reading(mine, data, batch), reports, copies, membership, line, environment)
        if lacks:
            log.warning(
                "%s: a change of the world starts workers again, from the newest checkpoint%s",
                lacks,
                "" if checkpoint else ", of which there is none: give checkpoint=",
            )
        membership.begin()

    def begin_step(self, window: Window) -> tuple[Piece, ...]:
        """Note the state at the beginning of a step; return this worker's parts of `window`."""
        self._beginning = self.state.tree
        pieces = window.of(self.peers.rank, self.peers.size)
        self.note_step(sum(piece.count for piece in pieces))
        return pieces

    @property
    def is_donated(self) -> bool:
        """Whether a part of the state at the beginning of the step is gone."""
        return any(getattr(leaf, "is_deleted", bool)() for leaf in jax.tree.leaves(self._beginning))

    def put_back(self) -> None:
        """Go back to the state at the beginning of a step that is not done, if it is still there."""
        if not self.is_donated:
            self.state.tree = self._beginning

    def close(self) -> None:
        """Leave, at the end of the process."""
        self.membership.close()
        self._devices.services.close()

    def _restore_older(self, checkpoint: str) -> bool:
        """Restore a checkpoint of an older elasticjob; return whether there is one."""
        found = older.newest(Path(checkpoint), self.state.form)
        if found is not None:
            self.state.restore(found, checkpoint)
        return found is not None
