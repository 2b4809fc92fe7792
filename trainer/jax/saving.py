"""Checkpoints of a state, a file each: `step-<number>.npz`, written beside and renamed; two are kept."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

from elasticjob.trainer.jax.state import as_it_was, bits_of, done_of, is_key, numbers_of
from elasticjob.trainer.records.done import Done

KEEP: Final = 2
NAME: Final = re.compile(r"step-(\d+)\.npz")


class Checkpoints:
    """The checkpoints in a folder that all workers reach."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def save(self, host: Any, done: Done) -> None:
        """Write a checkpoint, and delete old ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        leaves = (*jax.tree.leaves(host, is_leaf=is_key), *numbers_of(done))
        beside = self.folder / f".step-{done.step}-{os.getpid()}"
        with open(beside, "wb") as file:
            np.savez(file, *(raw(bits_of(each)) for each in leaves))
            file.flush()
            os.fsync(file.fileno())
        beside.rename(self.folder / f"step-{done.step}.npz")
        for path in self._found()[KEEP:]:
            path.unlink(missing_ok=True)

    def newest(self, host: Any) -> tuple[Any, Done] | None:
        """Return the state and progress of the newest checkpoint; ValueError if it is of another state."""
        found = self._found()
        if not found:
            return None
        leaves, form = jax.tree.flatten(host, is_leaf=is_key)
        with np.load(found[0], allow_pickle=False) as file:
            arrays = [file[f"arr_{number}"] for number in range(len(file.files))]
        likes = (*leaves, *numbers_of(Done()))
        if [each.nbytes for each in arrays] != [bits_of(each).nbytes for each in likes]:
            raise ValueError(
                f"{found[0]} holds {len(arrays) - 2} arrays of other sizes than the {len(leaves)} of the "
                "state: train the same model, or give another checkpoint folder"
            )
        pairs = zip(arrays, likes, strict=True)
        taken = [as_it_was(shaped(each, bits_of(like)), like) for each, like in pairs]
        return jax.tree.unflatten(form, taken[:-2]), done_of(taken[-2:])

    def _found(self) -> list[Path]:
        """Return the files, the newest first."""
        numbered = {path: NAME.fullmatch(path.name) for path in self.folder.glob("step-*.npz")}
        steps = {path: int(match[1]) for path, match in numbered.items() if match}
        return sorted(steps, key=lambda path: -steps[path])


def raw(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array as bytes: files of numpy do not know bfloat16."""
    return np.frombuffer(np.ascontiguousarray(bits).tobytes(), np.uint8)


def shaped(raw_bits: np.ndarray[Any, Any], like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return bytes as an array like `like`."""
    return np.frombuffer(raw_bits.tobytes(), like.dtype).reshape(like.shape).copy()
