"""How long a save holds a training step up, on a GPU, with torch's own ways beside ours.

python -m benchmarks.training.saves --gigabytes 2

The state is that of AdamW and its parameters. Each way saves it several times; the first time is shown apart,
for memory is taken then. What is written beside the training has ended before the next save.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]  # documented there
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.state_dict_saver import async_save
from typer import Option

from benchmarks.commands import play
from benchmarks.figures import Sheet, show, spread
from elasticjob.trainer.checkpoint import memory
from elasticjob.trainer.checkpoint.flash import MEMORY, Flash
from elasticjob.trainer.checkpoint.part import Save
from elasticjob.trainer.torch.saving.tensors import Tensors

ROWS: Final = 4096
SAVES: Final = 6
STEPS: Final = 3.0  # seconds of training before the first save
LAYER: Final = ROWS * 1024 * 4 * 3
"""Bytes of a layer's weight with its two moments."""


@contextmanager
def training(gigabytes: float) -> Iterator[dict[str, Any]]:
    """Lend the state of a training of that size."""
    layers = max(1, round(gigabytes * 1e9 / LAYER))
    model = nn.ModuleList(nn.Linear(1024, ROWS, device="cuda") for _ in range(layers))
    optimizer = torch.optim.AdamW(model.parameters())
    for each in model.parameters():
        each.grad = torch.randn_like(each)
    optimizer.step()
    optimizer.zero_grad()
    dist.init_process_group("cpu:gloo,cuda:nccl", store=HashStore(), rank=0, world_size=1)
    try:
        yield {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict()}
    finally:
        dist.destroy_process_group()


def ours(folder: Path, expected: dict[str, Any]) -> Callable[[dict[str, Any], int], None]:
    """Our copy to shared memory, which the agent then writes."""
    flash = Flash(MEMORY, Tensors(), keep=1, environment={memory.FOLDER: str(folder)}, say=lambda _: None)
    flash.expect(lambda: expected, 0)
    time.sleep(STEPS)

    def save(state: dict[str, Any], number: int) -> None:
        flash.save(state, Save(number, 1), 0, persist=False, exchange=lambda data: [data])

    return save


def whole(folder: Path) -> Callable[[dict[str, Any], int], None]:
    """torch.save to a file in memory."""
    return lambda state, number: torch.save(state, folder / str(number % 2))


def aside(folder: Path, *, keeps: bool) -> Callable[[dict[str, Any], int], Future[Any]]:
    """torch's async_save to files in memory; `keeps`: by way of pinned memory that it uses again."""
    stager = BlockingAsyncStager(cache_staged_state_dict=True) if keeps else None

    def save(state: dict[str, Any], number: int) -> Future[Any]:
        written = async_save(state, checkpoint_id=folder / str(number % 2), async_stager=stager)
        assert isinstance(written, Future)
        return written

    return save


def held_up(save: Callable[[dict[str, Any], int], Future[Any] | None], state: dict[str, Any]) -> list[float]:
    """Return how long each save takes until the next step could begin, in seconds."""
    taken = []
    for number in range(SAVES):
        torch.cuda.synchronize()
        began = time.perf_counter()
        written = save(state, number)
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
        if written is not None:
            written.result()
    return taken


def floor(state: dict[str, Any]) -> list[float]:
    """Return how long one copy of as many bytes to pinned memory takes, in seconds."""
    size = sum(each.nbytes for each in state["model"].values()) * 3
    there, here = torch.empty(size, dtype=torch.uint8, device="cuda"), torch.empty(size, dtype=torch.uint8)
    here = here.pin_memory()

    def save(*_: Any) -> None:
        here.copy_(there, non_blocking=True)

    return held_up(save, state)


def main(gigabytes: Annotated[float, Option(min=0.1, help="size of the state")] = 2.0) -> None:
    """Measure and show all ways."""
    if not torch.cuda.is_available():
        sys.exit("benchmarks.training.saves needs a GPU: torch.cuda.is_available() is False here")
    with training(gigabytes) as state, tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        ways: dict[str, Callable[[Path], list[float]]] = {
            "a copy to pinned memory, no more": lambda _: floor(state),
            "Checkpoint": lambda folder: held_up(ours(folder, state), state),
            "torch.save": lambda folder: held_up(whole(folder), state),
            "async_save": lambda folder: held_up(aside(folder, keeps=False), state),
            "async_save, pinned memory": lambda folder: held_up(aside(folder, keeps=True), state),
        }
        rows = []
        for number, (name, measure) in enumerate(ways.items()):
            folder = Path(home, str(number))
            folder.mkdir()
            first, *others = measure(folder)
            rows.append([name, spread([1000 * each for each in others]), spread([1000 * first])])
    device = torch.cuda.get_device_name()
    notes = [f"{gigabytes} GB on {device}, torch {torch.__version__}"]
    show(Sheet(("a step waits for a save, ms", f"{SAVES - 1} saves", "the first"), rows, notes))


if __name__ == "__main__":
    play(main)
