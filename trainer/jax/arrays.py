"""The leaves of a state in host memory, with names and kinds: in checkpoints, and for other workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from elasticjob.trainer.checkpoint import arrays, part, reading, rest
from elasticjob.trainer.checkpoint.agreement import Share
from elasticjob.trainer.checkpoint.part import Damaged, Head, Shape
from elasticjob.trainer.checkpoint.pieces import box_of
from elasticjob.trainer.checkpoint.reading import Reading
from elasticjob.trainer.checkpoint.sources import Source

Bits = np.ndarray[Any, Any]
NUMBERS: Final = {each.__name__: each for each in (bool, int, float, complex)}
"""The kinds of leaves that are numbers of Python."""
ARRAY, WEAK, KEY = "array", "weak", "key "  # a number that JAX promotes as Python's; a key of random numbers
MOST: Final = 3  # differences that a sentence names
STATE: Final = "state"


@dataclass(frozen=True, eq=False)
class Leaf:
    """A leaf in host memory. Its `kind` is ARRAY, WEAK, one of NUMBERS, or KEY with its algorithm."""

    bits: Bits
    kind: str = ARRAY

    def __str__(self) -> str:
        if self.kind in NUMBERS or self.kind.startswith(KEY):
            return f"a {self.kind}"
        return f"{self.bits.dtype.name} {'×'.join(map(str, self.bits.shape)) or 'scalar'}"

    def takes(self, other: Leaf) -> bool:
        """Whether `other` is of the same kind: a number of Python is what an array of no axes is."""
        if self.bits.shape != other.bits.shape or self.kind.startswith(KEY) != other.kind.startswith(KEY):
            return False
        if self.kind.startswith(KEY):
            return self.kind == other.kind
        if self.kind in NUMBERS or other.kind in NUMBERS:
            return sort(self.bits.dtype) == sort(other.bits.dtype)
        return bool(self.bits.dtype == other.bits.dtype)

    def like(self, other: Leaf) -> Leaf:
        """Return this leaf as one of a script whose own is `other`, which takes it."""
        if self.kind in NUMBERS and other.kind not in NUMBERS:
            return Leaf(self.bits.astype(other.bits.dtype), other.kind)
        return self


@dataclass(frozen=True)
class Snapshot:
    """A state in host memory: its leaves by name, and how far the training has come."""

    leaves: Mapping[str, Leaf]
    progress: Mapping[str, Any]


class StateParts:
    """A snapshot, taken apart for a checkpoint."""

    def __init__(self, snapshot: Snapshot, ended: int) -> None:
        self.ended, self._snapshot = ended, snapshot
        self.arrays = {name: leaf.bits for name, leaf in snapshot.leaves.items()}

    def shapes(self) -> Iterator[Shape]:
        """Return what a block has to know of each leaf."""
        return arrays.shapes_of(self.arrays)

    def fill(self, block: memoryview, places: Iterable[part.Tensor]) -> None:
        """Copy the leaves to their places in a block."""
        arrays.fill(block, places, self.arrays)

    def encode(self) -> bytes:
        """Return the rest as bytes."""
        leaves = self._snapshot.leaves
        kinds = {name: leaf.kind for name, leaf in leaves.items() if leaf.kind != ARRAY}
        return rest.encode({STATE: nest(leaves), "kinds": kinds, **self._snapshot.progress})

    def check(self) -> None:
        """The rest has nothing but names and numbers."""

    def share(self, rank: int) -> Share:
        """Return the only part: each worker has the whole state."""
        return Share(keeps=rank == 0)


class Arrays:
    """The form of states in JAX."""

    def take(self, state: Snapshot, ended: int = 0) -> StateParts:
        """Take a snapshot apart."""
        return StateParts(state, ended)

    def reading(self, source: Source, rank: int, world: int, into: None) -> Reading:
        """Return how a checkpoint is read to arrays. ValueError if another framework has made it."""
        snapshot_of(source.heads[0], {})
        pieces = reading.wholes(source.heads)
        found = {name: np.empty(each.shape, jnp.dtype(each.dtype)) for name, each in pieces.items()}
        plan = reading.plan(source.heads, source, {name: box_of(each) for name, each in pieces.items()}, rank)

        def fill(source: Source) -> Callable[[], object]:
            for copy in reading.copies(source, plan):
                bits = np.frombuffer(copy.slab.bytes_, found[copy.name].dtype).reshape(copy.shape)
                found[copy.name][copy.target] = bits[copy.found]
            return bool  # the script has none of them yet

        return Reading(source.heads[0].ended, plan, fill, lambda: snapshot_of(source.heads[0], found))

    def pin(self, block: memoryview) -> Callable[[], object]:
        """Leave a block as it is: JAX copies to the host by itself."""
        return bool


def pack(snapshot: Snapshot) -> memoryview:
    """Return a snapshot as a block of bytes."""
    taken = StateParts(snapshot, 0)
    return arrays.block_of(Head(step=0, round=0, rest=taken.encode()), taken.arrays)


def unpack(block: memoryview) -> Snapshot:
    """Return the snapshot in a block. Damaged if there is none."""
    head = part.head_in(block)
    return snapshot_of(head, {each.name: bits_in(block, each) for each in head.tensors})


def snapshot_of(head: Head, bits: Mapping[str, Bits]) -> Snapshot:
    """Return the snapshot that is in arrays. ValueError if another framework has made it."""
    if not rest.is_plain(head.rest):
        raise ValueError(
            "the checkpoint was made with torch, and this is JAX: give another checkpoint folder"
        )
    progress = rest.decode(head.rest)
    kinds = progress.pop("kinds")
    progress.pop(STATE)
    return Snapshot({name: Leaf(each, kinds.get(name, ARRAY)) for name, each in bits.items()}, progress)


def bits_in(block: memoryview, where: part.Tensor) -> Bits:
    """Return an array of a block, copied."""
    if where.at + where.size > len(block):
        raise Damaged(f"{where.name} would end at {where.at + where.size} of {len(block)} bytes")
    kind = jnp.dtype(where.dtype)
    return np.frombuffer(block[where.at : where.at + where.size], kind).reshape(where.shape).copy()


def nest(names: Iterable[str]) -> Any:
    """Return a tree of references to leaves by their names: for those who read it without the script."""
    tree: dict[str, Any] = {}
    for name in names:
        *branches, last = [each.replace("~1", "/").replace("~0", "~") for each in name.split("/")]
        branch = tree
        for each in branches:
            branch = branch.setdefault(each, {})
        branch[last] = {rest.REFERENCE: name}
    return tree.get(STATE, {})


def on_host(tree: Any) -> Any:
    """Return a pytree of Leafs. TypeError names a leaf that is no array or number."""
    return jax.tree_util.tree_map_with_path(leaf_on_host, tree, is_leaf=is_leaf)


def leaves_of(tree: Any) -> dict[str, Leaf]:
    """Return the leaves of a pytree by their names; the numbers of JAX's arrays stay on its devices."""
    return leaves_by_name(on_host(jax.tree.map(outline, tree, is_leaf=is_leaf)))


def outline(leaf: Any) -> Any:
    """Return an array as a Leaf of its type and shape that takes no memory; other leaves as they are."""
    if isinstance(leaf, Leaf):
        return Leaf(np.broadcast_to(np.zeros((), leaf.bits.dtype), leaf.bits.shape), leaf.kind)
    if isinstance(leaf, jax.Array) and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return Leaf(np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape), kind_of(leaf))
    return leaf


def kind_of(array: jax.Array) -> str:
    """Return the kind of an array of JAX that is no key."""
    return WEAK if array.weak_type and not array.shape else ARRAY


def signature(tree: Any) -> Any:
    """Return what is equal for two pytrees whose leaves have the same names, types and shapes."""
    leaves, form = jax.tree.flatten(tree)
    arrays = [(getattr(each, "kind", type(each)), getattr(each, "bits", each)) for each in leaves]
    return form, [(kind, getattr(each, "dtype", None), getattr(each, "shape", None)) for kind, each in arrays]


def leaves_by_name(host: Any) -> dict[str, Leaf]:
    """Return the leaves of a pytree that `on_host` made by their names. ValueError if two have the same."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(host, is_leaf=is_leaf)
    found: dict[str, Leaf] = {}
    for path, leaf in pairs:
        name = STATE
        for key in path:
            name = rest.pointer(name, plain(key))
        if name in found:
            raise ValueError(f"two leaves of the state are named {name}: one key is a number, one a text")
        found[name] = leaf
    return found


def plain(key: Any) -> Any:
    """Return the key of a branch: its name in a dict or a class, or its place."""
    return next(
        (getattr(key, name) for name in ("key", "name", "idx") if hasattr(key, name)),
        jax.tree_util.keystr((key,)),
    )


def leaf_on_host(path: Any, leaf: Any) -> Leaf:
    """Return one leaf in host memory."""
    where = f"{STATE}{jax.tree_util.keystr(path)}"
    if isinstance(leaf, Leaf):
        return leaf
    if isinstance(leaf, jax.Array):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return Leaf(np.asarray(jax.random.key_data(leaf)), f"{KEY}{jax.random.key_impl(leaf)}")
        if not leaf.is_fully_addressable:
            if not leaf.is_fully_replicated:
                raise TypeError(
                    f"{where} is divided over the processes of this world: the state has to be whole on each"
                )
            leaf = leaf.addressable_data(0)
        return Leaf(np.asarray(leaf), kind_of(leaf))
    if type(leaf) in NUMBERS.values():
        bits = np.asarray(leaf)
    elif isinstance(leaf, (np.ndarray, np.generic)):
        bits = as_jax_has_it(where, np.asarray(leaf))
    else:
        raise TypeError(f"{where} is a {type(leaf).__name__}: a state has arrays and numbers alone")
    if bits.dtype.hasobject or bits.dtype.names is not None or bits.dtype.kind in "SUMm":
        raise TypeError(f"{where} is {bits.dtype.name}, {leaf!r:.40}: a state has numbers of 64 bits at most")
    return Leaf(bits, type(leaf).__name__ if type(leaf) in NUMBERS.values() else ARRAY)


def as_jax_has_it(where: str, bits: Bits) -> Bits:
    """Return an array in the type that JAX makes of it. TypeError if a whole number does not fit."""
    kind = jax.dtypes.canonicalize_dtype(bits.dtype) if bits.dtype.kind in "biufc" else bits.dtype
    found = bits.astype(kind)
    if bits.dtype.kind in "iu" and not np.array_equal(found, bits):
        raise TypeError(
            f"{where} is {bits.dtype.name} with {bits.max()}, and JAX makes {kind.name} of it: set "
            "jax_enable_x64, or keep it as a number of Python"
        )
    return found


def on_device(host: Any) -> Any:
    """Return a pytree that `on_host` made with its arrays on this worker's first device."""
    device = jax.local_devices()[0]

    def put(leaf: Leaf) -> Any:
        if leaf.kind.startswith(KEY):
            bits = jax.device_put(leaf.bits, device)
            return jax.random.wrap_key_data(bits, impl=leaf.kind.removeprefix(KEY))
        if leaf.kind in NUMBERS:
            return NUMBERS[leaf.kind](leaf.bits.item())
        if leaf.kind == WEAK and (weak := jnp.asarray(leaf.bits.item())).dtype == leaf.bits.dtype:
            return weak
        return jax.device_put(leaf.bits, device)

    return jax.tree.map(put, host, is_leaf=is_leaf)


def is_leaf(leaf: Any) -> bool:
    """Whether this is a leaf in host memory."""
    return isinstance(leaf, Leaf)


def misfit(mine: Mapping[str, Leaf], theirs: Mapping[str, Leaf]) -> str:
    """Return by name where the leaves of others differ from a script's own, "" if nowhere."""
    found = [f"it has {name}, which the state lacks" for name in theirs.keys() - mine.keys()]
    found += [f"it lacks {name}" for name in mine.keys() - theirs.keys()]
    found += [
        f"{name} is {theirs[name]} there and {mine[name]} here"
        for name in mine.keys() & theirs.keys()
        if not mine[name].takes(theirs[name])
    ]
    found.sort()
    more = f" (and {len(found) - MOST} more)" if len(found) > MOST else ""
    return ", ".join(found[:MOST]) + more


def sort(kind: np.dtype[Any]) -> str:
    """Return whether a type has truth values, whole, real or complex numbers."""
    if kind == np.bool_:
        return "bool"
    names = (("int", jnp.integer), ("float", jnp.floating), ("complex", jnp.complexfloating))
    return next((name for name, kinds in names if jnp.issubdtype(kind, kinds)), kind.name)
