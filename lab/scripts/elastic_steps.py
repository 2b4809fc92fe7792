"""The training in our loop, until its reader is gone."""

from elasticjob.trainer.torch import Elastic
from lab.scripts.work import BATCH, Training

training = Training()
elastic = Elastic(training.model, training.optimizer)
data = elastic.loader(training.records, global_batch=2 * BATCH)
for step in elastic.steps(data, epochs=1_000_000):
    with step:
        for inputs, labels in step:
            step.backward(training.work.loss(elastic.model(inputs), labels))
    if step.done:
        training.told.done(step.number, elastic.rank, elastic.world_size, elastic.round)
