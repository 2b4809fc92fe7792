"""What the loop needs of a framework: the workers of a world, and the state that they train."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.loop.whereabouts import At
from elasticjob.trainer.records.done import Done


class World(Protocol):
    """The workers of one world; `abort` may be called from any thread, the rest from the training one."""

    place: Enter

    @property
    def rank(self) -> int:
        """The rank of this worker."""

    @property
    def size(self) -> int:
        """The number of workers."""

    def warm_up(self) -> None:
        """Make ready what training needs, before others wait for it."""

    def open(self, listener: socket.socket | None) -> None:
        """Meet the others. A RuntimeError (`broken_by`) if one of them is gone."""

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the `numbers` of every worker, by rank."""

    def exchange(self, data: bytes) -> list[bytes]:
        """Return the `data` of every worker, by rank."""

    def gives(self, source: int) -> bool:
        """Whether this worker has what worker `source` gives to others."""

    def divide(self, ranks: Sequence[int]) -> None:
        """Let `exchange` be among `ranks` only, until `unite`."""

    def unite(self) -> None:
        """Let `exchange` be among all workers again."""

    def all_at(self, at: At, age: Sequence[int]) -> bool:
        """Whether each worker of this age that has asked this is at the same place; from any thread."""

    def broken_by(self, error: RuntimeError) -> bool:
        """Whether `error` is the loss of a peer, not the script's."""

    def abort(self) -> None:
        """Fail what is pending."""

    def check(self) -> None:
        """Raise the loss of a peer after an abort."""

    def close(self, *, broken: bool = False) -> None:
        """Leave the others; `broken`: what is pending never ends."""


W = TypeVar("W", bound=World)
W_contra = TypeVar("W_contra", bound=World, contravariant=True)


class State(Protocol[W_contra]):
    """What a worker trains. `done` is replaced after each step; `whole`: this is the state of the job.

    `meetings` counts what all did together between steps. `order` is that of the data, `ended` the epochs and
    steps that a loop had asked for when the script left it.
    """

    done: Done
    meetings: int
    order: dict[str, Any]
    ended: tuple[int | None, int | None] | tuple[()]
    whole: bool

    @property
    def age(self) -> tuple[int, int]:
        """How far this state has come: steps, then meetings; NOTHING twice if it is not whole."""

    @property
    def into(self) -> Any:
        """What a checkpoint is read into, as the form of checkpoints wants it."""

    def snapshot(self) -> Any:
        """Return everything, for a checkpoint."""

    def restore(self, snapshot: Any, where: str) -> list[str]:
        """Take over a snapshot from `where`; return warnings. ValueError if it is of another state."""

    def roll_back(self, snapshot: Any) -> None:
        """Take over what an earlier snapshot has trained; the position in the data stays."""

    def end_epoch(self) -> None:
        """Do what comes after an epoch, once."""

    def begin(self, world: W_contra, start: Callable[[], bool]) -> None:
        """Let all workers begin with what `start` restores for rank 0, or with its script's initial state."""

    def take(self, world: W_contra, sources: Sequence[int]) -> None:
        """Give everything of workers `sources` to the workers that have nothing yet.

        A worker whose script has made another state raises ValueError, after the others have theirs.
        """

    def catch_up(self, world: W_contra, source: int) -> None:
        """Bring the workers that hold a state to that of `source`, who may be one step ahead of them."""


class Backend(Protocol[W]):
    """The framework's process group or devices, made anew for each world; they keep the worker's state."""

    def peers(self, place: Enter) -> W:
        """Return the workers of a world, which is not open yet."""

    def enter(self, peers: W) -> None:
        """Make ready for a world that is open, and whose workers have the same state."""

    def leave(self) -> None:
        """The world is over: keep nothing that belongs to it."""


NOTHING = -1  # the age of a worker that holds no state of the job


def is_behind(mine: Sequence[int], newest: Sequence[int]) -> bool:
    """Whether a worker of this age (steps, meetings) cannot be at the place of the newest in the script.

    Survivors of a broken collective are one whole step or one meeting apart at most.
    """
    return sum(abs(other - own) for own, other in zip(mine, newest, strict=True)) > 1
