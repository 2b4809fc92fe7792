"""A script with a model that fully_shard divides over the workers of a node; says what it does as counted.py.

divided.py EPOCHS [CHECKPOINT]
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import Dataset

from elasticjob.trainer.torch import Elastic, node_mesh
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


def divided_model() -> nn.Module:
    model = nn.Linear(8, 3, dtype=torch.float64, device=DEVICE)  # three rows: two workers have unequal parts
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel(), dtype=torch.float64).view_as(parameter))
    fully_shard(model, mesh=node_mesh())
    return model


def main(epochs: int, checkpoint: str = "") -> None:
    model = divided_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    notes: dict[str, Any] = {"steps": 0}
    elastic = Elastic(
        model,
        optimizer,
        keep={"notes": notes},
        checkpoint=checkpoint or None,
        memory_every=5,
        save_every=50,
    )
    data = elastic.loader(Numbered(101), global_batch=8)
    test = elastic.loader(Numbered(30), global_batch=8, shuffle=False)

    def score(batch: list[Tensor]) -> dict[str, Tensor]:
        return {"loss": F.cross_entropy(elastic.model(batch[0]), batch[1])}

    print(json.dumps({"pid": os.getpid(), "started": elastic.progress.step}), flush=True)
    folder = Path(os.environ["COUNTED"])
    for step in elastic.steps(data, epochs=epochs):
        attempt: dict[str, Any] = {"round": elastic.round, "rank": elastic.rank, "world": elastic.world_size}
        records: list[int] = []
        with step:
            for x, y, index in step:
                step.backward(F.cross_entropy(elastic.model(x), y))
                records += index.tolist()
            norm = float(step.clip_grad_norm_(0.5))
        if not step.done:
            continue
        notes["steps"] += 1
        line = json.dumps(
            {"pid": os.getpid(), "step": step.number, "epoch": step.epoch, "loss": step.loss, **attempt}
            | {"records": records, "norm": norm, "at": time.time()}
        )
        with (folder / f"{os.getpid()}.jsonl").open("a") as record:
            record.write(f"{line}\n")
        print(line, flush=True)
        if step.ends_epoch:
            elastic.evaluate(test, score)
        if (folder / "slowly").exists():
            time.sleep(0.01 if 2 * step.epoch < epochs else 0.5)
    loss = elastic.evaluate(test, score)["loss"]
    whole = [value for each in model.parameters() for value in full(each).flatten().tolist()]
    result = {"parameters": whole, "rank": elastic.rank, "score": loss, "notes": notes}
    print(json.dumps({"pid": os.getpid(), **result}), flush=True)


def full(parameter: Any) -> Tensor:
    """Return a parameter as a whole; a node's workers call it together."""
    gathered: Tensor = parameter.full_tensor()
    return gathered


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
