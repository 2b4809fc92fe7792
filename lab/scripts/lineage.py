"""An elastic script that writes which records each attempt of a step takes, before its gradients are reduced.

Lines go to a file of this process in the folder $LINEAGE, each as one write, so that no kill takes one along.
While there is a file `slowly` there, each step takes a while. At the end the parameters are written.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import TensorDataset

from elasticjob.trainer.torch import Elastic
from lab.scripts.shared import numbers

RECORDS, BATCH, CLASSES, WIDTH = 1000, 16, 3, 8


def records() -> tuple[Tensor, Tensor]:
    """Return inputs and labels."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(RECORDS, WIDTH, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, CLASSES, (RECORDS,), generator=generator)


def initial(shape: tuple[int, ...]) -> Tensor:
    """Return the initial value of a parameter."""
    return torch.linspace(-1, 1, int(torch.tensor(shape).prod()), dtype=torch.float64).view(shape)


def main(epochs: int, checkpoint: str) -> None:
    folder = Path(os.environ["LINEAGE"])
    file = (folder / f"{os.getpid()}-{time.time_ns()}.jsonl").open("ab", buffering=0)

    def write(**line: Any) -> None:
        file.write(json.dumps(line).encode() + b"\n")

    model = nn.Linear(WIDTH, CLASSES, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(initial(tuple(parameter.shape)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    elastic = Elastic(model, optimizer, checkpoint=checkpoint, save_every=200)
    x, y = records()
    data = elastic.loader(TensorDataset(x, y, torch.arange(RECORDS)), global_batch=BATCH)
    for step in elastic.steps(data, epochs=epochs):
        place = {"step": step.number, "epoch": step.epoch, "round": elastic.round}
        with step:
            for inputs, labels, indices in step:
                write(**place, rank=elastic.rank, world=elastic.world_size, records=indices.tolist())
                step.backward(F.cross_entropy(elastic.model(inputs), labels))
            if (folder / "slowly").exists():
                time.sleep(0.02)
        if step.done:
            write(done=step.number, round=place["round"])
    write(parameters=numbers(model))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
