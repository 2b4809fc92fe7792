"""Checkpoints of an older elasticjob: `step-<number>.npz`, bytes without names and types."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from elasticjob.trainer.jax.arrays import NUMBERS, Leaf, Snapshot

log = logging.getLogger("elasticjob")

NAME: Final = re.compile(r"step-(\d+)\.npz")
SHORT: Final = {"int": np.int32, "float": np.float32}
"""What JAX makes of a number of Python in a step."""
REFUSED: Final = "train the same model, or give another checkpoint folder"


def newest(folder: Path, mine: dict[str, Leaf]) -> Snapshot | None:
    """Return the newest of a folder, with the names and types of `mine`, the leaves of the script's state.

    ValueError if the sizes are others.
    """
    found = {
        int(match[1]): path for path in folder.glob("step-*.npz") if (match := NAME.fullmatch(path.name))
    }
    if not found:
        return None
    path = found[max(found)]
    with np.load(path, allow_pickle=False) as file:
        *arrays, counts, losses = [file[f"arr_{number}"].tobytes() for number in range(len(file.files))]
    if len(arrays) != len(mine):
        raise ValueError(f"{path} holds {len(arrays)} arrays, and the state has {len(mine)}: {REFUSED}")
    leaves = {name: read(path, name, each, mine[name]) for name, each in zip(mine, arrays, strict=True)}
    log.warning(
        "%s was written by an older elasticjob, which recorded neither names nor types: they are taken to be "
        "those of this script, in its order; see that it makes the same state",
        path,
    )
    step, samples, epoch, offset = np.frombuffer(counts, np.int64).tolist()
    (loss,) = np.frombuffer(losses, np.float64).tolist()
    done = {"step": step, "samples": samples, "epoch": epoch, "offset": offset, "loss": loss}
    return Snapshot(leaves, {"done": done, "order": {}, "ended": ()})


def read(path: Path, name: str, data: bytes, mine: Leaf) -> Leaf:
    """Return a leaf from its bytes, taken to be as `mine` is."""
    kind: Any = mine.bits.dtype
    if len(data) == mine.bits.nbytes:
        return Leaf(np.frombuffer(data, kind).reshape(mine.bits.shape).copy(), mine.kind)
    short = SHORT.get(mine.kind)
    if short is not None and len(data) == np.dtype(short).itemsize:
        return Leaf(np.frombuffer(data, short).reshape(()).copy())
    long = {"i": np.int64, "f": np.float64}.get(kind.kind)
    if long is not None and mine.kind not in NUMBERS and not mine.bits.shape and len(data) == 8:
        return Leaf(np.frombuffer(data, long).reshape(()).astype(kind), mine.kind)
    raise ValueError(f"{path} has {len(data)} bytes of {name}, which is {mine} here: {REFUSED}")
