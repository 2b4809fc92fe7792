"""The training of the stories in cluster mode."""

from typing import Final

TRAINS: Final = """
import time, torch
from elasticjob.trainer.torch import Elastic
model = torch.nn.Linear(1, 1)
elastic = Elastic(model, torch.optim.SGD(model.parameters(), 0.0))
data = elastic.loader(torch.utils.data.TensorDataset(torch.ones(1440, 1)), global_batch=12)
for step in elastic.steps(data):
    with step:
        for (batch,) in step:
            step.backward(elastic.model(batch).mean())
        time.sleep(0.3 / elastic.world_size)
"""
"""120 steps, twice as fast with two workers as with one."""
