"""What a copy to the neighbour in each step costs: two nodes of one worker, 400 MB, steps of a second.

    python -m benchmarks.training.copies

In a step the worker computes for 0.3 s and sleeps for 0.7 s, as it would wait for a GPU. Turns with copies
and without follow each other in the same processes. A copy goes to shared memory, and to the other agent.
"""

from __future__ import annotations

import json
import time
from statistics import median
from typing import Annotated, Any

import psutil
import torch
import torch.distributed as dist
from torch import nn
from typer import Option

from benchmarks.commands import play
from benchmarks.figures import Sheet, number, show, spread
from benchmarks.training.nodes import played
from elasticjob.trainer.agent.checkpoints.copies import TAKING
from elasticjob.trainer.torch.checkpoint import Checkpoint

WIDTH, LAYERS = 2048, 8  # 33.6 million parameters: 403 MB with AdamW's state
STEPS, BUSY, ASLEEP = 10, 0.3, 0.7


def cpu_of_agent() -> float:
    """Return the CPU seconds of the agent above this worker, and of its process that takes copies."""
    agent = next(each for each in psutil.Process().parents() if "elasticjob.cli" in each.cmdline())
    takers = [each for each in agent.children() if TAKING in each.cmdline()]
    return sum(each.cpu_times().user + each.cpu_times().system for each in (agent, *takers))


def work() -> None:
    """Train as one of the two workers; rank 0 prints what its steps took, as JSON."""
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    model(torch.ones(1, WIDTH)).sum().backward()
    optimizer.step()
    state = {"model": model, "optimizer": optimizer}
    ways = {
        each: Checkpoint("memory://", state, every=1 if each == "copies" else 10**9, save_every=10**9)
        for each in ("none", "copies")
    }
    left = torch.randn(256, 256)
    rounds = calibrated(left)
    taken: dict[str, Any] = {each: [] for each in ways}
    held: list[float] = []
    cpu = dict.fromkeys(ways, 0.0)
    step = 0
    for way in ("none", "copies") * 4:
        before = cpu_of_agent()
        for _ in range(STEPS):
            step += 1
            dist.barrier()
            began = time.perf_counter()
            for _ in range(rounds):
                left @ left
            time.sleep(ASLEEP)
            asked = time.perf_counter()
            ways[way].save(step)
            if way == "copies":
                held.append(time.perf_counter() - asked)
            dist.barrier()
            taken[way].append(time.perf_counter() - began)
        time.sleep(1.0)
        cpu[way] += cpu_of_agent() - before
    if dist.get_rank() == 0:
        size = sum(each.numel() for each in model.parameters()) * 12
        print(json.dumps({"told": {"taken": taken, "held": held, "cpu": cpu, "bytes": size}}), flush=True)
    dist.destroy_process_group()


def calibrated(left: torch.Tensor) -> int:
    """Return how many products take BUSY seconds."""
    began = time.perf_counter()
    for _ in range(200):
        left @ left
    return int(200 * BUSY / (time.perf_counter() - began))


def main(worker: Annotated[bool, Option("--worker", hidden=True)] = False) -> None:
    """Run both nodes, and print the table."""
    if worker:
        work()
        return
    found = played(2, "benchmarks.training.copies", patience=600.0)
    none, copies = found["taken"]["none"], found["taken"]["copies"]
    copied = found["bytes"] / 2 * len(copies) / 1e9
    rows = [
        ["a step without copies, s", spread(none)],
        ["a step with copies, s", spread(copies)],
        ["of which the worker copies, s", spread(found["held"])],
        ["more", f"{median(copies) / median(none) - 1:.1%}"],
        ["CPU seconds of the agent per GB", number((found["cpu"]["copies"] - found["cpu"]["none"]) / copied)],
    ]
    show(Sheet(("two nodes, " + f"{found['bytes'] / 1e6:.0f} MB", "median (least–most)"), rows))


if __name__ == "__main__":
    play(main)
