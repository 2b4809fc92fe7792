"""The state of a training, a pytree, in the memory of this host: between worlds, and on its way to others."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from elasticjob.trainer.records.done import Done

Leaf = np.ndarray[Any, Any]
NUMBERS = (bool, int, float, complex)


def numbers_of(done: Done) -> list[Leaf]:
    """Return the progress as arrays."""
    counts = np.array([done.step, done.samples, done.epoch, done.offset], np.int64)
    return [counts, np.array([done.loss], np.float64)]


def done_of(numbers: Sequence[Leaf]) -> Done:
    """Return the progress from its arrays."""
    step, samples, epoch, offset = (int(each) for each in numbers[0])
    return Done(step, samples, epoch, offset, float(numbers[1][0]))


def on_host(tree: Any) -> Any:
    """Return a pytree with its arrays in host memory. TypeError names a leaf that is no array or number."""
    return jax.tree_util.tree_map_with_path(leaf_on_host, tree)


def leaf_on_host(path: Any, leaf: Any) -> Any:
    """Return one leaf in host memory."""
    if isinstance(leaf, jax.Array):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return Key(np.asarray(jax.random.key_data(leaf)), str(jax.random.key_impl(leaf)))
        if not leaf.is_fully_addressable:
            if not leaf.is_fully_replicated:
                raise TypeError(
                    f"state{jax.tree_util.keystr(path)} is divided over the processes of this world: "
                    "the state has to be whole on each"
                )
            leaf = leaf.addressable_data(0)
        return np.asarray(leaf)
    if isinstance(leaf, (np.ndarray, np.generic, *NUMBERS, Key)):
        return leaf
    raise TypeError(
        f"state{jax.tree_util.keystr(path)} is a {type(leaf).__name__}: a state has arrays and numbers alone"
    )


@dataclass(frozen=True, eq=False)
class Key:
    """A key of random numbers in host memory."""

    bits: Leaf
    kind: str


def on_device(host: Any) -> Any:
    """Return a pytree that `on_host` made with its arrays on this worker's first device."""
    device = jax.local_devices()[0]

    def put(leaf: Any) -> Any:
        if isinstance(leaf, Key):
            return jax.random.wrap_key_data(jax.device_put(leaf.bits, device), impl=leaf.kind)
        return leaf if isinstance(leaf, NUMBERS) else jax.device_put(leaf, device)

    return jax.tree.map(put, host, is_leaf=is_key)


def is_key(leaf: Any) -> bool:
    """Whether this is a key of random numbers."""
    return isinstance(leaf, Key)


def bits_of(leaf: Any) -> Leaf:
    """Return a leaf in host memory as an array."""
    return np.asarray(leaf.bits if isinstance(leaf, Key) else leaf)


def packed(host: Any, done: Done) -> bytes:
    """Return a state and its progress as bytes, for `unpacked` with a state of the same form."""
    leaves = jax.tree.leaves(host, is_leaf=is_key)
    return b"".join(np.ascontiguousarray(bits_of(each)).tobytes() for each in (*leaves, *numbers_of(done)))


def unpacked(told: bytes, host: Any) -> tuple[Any, Done]:
    """Return the state and the progress in `told`; `host` is a state of the same form."""
    leaves, form = jax.tree.flatten(host, is_leaf=is_key)
    found: list[Any] = []
    at = 0
    for each in (*leaves, *numbers_of(Done())):
        like = bits_of(each)
        bits = np.frombuffer(told, like.dtype, like.size, at).reshape(like.shape).copy()
        at += like.nbytes
        found.append(as_it_was(bits, each))
    return jax.tree.unflatten(form, found[:-2]), done_of(found[-2:])


def as_it_was(bits: Leaf, like: Any) -> Any:
    """Return an array as a leaf of the kind of `like`."""
    if isinstance(like, Key):
        return Key(bits, like.kind)
    return type(like)(bits.item()) if isinstance(like, NUMBERS) else bits


def form_of(host: Any) -> int:
    """Return a number of 30 bits for the form of a state: tree, shapes and types."""
    leaves, form = jax.tree.flatten(host, is_leaf=is_key)
    text = repr([(bits_of(each).shape, str(bits_of(each).dtype), type(each).__name__) for each in leaves])
    digest = hashlib.blake2b(f"{form}{text}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 2
