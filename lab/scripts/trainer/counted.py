"""An elastic script that says what it does: one JSON line per step, and the parameters at the end.

counted.py EPOCHS|held [CHECKPOINT] [--divided]

With --divided, fully_shard divides the model over the workers of a node. In the folder $COUNTED the lines of
steps are written to a file too, which no killed agent can take along. A training that is `held` goes on, a
moment between its steps, until there is a file `open`: it ends with the epoch in which rank 0 sees that, and
says which in `last`. A file `stand-STEP-RANK` has that worker wait in that step to be killed; a file
`evaluation` has the main worker evaluate after its step, for as many seconds as are written there.
"""

import argparse
import json
import os
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.fsdp import fully_shard

from elasticjob.trainer.torch import Elastic, Step, node_mesh
from lab.jobs.training.device import DEVICE
from lab.scripts.shared import FOLDER, Numbered, model_at_start, numbers, problem, say, stand

OPEN, LAST, EVALUATION = FOLDER / "open", FOLDER / "last", FOLDER / "evaluation"
ENDLESS = 1_000_000


def main(epochs: int, checkpoint: str | None, divided: bool) -> None:
    torch.manual_seed(os.getpid())  # nothing may depend on it
    model = model_at_start(DEVICE)  # three rows: two workers have unequal parts
    if divided:
        fully_shard(model, mesh=node_mesh())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    notes: dict[str, Any] = {"steps": 0}
    elastic = Elastic(
        model,
        optimizer,
        keep={"notes": notes},
        checkpoint=checkpoint,
        memory_every=5,
        save_every=50,
        noise_every=0 if divided else 2,
    )
    data = elastic.loader(Numbered(*problem(101)), global_batch=8)
    test = elastic.loader(Numbered(*problem(30)), global_batch=8, shuffle=False)

    def score(batch: list[Tensor]) -> dict[str, Tensor]:
        return {"loss": F.cross_entropy(elastic.model(batch[0]), batch[1])}

    say(started=elastic.progress.step)
    for step in elastic.steps(data, epochs=epochs):
        attempt: dict[str, Any] = {"round": elastic.round, "rank": elastic.rank, "world": elastic.world_size}
        records: list[int] = []
        with step:
            for x, y, index in step:
                step.backward(F.cross_entropy(elastic.model(x), y))
                records += index.tolist()
            norm = float(step.clip_grad_norm_(0.5))
            stand(f"stand-{step.number}", elastic.rank)
        if not step.done:
            continue
        notes["steps"] += 1
        line = json.dumps(
            {"pid": os.getpid(), "step": step.number, "epoch": step.epoch, "loss": step.loss, **attempt}
            | {"done": step.number, "records": records, "norm": norm, "at": time.time()}
        )
        with (FOLDER / f"{os.getpid()}.jsonl").open("a") as record:
            record.write(f"{line}\n")
        print(line, flush=True)
        if divided and step.ends_epoch:
            elastic.evaluate(test, score)
        if elastic.is_main and EVALUATION.exists():
            print("evaluating", flush=True)
            time.sleep(float(EVALUATION.read_text()))
            EVALUATION.unlink()
        if epochs == ENDLESS and ends(elastic, step):
            break
    loss = elastic.evaluate(test, score)["loss"]
    say(parameters=numbers(model), rank=elastic.rank, score=loss, notes=notes)


def ends(elastic: Elastic, step: Step) -> bool:
    """Whether a held training ends with this step; all workers agree.

    Rank 0 decides before its next step, without which the others do not get past theirs.
    """
    if not OPEN.exists():
        time.sleep(0.1)
    elif elastic.is_main and not LAST.exists():
        new = FOLDER / "last.new"
        new.write_text(str(step.epoch + step.ends_epoch))
        new.rename(LAST)
    return step.ends_epoch and LAST.exists() and int(LAST.read_text()) <= step.epoch


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("epochs")
    parser.add_argument("checkpoint", nargs="?")
    parser.add_argument("--divided", action="store_true")
    given = parser.parse_args()
    main(ENDLESS if given.epochs == "held" else int(given.epochs), given.checkpoint, given.divided)
