"""The random numbers of a worker as part of a checkpoint, so that dropout goes on as if nothing had happened:

    checkpoint = Checkpoint("/mnt/run", {"model": model, "optimizer": optimizer, "random": RandomState()})

Each worker has numbers of its own: a copy holds those of all, and each takes its own again.
"""

from __future__ import annotations

import io
import logging
import random
import sys
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist

log = logging.getLogger("elasticjob")


LAYOUT: Final = "layout"


class RandomState:
    """The state of the generators of Python, NumPy (if it is imported), torch and CUDA, of every worker.

    `mine` is what was loaded for this worker: None if there was nothing, or nothing for a worker of its rank
    in its `layout`: workers that share a layer need the same numbers, and in another layout others share it.
    """

    def __init__(self) -> None:
        self.mine: dict[str, Any] | None = None
        self.layout = ""
        self._workers: dict[int, dict[str, Any]] = {}

    def gather(self, exchange: Callable[[bytes], list[bytes]]) -> None:
        """Take the state of every worker for the next `state_dict`; all workers call it at once."""
        self._workers = {
            rank: torch.load(io.BytesIO(each), weights_only=True)
            for rank, each in enumerate(exchange(encode({**drawn(), LAYOUT: self.layout})))
        }

    def state_dict(self) -> dict[str, Any]:
        """Return what was gathered since the last call, by rank; else the state of this worker alone."""
        gathered, self._workers = self._workers, {}
        rank, world = place()
        return {"world": world, "workers": gathered or {rank: {**drawn(), LAYOUT: self.layout}}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the numbers of this worker. A worker that has none keeps its own."""
        rank, world = place()
        mine = state["workers"].get(rank)
        if mine is not None and mine.get(LAYOUT, self.layout) != self.layout:
            mine = None
            if rank == 0:
                log.warning("the checkpoint is of another layout: the random numbers of the script go on")
        elif rank == 0 and (state["world"] != world or len(state["workers"]) < world):
            log.warning(
                "the checkpoint has random numbers of %d of %d workers, and there are %d now: what they draw "
                "(dropout, augmentation) is not what it would have been",
                len(state["workers"]),
                state["world"],
                world,
            )
        self.mine = mine
        self.restore()

    def restore(self) -> None:
        """Go on with the numbers that were loaded once more: something has drawn in between."""
        if self.mine is not None:
            restore(self.mine)


def place() -> tuple[int, int]:
    """Return the rank of this worker, and how many there are."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def encode(state: dict[str, Any]) -> bytes:
    """Return a state as bytes for `torch.load`."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def drawn() -> dict[str, Any]:
    """Return the state of this process's generators as tensors, numbers and lists."""
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": {"version": version, "internal": torch.tensor(internal), "gauss": gauss},
        "torch": torch.get_rng_state(),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        legacy = numpy.random.get_state(legacy=False)
        if legacy["bit_generator"] == "MT19937":  # a script may have set another for all
            key = torch.from_numpy(legacy["state"]["key"].astype("int64"))
            more = {name: legacy[name] for name in ("has_gauss", "gauss")}
            state["numpy"] = {"key": key, "pos": int(legacy["state"]["pos"]), **more}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore(state: dict[str, Any]) -> None:
    """Let this process's generators go on from what `drawn` returned."""
    random.setstate(python_state(state))
    torch.set_rng_state(state["torch"])
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in state:
        numpy.random.set_state(numpy_state(state))
    for device, each in enumerate(state.get("cuda", ())[: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(each, device)


def python_state(state: dict[str, Any]) -> tuple[Any, ...]:
    """Return what `random.setstate` takes."""
    mine = state["python"]
    return mine["version"], tuple(mine["internal"].tolist()), mine["gauss"]


def numpy_state(state: dict[str, Any]) -> tuple[Any, ...]:
    """Return what `numpy.random.set_state` takes."""
    mine = state["numpy"]
    key = mine["key"].numpy().astype("uint32")
    return "MT19937", key, mine["pos"], mine["has_gauss"], mine["gauss"]
