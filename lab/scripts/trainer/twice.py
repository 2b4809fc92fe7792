"""Trains a phase, and then another with a second Elastic, of the framework that is named: torch or jax."""

import sys
from typing import Any


def with_torch() -> None:
    """Train 4 steps."""
    import torch
    from torch.utils.data import TensorDataset

    from elasticjob.trainer.torch import Elastic

    model = torch.nn.Linear(2, 1)
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data: Any = elastic.loader(TensorDataset(torch.ones(16, 2)), global_batch=4)
    for step in elastic.steps(data):
        with step:
            for (inputs,) in step:
                step.backward(elastic.model(inputs).mean())


def with_jax() -> None:
    """Train 4 steps."""
    from elasticjob.trainer.jax import Dataset, Elastic

    elastic = Elastic({"steps": 0}, Dataset(name="twice", size=16), batch=4)
    for step in elastic.steps():
        with step:
            for _ in step:
                step.add(1.0)
            step.mean()


train = {"torch": with_torch, "jax": with_jax}[sys.argv[1]]
train()
print("the first phase has ended", flush=True)
train()
