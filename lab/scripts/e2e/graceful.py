"""The textbook's plain script: SIGTERM sets a flag, all agree on it in each step, save together, and end.

graceful.py FOLDER [--save SECONDS]

It goes on from the step of the last whole save. Each process writes what happens to it as JSON lines to
FOLDER/<pod>-<start>.jsonl, during a save every half a second.
"""

import argparse
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=Path)
parser.add_argument("--save", type=float, default=28.0, help="seconds that a save takes")
args = parser.parse_args()
pod = os.environ.get("POD_NAME", "alone")
diary, last = args.folder / f"{pod}-{time.time_ns()}.jsonl", args.folder / "step"
asked: list[signal.Signals] = []


def note(what: str, **more: Any) -> None:
    with diary.open("a") as file:
        print(json.dumps({"what": what, "at": time.time(), **more}), file=file)


def ask(number: int, _: object) -> None:
    asked.append(signal.Signals(number))
    note("asked", signal=asked[-1].name)


def leaves() -> bool:
    """Whether any rank was asked to; the same on all."""
    flag = torch.tensor([float(bool(asked))])
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    return bool(flag)


def save(step: int) -> None:
    """All ranks write for as long as is wished, and the main one says that the save is whole."""
    began = time.monotonic()
    while (spent := time.monotonic() - began) < args.save:
        note("saving", seconds=spent)
        time.sleep(min(0.5, args.save - spent))
    dist.barrier()
    if dist.get_rank() == 0:
        last.write_text(str(step))
    note("saved", seconds=time.monotonic() - began, step=step)


signal.signal(signal.SIGTERM, ask)
dist.init_process_group("gloo")
step = int(last.read_text()) if last.exists() else 0
note("begun", step=step, rank=dist.get_rank(), world=dist.get_world_size())
while True:
    for _batch in DataLoader(TensorDataset(torch.ones(50, 1)), num_workers=1):
        if leaves():
            save(step)
            dist.destroy_process_group()
            raise SystemExit(0)
        step += 1
        note("step", step=step)
        time.sleep(0.2)
