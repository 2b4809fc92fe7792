"""Lives of a case: what each one loads is what the last one saved, bit for bit, or it is refused."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from multiprocessing import connection, get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from elasticjob.trainer.checkpoint.memory import FOLDER
from elasticjob.trainer.link.address import SLOT
from elasticjob.trainer.link.channel import FD, ROUND
from elasticjob.trainer.torch.checkpoint import Checkpoint
from lab.shardings.cases import Case, sizes
from lab.shardings.models import Training

EVERY: Final = 2
SECONDS: Final = 60.0
"""After which a life hangs; its collectives after a third of them."""


class Wrong(Exception):
    """A case that broke the law: in which way, and a sentence."""


class Life:
    """The processes of a case from one start to their end: the step that they load, and the last one."""

    def __init__(self, case: Case, number: int, root: Path) -> None:
        self.case, self.number, self.root, self.folder = case, number, root, root / f"life-{number}"
        self.layout = sizes(case.layouts[number])
        self.workers = range(math.prod(self.layout.values()))
        self.is_last = number == len(case.layouts) - 1
        self.begins = EVERY * (number + 1) if number else 0
        self.ends = EVERY * (number + (1 if self.is_last else 2)) + 1  # not saved

    def saves(self) -> set[Path]:
        """Return the files of all saves."""
        return {path for path in self.root.glob("saved-*/**/*") if path.is_file()}


def play(case: Case) -> tuple[str, str]:
    """Return what came of a case, "equal" or "refused" if it is right, and a sentence."""
    with TemporaryDirectory(prefix="shardings-") as name:
        lives = [Life(case, number, Path(name)) for number in range(len(case.layouts))]
        (Path(name) / "saved-memory").mkdir()
        try:
            for before, life in zip([None, *lives], lives, strict=False):
                if sentence := run(life):
                    return "refused", sentence
                if before:
                    judge(before, life)
        except Wrong as wrong:
            return wrong.args[0], f"life {life.number}: {wrong.args[1]}"
    return "equal", ""


def run(life: Life) -> str:
    """Fork the workers of a life, and wait for all; one that ends badly takes the others along.

    Returns the sentence with which they were refused, if they had to be.
    """
    life.folder.mkdir()
    saved, deadline = life.saves(), time.monotonic() + SECONDS
    workers = [get_context("fork").Process(target=live, args=(life, rank)) for rank in life.workers]
    for each in workers:
        each.start()
    while left := [each.sentinel for each in workers if each.exitcode is None]:
        if any(each.exitcode for each in workers) or not connection.wait(left, deadline - time.monotonic()):
            break
    for each in workers:
        each.kill()
        each.join()
    if told := [path.read_text() for path in life.folder.glob("refused-*")]:
        ways = {
            "unable": not life.case.is_refused(life.number),
            "late": not told[0].startswith("load"),
            "alone": len(told) < len(workers),
            "written": life.saves() != saved,
        }
        for way in (way for way, is_so in ways.items() if is_so):
            raise Wrong(way, told[0])
        return told[0]
    if not all((life.folder / f"{life.ends}-{rank}").exists() for rank in life.workers):
        logs = [path.read_text(errors="replace").strip() for path in life.folder.glob("log-*")]
        cause = max(logs, key=lambda log: ("Traceback" in log) + ("Error" in log) - ("gloo" in log))
        raise Wrong("hung" if time.monotonic() > deadline else "crashed", cause.rpartition("\n")[2])
    return ""


def live(life: Life, rank: int) -> None:
    """Be a worker."""
    log, stage = os.open(life.folder / f"log-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), ""
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        for stage in stages(life, rank):  # noqa: B007  # where it was refused
            pass
    except ValueError as error:
        (life.folder / f"refused-{rank}").write_text(f"{stage}: {error}")
    os._exit(0)


def stages(life: Life, rank: int) -> Iterator[str]:
    """Yield the name of what comes next: build, load, and each step."""
    words, world, (ours, _agents) = life.case.words, len(life.workers), socket.socketpair()
    agent: dict[str, object] = {FOLDER: life.root / "saved-memory", SLOT: rank, FD: ours.fileno()}
    agent = agent | {ROUND: life.number + 1} if "memory" in words else {}
    for name, value in {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, **agent}.items():
        os.environ[name] = str(value)
    torch.use_deterministic_algorithms(True)  # fills uninitialised memory with NaN, too
    yield "build"
    meeting = f"file://{life.folder / 'store'}"
    dist.init_process_group("gloo", meeting, timedelta(seconds=SECONDS / 3), world, rank)
    training = Training(life.layout, words, life.number)
    yield "load"
    where = "memory://" if "memory" in words else life.root / "saved-stored"
    checkpoint = Checkpoint(where, training.state, every=EVERY, save_every=EVERY)
    begun = checkpoint.load()
    torch.save(training.whole(), life.folder / f"{begun}-{rank}")
    for step in range(begun + 1, life.ends + 1):
        yield f"step {step}"
        training.step(step)
        checkpoint.save(step)
        torch.save(training.whole(), life.folder / f"{step}-{rank}")
    if "killed" in words and not life.is_last:
        dist.barrier()
        training.step(life.ends + 1, die=rank == len(words) % len(life.workers))


def judge(before: Life, life: Life) -> None:
    """Compare what was loaded with what was saved, and what was trained from there by the same layout."""
    first = min(int(path.name.partition("-")[0]) for path in life.folder.glob("[0-9]*-0"))
    if first != life.begins:
        raise Wrong("lost", f"it began with step {first}, and {life.begins} was saved")
    for step in range(first, (before.ends if before.layout == life.layout else first) + 1):
        wanted, found = whole(before, step), whole(life, step)
        for name in sorted(wanted.keys() | found.keys()):
            if name not in wanted or name not in found or not is_same(wanted[name], found[name]):
                what = "loaded" if step == first else "trained"
                raise Wrong("silent", f"{name} of step {step} is {what} wrongly")


def whole(life: Life, step: int) -> dict[str, Tensor]:
    """Return the state of all workers after a step, by name."""
    found: dict[str, Tensor] = {}
    for rank in life.workers:
        for name, each in torch.load(life.folder / f"{step}-{rank}", weights_only=True).items():
            if not is_same(found.setdefault(name, each), each):
                raise Wrong("replicas", f"rank {rank} has another {name} than a lower one after step {step}")
    return found


def is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal bit for bit."""
    alike = one.dtype == other.dtype and one.shape == other.shape
    return alike and torch.equal(*(each.reshape(-1).view(torch.uint8) for each in (one, other)))
