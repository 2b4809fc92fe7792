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
import torch.nn.functional as F

from elasticjob.trainer.torch import Elastic
from lab.scripts.shared import Numbered, model_at_start, numbers, problem

RECORDS, BATCH = 1000, 16


def main(epochs: int, checkpoint: str) -> None:
    folder = Path(os.environ["LINEAGE"])
    file = (folder / f"{os.getpid()}-{time.time_ns()}.jsonl").open("ab", buffering=0)

    def write(**line: Any) -> None:
        file.write(json.dumps(line).encode() + b"\n")

    model = model_at_start()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    elastic = Elastic(model, optimizer, checkpoint=checkpoint, save_every=200)
    data = elastic.loader(Numbered(*problem(RECORDS)), global_batch=BATCH)
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
