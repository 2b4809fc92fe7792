"""An elastic script that says what it does: attempts of steps, steps that are done, and its parameters.

counted.py EPOCHS|held [CHECKPOINT] [--divided] [--records N] [--batch N] [--save-every N]

With --divided, fully_shard divides the model over the workers of a node. Lines go to a file of the process in
the folder $COUNTED; those of attempts, with their records, before gradients are reduced. All but those are
printed, too. A file `slowly` has each step take a while. A training that is `held` goes on, a moment between
its steps, until there is a file `open`: it ends with the epoch in which rank 0 sees that, and says which in
`last`. A file `stand-STEP-RANK` has that worker wait in that step to be killed; a file `evaluation` has the
main worker evaluate after its step, for as many seconds as are written there.
"""

import argparse
import os
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.fsdp import fully_shard

from elasticjob.trainer.torch import Elastic, Step, node_mesh
from lab.jobs.training.device import DEVICE
from lab.scripts.shared import Numbered, model_at_start, numbers, problem
from lab.scripts.told import FOLDER, Lines, say, stand

OPEN, LAST, EVALUATION, SLOWLY = (FOLDER / name for name in ("open", "last", "evaluation", "slowly"))
ENDLESS = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("epochs")
    parser.add_argument("checkpoint", nargs="?")
    parser.add_argument("--divided", action="store_true")
    parser.add_argument("--records", type=int, default=101)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--save-every", type=int, default=50)
    args, lines = parser.parse_args(), Lines()
    epochs = ENDLESS if args.epochs == "held" else int(args.epochs)
    torch.manual_seed(os.getpid())  # nothing may depend on it
    model = model_at_start(DEVICE)  # three rows: two workers have unequal parts
    if args.divided:
        fully_shard(model, mesh=node_mesh())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    notes: dict[str, Any] = {"steps": 0}
    elastic = Elastic(
        model,
        optimizer,
        keep={"notes": notes},
        checkpoint=args.checkpoint,
        memory_every=5,
        save_every=args.save_every,
        noise_every=0 if args.divided else 2,
    )
    data = elastic.loader(Numbered(*problem(args.records)), global_batch=args.batch)
    test = elastic.loader(Numbered(*problem(30)), global_batch=8, shuffle=False)

    def score(batch: list[Tensor]) -> dict[str, Tensor]:
        return {"loss": F.cross_entropy(elastic.model(batch[0]), batch[1])}

    say(started=elastic.progress.step)
    for step in elastic.steps(data, epochs=epochs):
        attempt: dict[str, Any] = {"step": step.number, "epoch": step.epoch, "round": elastic.round}
        attempt |= {"rank": elastic.rank, "world": elastic.world_size}
        with step:
            for x, y, index in step:
                lines.say(**attempt, records=index.tolist())
                step.backward(F.cross_entropy(elastic.model(x), y))
            norm = float(step.clip_grad_norm_(0.5))
            stand(f"stand-{step.number}", elastic.rank)
        if SLOWLY.exists():
            time.sleep(0.02)
        if not step.done:
            continue
        notes["steps"] += 1
        lines.say(prints=True, **attempt, done=step.number, loss=step.loss, norm=norm)
        if args.divided and step.ends_epoch:
            elastic.evaluate(test, score)
        if elastic.is_main and EVALUATION.exists():
            print("evaluating", flush=True)
            time.sleep(float(EVALUATION.read_text()))
            EVALUATION.unlink()
        if epochs == ENDLESS and ends(elastic, step):
            break
    loss = elastic.evaluate(test, score)["loss"]
    lines.say(prints=True, parameters=numbers(model), rank=elastic.rank, score=loss, notes=notes)


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
    main()
