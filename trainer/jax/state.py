"""The state of a training in JAX: the script's pytree, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import jax

from elasticjob.trainer.jax.arrays import (
    Leaf,
    Snapshot,
    is_leaf,
    leaves_by_name,
    leaves_of,
    misfit,
    on_host,
    pack,
    signature,
    unpack,
)
from elasticjob.trainer.jax.peers import Peers
from elasticjob.trainer.loop.world import NOTHING
from elasticjob.trainer.records.done import Done

OTHERS = "the state of the other workers"


@dataclass
class State:
    """The state of one worker (`loop.world`); between two worlds the `tree` has Leafs, in host memory."""

    tree: Any
    done: Done = field(default_factory=Done)
    meetings: int = 0
    order: dict[str, Any] = field(default_factory=dict)
    ended: tuple[int | None, int | None] | tuple[()] = ()
    whole: bool = False
    into: None = None
    form: dict[str, Leaf] = field(init=False)  # what the script's own state is, by name
    _checked: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.tree = on_host(self.tree)
        self.form = leaves_of(self.tree)  # its errors are the user's

    @property
    def age(self) -> tuple[int, int]:
        """How far this state has come: steps, then meetings."""
        return (self.done.step, self.meetings) if self.whole else (NOTHING, NOTHING)

    def check(self, step: int) -> None:
        """Raise RuntimeError, by name, if a later start could not take the state after a step."""
        if (found := signature(self.tree)) == self._checked:
            return
        if differs := misfit(self.form, leaves_of(self.tree)):
            raise RuntimeError(
                f"the state after step {step} does not fit the one that Elastic was given: {differs}; keep "
                "names, types and shapes (.astype), or begin with these: a later start could not take it"
            )
        self._checked = found

    def snapshot(self) -> Snapshot:
        """Return everything in host memory."""
        progress = {"done": asdict(self.done), "order": self.order, "ended": self.ended}
        return Snapshot(leaves_by_name(on_host(self.tree)), progress)

    def restore(self, snapshot: Snapshot, where: str) -> list[str]:
        """Take over a snapshot. ValueError names where it is of another state."""
        step = snapshot.progress["done"]["step"]
        self._become(snapshot, f"the checkpoint of step {step} in {where}")
        return []

    def roll_back(self, snapshot: Snapshot) -> None:
        """Take over what an earlier snapshot has trained."""
        self.put(snapshot.leaves)

    def put(self, leaves: Mapping[str, Leaf]) -> None:
        """Take over leaves by their names, which this state has."""
        host = on_host(self.tree)
        mine = leaves_by_name(host)
        form = jax.tree.structure(host, is_leaf=is_leaf)
        self.tree = jax.tree.unflatten(form, [leaves[name].like(mine[name]) for name in mine])

    def end_epoch(self) -> None:
        """Check what the script has made of the state since the step."""
        self.check(self.done.step)

    def begin(self, world: Peers, start: Callable[[], bool]) -> None:
        """Let all workers begin with what `start` restores for rank 0, or with its script's initial state."""
        start()
        self.take(world, [0])

    def take(self, world: Peers, sources: Sequence[int]) -> None:
        """Give the state of the first of workers `sources` to those that have none yet."""
        given = self._receive(world, sources[0])
        if given is not None and not self.whole:
            self._become(given, OTHERS)
        self.whole = True

    def catch_up(self, world: Peers, source: int) -> None:
        """Bring the workers that hold a state to that of `source`."""
        given = self._receive(world, source)
        if given is not None and self.whole:
            self._become(given, OTHERS)

    def _receive(self, world: Peers, source: int) -> Snapshot | None:
        """Return the snapshot of worker `source`; None for itself."""
        gives = world.gives(source)
        if gives and world.size == 1:
            return None
        block = world.tell(pack(self.snapshot()) if gives else memoryview(b""), source)
        return None if gives else unpack(block)

    def _become(self, snapshot: Snapshot, of: str) -> None:
        if differs := misfit(self.form, snapshot.leaves):
            raise ValueError(
                f"{of} does not fit this script's: {differs}; make the same state, or give another "
                "checkpoint folder"
            )
        self.put(snapshot.leaves)
        self.done = Done(**snapshot.progress["done"])
        self.order, self.ended = dict(snapshot.progress["order"]), tuple(snapshot.progress["ended"])
