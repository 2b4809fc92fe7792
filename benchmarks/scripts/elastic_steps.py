"""An elastic script that prints each counted step with the time, until its reader is gone."""

import json
import os
import time

import torch.nn.functional as F
from torch import Tensor, optim

from benchmarks.scripts.net import dataset, net
from elasticjob.trainer.torch import Elastic

model = net()
elastic = Elastic(model, optim.AdamW(model.parameters()), dataset=dataset(), micro_batch=16)


def loss_of(images: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss of a micro-batch."""
    return F.cross_entropy(elastic.model(images), labels)


for step in elastic.steps(epochs=1_000_000):
    elastic.step(loss_of)
    record = {"at": time.time(), "step": step, "rank": elastic.rank, "world": elastic.world_size}
    print(json.dumps({**record, "life": elastic.round, "pid": os.getpid()}) + "\n", end="", flush=True)
