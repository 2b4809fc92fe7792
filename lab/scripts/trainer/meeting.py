"""An elastic script that takes means and gathers values; one JSON line says what each came to.

meeting.py STEPS [alone|kinds|own]

At a place `early`, `mean-STEP` or `gather-STEP` the worker of that rank stands still until it is killed, if
there is a file `PLACE-RANK` in the folder $COUNTED. With `alone` rank 0 alone takes a mean after step 3, with
`kinds` rank 0 takes a mean where the others gather, with `own` all call torch's all_reduce.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

from elasticjob.trainer.torch import Elastic
from lab.scripts.told import say, stand


def main(steps: int, wrong: str) -> None:
    model = nn.Linear(1, 1)
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), 0.1))
    data = elastic.loader([torch.ones(1)] * 12, global_batch=6)
    early = [elastic.gather((elastic.rank, torch.ones(elastic.rank))), elastic.mean({"rank": elastic.rank})]
    stand("early", elastic.rank)
    early.append(elastic.gather("again"))
    say(early=str(early))
    for step in elastic.steps(data, steps=steps):
        with step:
            for batch in step:
                step.backward(elastic.model(batch).mean())
        if not step.done:
            continue
        stand(f"mean-{step.number}", elastic.rank)
        given = {"one": True, "step": torch.tensor([step.number] * 2), "ranks": {"mine": elastic.rank}}
        mean = elastic.mean(given)
        stand(f"gather-{step.number}", elastic.rank)
        pids = elastic.gather(os.getpid())
        say(number=step.number, world=elastic.world_size, came=str([mean, pids]), mine=os.getpid() in pids)
        if wrong in ("alone", "kinds") and step.number == 3:
            if elastic.is_main:
                elastic.mean(0)
            elif wrong == "kinds":
                elastic.gather(0)
        if wrong == "own":
            stand(f"own-{step.number}", elastic.rank)
            dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
