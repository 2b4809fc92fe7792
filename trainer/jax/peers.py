"""The workers of one world: what they add up, and what one tells the others."""

from __future__ import annotations

import logging
import math
import re
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from elasticjob.trainer.jax.coordination import Coordination, Lost, Services, forget_devices
from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.link.connections import Connection, connections, ports_of
from elasticjob.trainer.loop.whereabouts import At

log = logging.getLogger("elasticjob")

CHUNK: Final = 1 << 24  # bytes that are told at once
LEAST: Final = 1 << 12  # bytes: JAX compiles a sum anew for each shape
ROW: Final = 4  # numbers that are gathered at most
MARK: Final = re.compile(
    "gloo|nccl|connection|UNAVAILABLE|DEADLINE_EXCEEDED|CANCELLED|ABORTED", re.IGNORECASE
)
"""Texts of errors that come from the loss of a peer."""


class Peers:
    """The workers of the world `place`; alone it needs none of JAX's coordination."""

    def __init__(self, place: Enter, services: Services) -> None:
        self.place, self._services = place, services
        self._coordination = Coordination(place) if place.size > 1 else None
        self._before: frozenset[Connection] = frozenset()
        self._mesh: Mesh | None = None
        self._total: Any = None
        self._largest: Any = None

    @property
    def rank(self) -> int:
        """The rank of this worker."""
        return self.place.rank

    @property
    def size(self) -> int:
        """The number of workers."""
        return self.place.size

    def warm_up(self) -> None:
        """JAX needs nothing before its devices are those of a world."""

    def open(self, listener: socket.socket | None) -> None:
        """Meet the others. Lost if one of them is gone."""
        forget_devices()
        self._before = connections()
        if self._coordination is None:
            if listener is not None:
                listener.close()
            return
        self._coordination.open(listener, self._services)
        self._guard(self._open_mesh)

    def abort(self) -> None:
        """Fail what is pending; called from another thread."""
        if self._coordination is None:
            return
        self._coordination.abort()
        own = self._coordination.ports
        for each in connections() - self._before:
            if not own & ports_of(each):
                each.shut()

    def check(self) -> None:
        """Raise Lost after an abort."""
        if self._coordination is not None:
            self._coordination.check()

    def broken_by(self, error: RuntimeError) -> bool:
        """Whether `error` is the loss of a peer, not the script's."""
        return isinstance(error, Lost)

    def gives(self, source: int) -> bool:
        """Whether this is worker `source`."""
        return self.rank == source

    def divide(self, ranks: Sequence[int]) -> None:
        """Nothing but steps is done together."""

    def unite(self) -> None:
        """All are together."""

    def all_at(self, at: At, age: Sequence[int]) -> bool:
        """Nothing but steps is done together."""
        return True

    def close(self, *, broken: bool = False) -> None:
        """Leave the others."""
        if self._coordination is not None:
            self._coordination.leave()

    def sum(self, tree: Any) -> Any:
        """Return the sums of the arrays in `tree` over all workers, on this one's first device.

        One array of each type is reduced, one after the other. Gloo lets a collective wait for ever that
        runs beside one which fails: what a peer sent for the failed one is never read, nor that the
        connection is closed.
        """
        self.check()
        if self._mesh is None:
            return jax.block_until_ready(tree)
        leaves, form = jax.tree.flatten(jax.tree.map(jnp.asarray, tree))
        sums = [self._guard(partial(self._reduce, each, self._total)) for each in concatenate(leaves)]
        return jax.tree.unflatten(form, apart(sums, tuple((leaf.shape, leaf.dtype) for leaf in leaves)))

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the `numbers` of every worker, of 30 bits, by rank."""
        rows = np.zeros((self.size, ROW), np.int32)
        rows[self.rank, : len(numbers)] = numbers
        found: list[list[int]] = np.asarray(self.sum(rows))[:, : len(numbers)].tolist()
        return found

    def exchange(self, data: bytes) -> list[bytes]:
        """Return the `data` of every worker, by rank."""
        if self._mesh is None:
            return [data]
        lengths = [length for (length,) in self.gather([len(data)])]
        rows = np.zeros((self.size, next_power(max(lengths))), np.uint8)
        rows[self.rank, : len(data)] = np.frombuffer(data, np.uint8)
        told = self._largest_of(rows)
        return [each[:length].tobytes() for each, length in zip(told, lengths, strict=True)]

    def tell(self, block: memoryview, source: int) -> memoryview:
        """Return the `block` of worker `source`."""
        if self._mesh is None:
            return block
        high, low = self.gather(divmod(len(block), 1 << 30))[source]
        length = (high << 30) + low
        gives = self.gives(source)
        told = block if gives else memoryview(bytearray(length))
        for at in range(0, length, CHUNK):
            size = min(CHUNK, length - at)
            piece = np.zeros(next_power(size), np.uint8)
            if gives:
                piece[:size] = np.frombuffer(block, np.uint8, size, at)
            given = self._largest_of(piece)
            if not gives:
                told[at : at + size] = given[:size].tobytes()
        return told

    def _largest_of(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the largest of each number over all workers: of bytes, those that are not 0."""
        return np.asarray(self._guard(lambda: self._reduce(array, self._largest)))

    def _open_mesh(self) -> None:
        firsts = {each.process_index: each for each in reversed(jax.devices())}
        self._mesh = Mesh(np.array([firsts[rank] for rank in range(self.size)]), "worker")
        everywhere = NamedSharding(self._mesh, PartitionSpec())
        self._total = jax.jit(total, out_shardings=everywhere)
        self._largest = jax.jit(largest, out_shardings=everywhere)

    def _reduce(self, array: Any, how: Any) -> Any:
        mesh = self._mesh
        assert mesh is not None
        shared = NamedSharding(mesh, PartitionSpec("worker"))
        mine = jax.device_put(jnp.expand_dims(jnp.asarray(array), 0), jax.local_devices()[0])
        shape = (self.size, *mine.shape[1:])
        all_of_them = jax.make_array_from_single_device_arrays(shape, shared, [mine])
        return jax.block_until_ready(how(all_of_them).addressable_data(0))

    def _guard(self, act: Any) -> Any:
        """Return what `act` returns; Lost instead of the error that a lost peer causes."""
        try:
            return act()
        except (RuntimeError, ValueError) as error:
            self.check()
            if MARK.search(str(error)):
                raise Lost(str(error)[:500]) from error
            raise


@jax.jit  # type: ignore[untyped-decorator]  # JAX declares no types for it
def concatenate(leaves: Sequence[Any]) -> list[Any]:
    """Return an array for each type, with all leaves of it after each other."""
    types = dict.fromkeys(leaf.dtype for leaf in leaves)
    return [jnp.concatenate([jnp.ravel(leaf) for leaf in leaves if leaf.dtype == each]) for each in types]


@partial(jax.jit, static_argnums=1)
def apart(arrays: Sequence[Any], leaves: Sequence[tuple[tuple[int, ...], Any]]) -> list[Any]:
    """Return the leaves, of these shapes and types, that `concatenate` has put into arrays."""
    of = {array.dtype: array for array in arrays}
    at = dict.fromkeys(of, 0)
    found = []
    for shape, kind in leaves:
        size = math.prod(shape)
        found.append(of[kind][at[kind] : at[kind] + size].reshape(shape))
        at[kind] += size
    return found


def next_power(size: int) -> int:
    """Return the next power of two."""
    return max(LEAST, 1 << (size - 1).bit_length())


def total(array: Any) -> Any:
    """Return sums over the workers."""
    return array.sum(0, dtype=array.dtype)


def largest(array: Any) -> Any:
    """Return the largest of the workers' values: that of the only one which is not 0."""
    return array.max(0)
