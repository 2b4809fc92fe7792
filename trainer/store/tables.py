"""Tables of rows: as users declare them, and the part of a table that a server has.

A row is made when it is updated for the first time. Its first values depend on the table's seed and the row's
id alone, so that any server makes the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from elasticjob.api.numbers import MANY
from elasticjob.trainer.checks import check, is_integer, is_number, is_text
from elasticjob.trainer.store.optimizers import MOST, SGD, Adagrad, Adam, Rows, as_float32

Ids = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

PARTITIONS: Final = 64
"""Row `id` is in partition `id % PARTITIONS`; a server has whole partitions."""
WIDEST: Final = 65_536
"""Columns of a table, at most."""
LONGEST: Final = 253
"""Characters of a table's name, at most."""


class Zeros(msgspec.Struct, frozen=True, tag=True):
    """Rows of zeros."""

    def make(self, ids: Ids, dim: int, seed: int) -> Rows:
        return np.zeros((len(ids), dim), np.float32)


class Uniform(msgspec.Struct, frozen=True, tag=True):
    """Rows of numbers in [-scale, scale)."""

    scale: float = 0.05

    def __post_init__(self) -> None:
        check(self, "scale", is_number(self.scale) and 0 <= self.scale <= MOST, f"a number of 0 to {MOST:g}")

    def make(self, ids: Ids, dim: int, seed: int) -> Rows:
        return ((2.0 * _chance(ids, dim, seed) - 1.0) * self.scale).astype(np.float32)


class Normal(msgspec.Struct, frozen=True, tag=True):
    """Rows of numbers around 0 with this deviation (Box and Muller 1958)."""

    deviation: float = 0.01

    def __post_init__(self) -> None:
        fits = is_number(self.deviation) and 0 <= self.deviation <= MOST
        check(self, "deviation", fits, f"a number of 0 to {MOST:g}")

    def make(self, ids: Ids, dim: int, seed: int) -> Rows:
        radius = np.sqrt(-2.0 * np.log1p(-_chance(ids, dim, seed)))
        angle = 2.0 * np.pi * _chance(ids, dim, seed + 1)
        return (self.deviation * radius * np.cos(angle)).astype(np.float32)


class Table(msgspec.Struct, frozen=True):
    """A table of rows with `dim` columns of float32, changed by `optimizer` on the servers.

    A matrix of a model is a table, too, with its rows as ids. Ids are any numbers from 0; their count is not
    declared.
    """

    name: str
    dim: int
    optimizer: SGD | Adagrad | Adam = SGD()
    initial: Zeros | Uniform | Normal = Uniform()
    seed: int = 0

    def __post_init__(self) -> None:
        named = is_text(self.name) and 1 <= len(self.name) <= LONGEST
        check(self, "name", named, f"a text of 1 to {LONGEST} characters")
        check(self, "dim", is_integer(self.dim) and 1 <= self.dim <= WIDEST, f"an int of 1 to {WIDEST}")
        check(self, "optimizer", isinstance(self.optimizer, SGD | Adagrad | Adam), "SGD, Adagrad or Adam")
        check(self, "initial", isinstance(self.initial, Zeros | Uniform | Normal), "Zeros, Uniform or Normal")
        check(self, "seed", is_integer(self.seed) and 0 <= self.seed <= MANY, f"an int of 0 to {MANY}")

    @property
    def state(self) -> int:
        """Columns of the optimizer's state."""
        return self.dim * self.optimizer.columns + self.optimizer.numbers


class Part(msgspec.Struct):
    """Rows of a table as they travel: [rows], [rows, dim] and [rows, state], in the bytes of numpy."""

    table: Table
    ids: bytes
    values: bytes
    state: bytes

    def of(self, partition: int) -> Part:
        """Return the rows of one partition."""
        ids = ids_in(self.ids)
        chosen = ids % PARTITIONS == partition
        values = matrix(self.values, len(ids), self.table.dim)[chosen]
        state = matrix(self.state, len(ids), self.table.state)[chosen]
        return Part(self.table, ids[chosen].tobytes(), values.tobytes(), state.tobytes())


class Change(NamedTuple):
    """Rows with new values and state, and where a Slab has them: at -1 those that it has not."""

    ids: Ids
    places: npt.NDArray[np.int64]
    values: Rows
    state: Rows


class Slab:
    """The rows of a table that a server has."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._index: dict[int, int] = {}
        self._ids = np.zeros(0, np.int64)
        self._values = np.zeros((0, table.dim), np.float32)
        self._state = np.zeros((0, table.state), np.float32)

    def __len__(self) -> int:
        return len(self._index)

    def rows(self, ids: Ids) -> Rows:
        """Return the values of rows; those that were never updated are as they would be made."""
        return self._rows(ids, self._places(ids))

    def change(self, ids: Ids, gradients: Rows) -> Change:
        """Return rows as they are after an update; `ids` has none twice.

        Raises OverflowError if they are no numbers of float32.
        """
        places = self._places(ids)
        values, state = self._rows(ids, places).astype(np.float64), self._state_of(places).astype(np.float64)
        with np.errstate(all="ignore"):
            self.table.optimizer.apply(values, state, gradients.astype(np.float64))
        return Change(ids, places, as_float32(values), as_float32(state))

    def set(self, changed: Change) -> None:
        """Set rows, and make those that are not there."""
        places, fresh = changed.places, changed.places < 0
        if fresh.any():
            places = places.copy()
            places[fresh] = self._room(changed.ids[fresh])
        self._values[places], self._state[places] = changed.values, changed.state

    def part(self, partitions: Iterable[int]) -> Part:
        """Return a copy of the rows of these partitions."""
        ids = self._ids[: len(self)]
        chosen = among(ids, partitions)
        values, state = self._values[: len(self)][chosen], self._state[: len(self)][chosen]
        return Part(self.table, ids[chosen].tobytes(), values.tobytes(), state.tobytes())

    def put(self, part: Part) -> None:
        """Take rows over, which this server has not. Raises ValueError if the bytes are no such rows."""
        ids = ids_in(part.ids)
        values = matrix(part.values, len(ids), self.table.dim)
        self.set(Change(ids, self._places(ids), values, matrix(part.state, len(ids), self.table.state)))

    def _places(self, ids: Ids) -> npt.NDArray[np.int64]:
        """Return the places of rows, -1 for those that are not there."""
        return np.fromiter(map(self._index.get, ids.tolist(), repeat(-1)), np.int64, len(ids))

    def _rows(self, ids: Ids, places: npt.NDArray[np.int64]) -> Rows:
        fresh = places < 0
        if not fresh.any():
            return self._values[places]
        found = np.empty((len(ids), self.table.dim), np.float32)
        found[~fresh] = self._values[places[~fresh]]
        found[fresh] = self.table.initial.make(ids[fresh], self.table.dim, self.table.seed)
        return found

    def _state_of(self, places: npt.NDArray[np.int64]) -> Rows:
        there = places >= 0
        if there.all():
            return self._state[places]
        state = np.empty((len(places), self.table.state), np.float32)
        self.table.optimizer.fresh(state)
        state[there] = self._state[places[there]]
        return state

    def _room(self, ids: Ids) -> npt.NDArray[np.int64]:
        """Return places for new rows, twice as many as there were when they are used up."""
        start = len(self)
        end = start + len(ids)
        if end > len(self._ids):
            more = max(end, 2 * len(self._ids), 64)
            self._ids = _larger(self._ids, more)
            self._values, self._state = _larger(self._values, more), _larger(self._state, more)
        self._ids[start:end] = ids
        self._index.update(zip(ids.tolist(), range(start, end), strict=True))
        return np.arange(start, end)


def among(ids: Ids, partitions: Iterable[int]) -> npt.NDArray[np.bool_]:
    """Return of each id whether it is in one of these partitions."""
    chosen = np.zeros(PARTITIONS, np.bool_)
    chosen[list(partitions)] = True
    return chosen[ids % PARTITIONS]


def ids_in(data: bytes) -> Ids:
    """Return the ids in bytes. Raises ValueError if they are none."""
    if len(data) % 8:
        raise ValueError(f"{len(data)} bytes are no ids of rows: each has 8")
    ids = np.frombuffer(data, np.int64)
    if len(ids) and ids.min() < 0:
        raise ValueError("ids of rows are numbers from 0")
    return ids


def matrix(data: bytes, rows: int, columns: int) -> Rows:
    """Return the float32 [rows, columns] in bytes. Raises ValueError if they have another size."""
    if len(data) != 4 * rows * columns:
        raise ValueError(f"{len(data)} bytes are not {rows} rows of {columns} numbers of 4 bytes")
    return np.frombuffer(data, np.float32).reshape(rows, columns)


def _larger(array: Array, rows: int) -> Array:
    return np.concatenate([array, np.zeros((rows - len(array), *array.shape[1:]), array.dtype)])


def _chance(ids: Ids, dim: int, seed: int) -> npt.NDArray[np.float64]:
    """Return numbers in [0, 1) that depend on seed, id and column (the mixer of SplitMix64, Steele 2014)."""
    columns = np.arange(dim, dtype=np.uint64)
    with np.errstate(over="ignore"):
        mixed: Any = ids.astype(np.uint64)[:, None] * np.uint64(WIDEST) + columns
        mixed = (mixed + np.uint64(seed) * np.uint64(0xD1342543DE82EF95)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    chance: npt.NDArray[np.float64] = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return chance
