"""Lives of a case: what each one loads is what the last one saved, bit for bit, or it is refused."""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from multiprocessing import connection, get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist

from elasticjob.trainer.checkpoint.memory import FOLDER
from elasticjob.trainer.link.address import SLOT
from elasticjob.trainer.link.channel import FD, ROUND
from elasticjob.trainer.torch.checkpoint import Checkpoint
from lab.shardings.cases import Case, sizes
from lab.shardings.models import Training

ENDS = (signal.SIGTERM, signal.SIGINT)
EVERY, SECONDS = 2, 120.0  # steps between saves; after which a life hangs


class Life:
    """The processes of a case from one start to their end: the step that they load, and the last one."""

    def __init__(self, case: Case, number: int, root: Path) -> None:
        self.case, self.number, self.root, self.folder = case, number, root, root / f"life-{number}"
        self.layout = sizes(case.layouts[number])
        self.workers = range(math.prod(self.layout.values()))
        self.is_last = number == len(case.layouts) - 1
        self.begins = EVERY * (number + 1) if number else 0
        self.ends = EVERY * (number + (1 if self.is_last else 2)) + 1  # not saved


def play(case: Case) -> tuple[str, str]:
    """Return what came of a case, "equal" or "refused" if the law holds, and a sentence."""
    with TemporaryDirectory(prefix="shardings-") as name:
        lives = [Life(case, number, Path(name)) for number in range(len(case.layouts))]
        (Path(name) / "saved-memory").mkdir()
        try:
            for before, life in zip([None, *lives], lives, strict=False):
                if sentence := run(life):
                    return "refused", sentence
                if before:
                    judge(before, life)
        except AssertionError as wrong:
            return wrong.args[0], f"life {life.number}: {wrong.args[1]}"
    return "equal", ""


def run(life: Life) -> str:
    """Fork workers, and wait for all, or for one that ends badly; return why they were rightly refused."""
    life.folder.mkdir()
    saved, deadline = {*life.root.glob("saved-*/**/*")}, time.time() + SECONDS
    workers = [get_context("fork").Process(target=live, args=(life, rank)) for rank in life.workers]
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # a fork may swallow what is raised
    for each in workers:
        each.start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    try:
        while left := [each.sentinel for each in workers if each.exitcode is None]:
            if any(each.exitcode for each in workers) or not connection.wait(left, deadline - time.time()):
                break
    finally:
        for each in workers:
            each.kill()
            each.join()
    if told := [path.read_text() for path in life.folder.glob("refused-*")]:
        ways = {
            "unable": not life.case.is_refused(life.number),
            "late": not told[0].startswith("load"),
            "alone": len(told) < len(workers),
            "written": {*life.root.glob("saved-*/**/*")} != saved,
        }
        for way in (way for way, is_so in ways.items() if is_so):
            raise AssertionError(way, told[0])
        return told[0]
    if not all((life.folder / f"{life.ends}-{rank}").exists() for rank in life.workers):
        logs = [path.read_text(errors="replace").strip() for path in life.folder.glob("log-*")]
        cause = max(logs, key=lambda log: ("Error" in log) - ("gloo" in log)).rpartition("\n")[2]
        raise AssertionError("hung" if time.time() > deadline else "crashed", cause)
    return ""


def live(life: Life, rank: int) -> None:
    """Be a worker: write down all state after each step, and why it was refused; end before the last save."""
    training, stage = join(life, rank), "load"
    where = "memory://" if "memory" in life.case.words else life.root / "saved-stored"
    try:
        for step in Checkpoint(where, training.state, every=EVERY, save_every=EVERY).steps(life.ends + EVERY):
            if stage == "load":
                torch.save(training.whole(), life.folder / f"{step - 1}-{rank}")
            stage = f"step {step}"
            training.step(step)
            torch.save(training.whole(), life.folder / f"{step}-{rank}")
            if step == life.ends and "killed" in life.case.words and not life.is_last:
                dist.barrier()
                training.step(step + 1, die=rank == len(life.case.words) % len(life.workers))
            if step == life.ends:
                os._exit(0)  # a loop that is left would be saved
    except ValueError as error:
        (life.folder / f"refused-{rank}").write_text(f"{stage}: {error}")


def join(life: Life, rank: int) -> Training:
    """Set up what torchrun or an agent and a script do; return the training."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    log = os.open(life.folder / f"log-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    world, (ours, _) = len(life.workers), (each.detach() for each in socket.socketpair())
    agent = {FOLDER: life.root / "saved-memory", SLOT: rank, FD: ours, ROUND: life.number + 1}
    given = {"RANK": rank, "WORLD_SIZE": world, **(agent if "memory" in life.case.words else {})}
    os.environ |= {name: str(value) for name, value in given.items()}
    torch.use_deterministic_algorithms(True)  # fills uninitialised memory with NaN, too
    dist.init_process_group("gloo", f"file://{life.folder}/store", None, world, rank)
    return Training(life.layout, life.case.words, life.number)


def judge(before: Life, life: Life) -> None:
    """Compare what was loaded with what was saved, and what was trained from there by the same layout."""
    first = min(int(path.name.partition("-")[0]) for path in life.folder.glob("[0-9]*-0"))
    if first != life.begins:
        raise AssertionError("lost", f"it began with step {first}, and {life.begins} was saved")
    whole(life, life.ends)  # copies are equal
    for step in range(first, (before.ends if before.layout == life.layout else first) + 1):
        wanted, found = whole(before, step), whole(life, step)
        for name in (name for name in sorted({*wanted, *found}) if wanted.get(name) != found.get(name)):
            way = "trained" if step > first else "loaded"
            raise AssertionError("silent", f"{name} of step {step} is {way} wrongly")


def whole(life: Life, step: int) -> dict[str, object]:
    """Return the bits of all tensors of all workers after a step, by name."""
    found: dict[str, object] = {}
    for rank in life.workers:
        for name, each in torch.load(life.folder / f"{step}-{rank}", weights_only=True).items():
            bits = each.dtype, each.shape, bytes(each.reshape(-1).view(torch.uint8).numpy())
            if found.setdefault(name, bits) != bits:
                raise AssertionError("replicas", f"after step {step} rank {rank} has another {name}")
    return found
