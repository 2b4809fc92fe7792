"""An elastic script that says what it does: one JSON line per step, and the parameters at the end.

In the folder $COUNTED it writes the lines of its steps to a file too, which no killed agent can take along.
While there is a file `slowly` there, each step takes a while, in the second half of the training a long one:
what a test does in mid-job happens in mid-job on a busy machine too. A file `evaluation` there has the
main worker evaluate after its step, for as many seconds as are written in the file.
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
from torch.utils.data import Dataset

from elasticjob.trainer.torch import Elastic
from tests.kit.training.device import DEVICE


class Numbered(Dataset[tuple[Tensor, Tensor, int]]):
    """Records that know their number."""

    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(size, 8, generator=generator, dtype=torch.float64)
        self.y = torch.randint(0, 3, (size,), generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        return self.x[index], self.y[index], index


def main(epochs: int, checkpoint: str = "") -> None:
    torch.manual_seed(os.getpid())  # only the oldest worker's weights may count: rank 0 sets them below
    model = nn.Linear(8, 3, dtype=torch.float64, device=DEVICE)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel(), dtype=torch.float64).view_as(parameter))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    elastic = Elastic(model, optimizer, checkpoint=checkpoint or None, save_every=50, noise_every=2)
    data = elastic.loader(Numbered(101), global_batch=8, workers=int(os.environ.get("READERS", "0")))
    print(json.dumps({"pid": os.getpid(), "started": elastic.progress.step}), flush=True)
    folder = Path(os.environ["COUNTED"])
    for step in elastic.steps(data, epochs=epochs):
        attempt: dict[str, Any] = {"round": elastic.round, "rank": elastic.rank, "world": elastic.world_size}
        records: list[int] = []
        with step:
            for x, y, index in step:
                step.backward(F.cross_entropy(elastic.model(x), y))
                records += index.tolist()
        if not step.done:
            continue
        line = json.dumps(
            {"pid": os.getpid(), "step": step.number, "epoch": step.epoch, "loss": step.loss, **attempt}
            | {"records": records}
        )
        with (folder / f"{os.getpid()}.jsonl").open("a") as record:
            record.write(f"{line}\n")
        print(line, flush=True)
        if (folder / "slowly").exists():
            time.sleep(0.01 if 2 * step.epoch < epochs else 0.5)
        if elastic.is_main and (evaluation := folder / "evaluation").exists():
            print("evaluating", flush=True)
            time.sleep(float(evaluation.read_text()))
            evaluation.unlink()
    parameters = [value for parameter in model.parameters() for value in parameter.flatten().tolist()]
    print(json.dumps({"pid": os.getpid(), "parameters": parameters, "rank": elastic.rank}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
