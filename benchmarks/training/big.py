"""A large state saved by two nodes and loaded again by two, then by one: seconds, bytes and memory.

    python -m benchmarks.training.big --gigabytes 3 --where /mnt/run

The state is that of AdamW and its parameters, divided by fully_shard. `--where` is a folder or a URL that
fsspec knows.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from typing import Annotated, Any

import torch
import torch.distributed as dist
from torch import nn
from typer import Option

from benchmarks.commands import play
from benchmarks.figures import Sheet, number, peak, show
from benchmarks.training.nodes import played
from elasticjob.trainer.torch.checkpoint import Checkpoint
from elasticjob.trainer.torch.saving.tree import local

WIDTH = 4096
LAYER = WIDTH * WIDTH * 12  # bytes of a layer and its two moments


def work(layers: int, where: str) -> None:
    """Load if there is something, else train a step and save; rank 0 prints what it took, as JSON."""
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    for each in model:
        fully_shard(each)
    model.to_empty(device="cpu")
    for layer, parameter in enumerate(model.parameters()):
        torch.manual_seed(layer)
        local(parameter.detach()).normal_(std=WIDTH**-0.5)  # else the sums overflow in many layers
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    checkpoint = Checkpoint(where, {"model": model, "optimizer": optimizer}, every=1, save_every=1)
    before, began = peak(), time.perf_counter()
    step = checkpoint.load()
    told: dict[str, Any] = {"loaded": step, "seconds": time.perf_counter() - began, "memory": peak() - before}
    if not step:
        model(torch.ones(1, WIDTH)).sum().backward()
        optimizer.step()
        began = time.perf_counter()
        checkpoint.save(1, last=True)
        told["held up"] = time.perf_counter() - began
    parameters = [local(each.detach()) for each in model.parameters()]
    state = [*parameters, *(local(each["exp_avg_sq"]) for each in optimizer.state.values())]
    total = torch.stack([each.double().sum() for each in state]).sum()
    dist.all_reduce(total)
    told["need"] = sum(each.nbytes for each in parameters) * 3
    if dist.get_rank() == 0:
        print(json.dumps({"told": {**told, "sum": float(total)}}), flush=True)
    dist.destroy_process_group()


def run(nodes: int, layers: int, where: str) -> dict[str, Any]:
    """Run so many nodes of one worker; return what rank 0 has told, and the seconds of all."""
    began = time.perf_counter()
    told = played(nodes, "benchmarks.training.big", "--layers", str(layers), "--where", where)
    return {**told, "all": time.perf_counter() - began}


def main(
    gigabytes: Annotated[float, Option(min=0.2, help="The size of the state.")] = 3.0,
    where: Annotated[str, Option(help="A new folder or URL. Default: a temporary folder.")] = "",
    layers: Annotated[int, Option(min=0, hidden=True)] = 0,
    worker: Annotated[bool, Option("--worker", hidden=True)] = False,
) -> None:
    """Save and load, and print the table."""
    if worker:
        work(layers, where)
        return
    temporary = None if where else tempfile.mkdtemp(prefix="big-")
    layers = max(1, round(gigabytes * 1e9 / LAYER))
    found = [(f"{nodes} nodes", run(nodes, layers, where or str(temporary))) for nodes in (2, 2, 1)]
    if temporary:
        shutil.rmtree(temporary)
    rows = [
        [
            name if told["loaded"] else f"{name} save",
            number(told["held up"] if not told["loaded"] else told["seconds"]),
            number(told["all"]),
            f"{told['memory'] / told['need']:.2f}" if told["loaded"] else "–",
            str(abs(told["sum"] - found[0][1]["sum"]) <= 1e-9 * abs(told["sum"])),
        ]
        for name, told in found
    ]
    columns = (
        f"{layers * LAYER / 1e9:.1f} GB",
        "held up or loaded, s",
        "all, s",
        "memory of a need",
        "equal",
    )
    show(Sheet(columns, rows))


if __name__ == "__main__":
    play(main)
