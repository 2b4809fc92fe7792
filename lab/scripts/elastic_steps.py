"""The training in our loop, until its reader is gone."""

from torch import optim

from elasticjob.trainer.torch import Elastic
from lab.scripts.told import Steps
from lab.scripts.work import BATCH, chosen

work = chosen()
steps = Steps()
elastic = Elastic(work.model, optim.AdamW(work.model.parameters()))
data = elastic.loader(work.records, global_batch=2 * BATCH)
for step in elastic.steps(data, epochs=1_000_000):
    with step:
        for inputs, labels in step:
            step.backward(work.loss(elastic.model(inputs), labels))
    if step.done:
        steps.done(step.number, elastic.rank, elastic.world_size, elastic.round)
