"""A model that fully_shard divides over the workers of a node, whose workers can stall.

The file `lock-PLACE-RANK` blocks that rank for ever, `busy-PLACE-RANK` while it is there, in its `forward` or
`backward` pass or `between` two steps, where all then meet in a collective of the script's own. The training
ends when there is a file `end`.
"""

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

from elasticjob.trainer.torch import Elastic, node_mesh
from lab.scripts.told import say

FOLDER = Path(sys.argv[1])
RANK = int(os.environ["LOCAL_RANK"])


def stall(place: str) -> None:
    """Be stuck, or busy, if there is such a file for this rank."""
    if (FOLDER / f"lock-{place}-{RANK}").exists():
        threading.Event().wait()
    while (FOLDER / f"busy-{place}-{RANK}").exists():
        time.monotonic()


class Stalls(nn.Module):
    """Passes its input on, and stalls."""

    def forward(self, given: Tensor) -> Tensor:
        stall("forward")
        if given.requires_grad:
            given.register_hook(lambda _: stall("backward"))  # type: ignore[no-untyped-call]  # so in torch
        return given


class Divided(nn.Sequential):
    """Two layers, between which a worker may stall."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 16), nn.ReLU(), Stalls(), nn.Linear(16, 8))


torch.manual_seed(0)
records = torch.randn(64, 8)
model, mesh = Divided(), node_mesh()
fully_shard(model[3], mesh=mesh)
fully_shard(model, mesh=mesh)
elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.01, foreach=False))
data = elastic.loader(TensorDataset(records, records), global_batch=16, shuffle=False)
for step in elastic.steps(data, epochs=10_000):
    with step:
        for given, wanted in step:
            step.backward(mse_loss(elastic.model(given), wanted))
    say(rank=RANK, step=step.number)
    stall("between")
    last = torch.tensor(float((FOLDER / "end").exists()))
    dist.all_reduce(last, dist.ReduceOp.MAX)
    time.sleep(0.02)
    if last:
        break
