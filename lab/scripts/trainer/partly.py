"""A model that is divided in part, with a buffer and a parameter that is never used; batches have weights."""

import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

from elasticjob.trainer.torch import Elastic, node_mesh
from lab.jobs.training.device import DEVICE
from lab.scripts.shared import numbers
from lab.scripts.told import say


class Partly(nn.Module):
    """Two layers, of which the first is divided."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 5), nn.Linear(5, 3)
        self.unused = nn.Parameter(torch.ones(2))
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.mean(dim=0).detach()
        hidden: Tensor = self.second(self.first(x).tanh())
        return hidden


def main(epochs: int) -> None:
    torch.manual_seed(1)
    model = Partly().to(DEVICE)
    table, labels = torch.randn(53, 8), torch.randint(0, 3, (53,))
    fully_shard(model.first, mesh=node_mesh())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    elastic = Elastic(model, optimizer)
    data = elastic.loader(TensorDataset(table, labels), global_batch=8)
    norms = []
    for step in elastic.steps(data, epochs=epochs):
        with step:
            for x, y in step:
                step.backward(F.cross_entropy(elastic.model(x), y), weight=float(len(x)))
            norms.append(float(step.clip_grad_norm_(0.5)))
    say(parameters=numbers(model), seen=model.seen.tolist(), norms=norms)


if __name__ == "__main__":
    main(int(sys.argv[1]))
