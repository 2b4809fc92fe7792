"""An elastic script that prints each counted step with the time, until its reader is gone."""

import json
import os
import time

import torch.nn.functional as F
from torch import optim

from benchmarks.scripts.net import dataset, net
from elasticjob.trainer.torch import Elastic

model = net()
elastic = Elastic(model, optim.AdamW(model.parameters()))
data = elastic.loader(dataset(), global_batch=32)
for step in elastic.steps(data, epochs=1_000_000):
    with step:
        for images, labels in step:
            step.backward(F.cross_entropy(elastic.model(images), labels))
    if step.done:
        record = {"at": time.time(), "step": step.number, "rank": elastic.rank, "world": elastic.world_size}
        print(json.dumps({**record, "life": elastic.round, "pid": os.getpid()}) + "\n", end="", flush=True)
