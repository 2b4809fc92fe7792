"""Trainings with `Elastic`: elastic.py KIND, one of KINDS."""

import time
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset

from elasticjob.trainer.torch import Elastic, Loader, Part, PerEpoch, node_mesh
from lab.scripts.life import told

KINDS = ("digits", "plateau", "readers", "stream", "weights", "divided")


def digits() -> nn.Sequential:
    """Return a network for images of 8 x 8 pixels, with dropout."""
    layers = (nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(144, 10)).double()


class Images(told.Numbered):
    """Handwriting."""

    def __init__(self, records: int) -> None:
        images, labels = load_digits(return_X_y=True)
        self.x, self.y = torch.tensor(images[:records]) / 16, torch.tensor(labels[:records])


def read(part: Part) -> list[tuple[Tensor, Tensor, int]]:
    """Return records of a range."""
    told.slow()
    x, y = told.problem(part.stop)
    return [(x[index], y[index], index) for index in range(part.start, part.stop)]


def main() -> None:
    args, lines = told.arguments(), told.Told()
    kind = args.kind
    torch.manual_seed(7)
    if kind == "digits":
        model = digits()
    else:
        model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)).double()
        told.start(model)
    if kind == "divided":
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=node_mesh())
    optimizer: list[torch.optim.Optimizer] = [torch.optim.AdamW(model.parameters(), lr=1e-2)]
    scheduler: list[LRScheduler | PerEpoch] = [LambdaLR(optimizer[0], lambda step: 0.99**step)]
    if kind == "weights":
        optimizer = [
            torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9),
            torch.optim.AdamW(model[2].parameters()),
        ]
        scheduler = [ExponentialLR(each, 0.99) for each in optimizer]
    keep: dict[str, Any] = {"notes": {"steps": 0}}
    notes, ema = keep["notes"], None
    if kind == "plateau":
        ema = AveragedModel(model, avg_fn=lambda old, new, _: 0.9 * old + 0.1 * new)
        scheduler = [PerEpoch(ReduceLROnPlateau(optimizer[0], patience=0, threshold=0.5), "loss")]
        keep["ema"] = ema
    elastic = Elastic(
        model,
        optimizer,
        scheduler=scheduler,
        keep=keep,
        seed=args.seed,
        checkpoint=args.place or None,
        save_every=args.save_every,
        memory_every=args.memory_every,
    )
    data: Loader
    if kind == "stream":
        data = elastic.stream(read, records=args.records, shard=16, global_batch=args.batch, shuffle=True)
    else:
        dataset = Images(args.records) if kind == "digits" else told.Numbered(args.records)
        data = elastic.loader(dataset, global_batch=args.batch, workers=2 if kind == "readers" else 0)
    test = elastic.loader(TensorDataset(*told.problem(64)), global_batch=16, shuffle=False)

    def score(batch: list[Tensor]) -> dict[str, Tensor]:
        (told.FOLDER / "evaluating").touch()
        time.sleep(0.05)
        return {"loss": F.cross_entropy(elastic.model(batch[0]), batch[1])}

    lines.say(begins=elastic.progress.step, rank=elastic.rank, world=elastic.world_size, round=elastic.round)
    for step in elastic.steps(data, epochs=args.epochs):
        place = {"step": step.number, "epoch": step.epoch, "round": elastic.round}
        with step:
            for x, y, index in step:
                lines.say(**place, rank=elastic.rank, records=index.tolist())
                loss = F.cross_entropy(elastic.model(x), y)
                if kind == "weights":
                    step.backward(loss, weight=float(len(y)))
                else:
                    step.backward(loss)
            step.clip_grad_norm_(1.0)
            lines.step()
        if step.done:
            notes["steps"] += 1
            if ema is not None:
                ema.update_parameters(model)
            lines.say(done=step.number, round=place["round"], rank=elastic.rank)
        if step.done and step.ends_epoch and kind != "digits":
            elastic.evaluate(test, score)
    lines.end(
        model=model.state_dict(),
        optimizers=[each.state_dict() for each in optimizer],
        schedulers=[
            (each.scheduler if isinstance(each, PerEpoch) else each).state_dict() for each in scheduler
        ],
        **({"ema": ema.state_dict()} if ema is not None else {}),
        notes=notes,
    )


if __name__ == "__main__":
    main()
