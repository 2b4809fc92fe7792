"""An elastic script with all that a real one has: readers, evaluation, moving average, schedules, clipping.

In a step, or in the evaluation after an epoch, the worker of a node stands still until it is killed, if there
is a file `step-NUMBER-NODE` or `epoch-NUMBER-NODE` in the folder $COUNTED; the file is gone then. At the end
it prints what the training came to.
"""

import os
import sys
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import Dataset

from elasticjob.trainer.torch import Elastic, PerEpoch
from lab.jobs.training.device import DEVICE
from lab.scripts.shared import numbers, start
from lab.scripts.told import say, stand

NODE = os.environ["ELASTICJOB_NODE"]


class Noisy(Dataset[dict[str, Tensor]]):
    """Records with random noise, drawn anew each time they are read."""

    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(size, 8, generator=generator, dtype=torch.float64)
        self.y = self.x.sum(dim=1).sign().long().clamp(min=0)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": self.x[index] + 0.1 * torch.randn(8, dtype=torch.float64), "y": self.y[index]}


def main(epochs: int) -> None:
    torch.manual_seed(os.getpid())  # only the oldest worker's weights may count: rank 0 sets them below
    model = nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.2), nn.Tanh(), nn.Linear(6, 2)).double().to(DEVICE)
    start(model)
    body = torch.optim.AdamW(model[0].parameters(), lr=1e-2)
    head = torch.optim.SGD(model[3].parameters(), lr=1e-1, momentum=0.9)
    schedulers: list[LRScheduler | PerEpoch] = [
        LambdaLR(body, lambda step: 0.99**step),
        PerEpoch(ReduceLROnPlateau(head, mode="max", factor=0.5, patience=0), "accuracy"),
    ]
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))  # type: ignore[no-untyped-call]
    notes: dict[str, Any] = {"accuracies": []}
    elastic = Elastic(model, [body, head], scheduler=schedulers, keep={"ema": ema, "notes": notes})
    readers = int(os.environ.get("READERS", "0"))
    data = elastic.loader(Noisy(50), global_batch=8, workers=readers)
    test = elastic.loader(Noisy(40), global_batch=8, shuffle=False)

    def score(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        guess = elastic.model(batch["x"]).argmax(dim=1)
        stand(f"epoch-{elastic.epoch - 1}", NODE)
        return {"accuracy": (guess == batch["y"]).double().mean()}

    elastic.evaluate(test, score)
    for step in elastic.steps(data, epochs=epochs):
        with step:
            for batch in step:
                step.backward(F.cross_entropy(elastic.model(batch["x"]), batch["y"]))
            stand(f"step-{step.number}", NODE)
            step.clip_grad_norm_(0.5)
        if not step.done:
            continue
        ema.update_parameters(model)
        if step.ends_epoch:
            accuracy = elastic.evaluate(test, score)["accuracy"]
            notes["accuracies"].append(accuracy)
    scores = elastic.evaluate(test, score)
    result = {
        "parameters": numbers(model),
        "ema": numbers(ema.module),
        "rates": [body.param_groups[0]["lr"], head.param_groups[0]["lr"]],
        "accuracies": [*notes["accuracies"], scores["accuracy"]],
    }
    say(rank=elastic.rank, result=result)


if __name__ == "__main__":
    main(int(sys.argv[1]))
