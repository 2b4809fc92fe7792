"""`Elastic`: the kinds counts and sharded, whose state counts records, and others that learn in many ways."""

import os
import time
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from elasticjob.trainer.torch import Elastic, Loader, Part, PerEpoch, node_mesh
from lab.jobs.training.device import DEVICE
from lab.scripts.loops.run import args, at, end, every, export, last_line, place, say, slow
from lab.scripts.loops.torchs import Counting, optimizer_of, order, scheduler_of, state_of
from lab.scripts.shared import CLASSES, WIDTH, Numbered, problem, start
from lab.scripts.told import stand

COUNTS = ("counts", "sharded")
NODE = os.environ.get("ELASTICJOB_NODE", "")


def digits() -> nn.Sequential:
    """Return a network for images of 8 x 8 pixels, with dropout."""
    layers = (nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(144, 10)).double()


def classes() -> nn.Sequential:
    """Return a network for what is drawn, with dropout if its schedule is to be a plateau's."""
    dropout = nn.Dropout(0.2 if args.kind == "plateau" else 0.0)
    model = nn.Sequential(nn.Linear(WIDTH, 6), dropout, nn.Tanh(), nn.Linear(6, CLASSES)).double()
    start(model)
    return model.to(DEVICE)


class Noisy(Numbered):
    """Records; those of `plateau` have noise, each time another one."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        x, y, number = super().__getitem__(index)
        return x + 0.1 * torch.randn_like(x) if args.kind == "plateau" else x, y, number


class Records(Noisy):
    """Records that are slow to read now and then."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        slow()
        return super().__getitem__(index)


def images() -> tuple[Tensor, Tensor]:
    """Return handwriting, and what it says."""
    found, labels = load_digits(return_X_y=True)
    return torch.tensor(found[: args.records]) / 16, torch.tensor(labels[: args.records])


def read(part: Part) -> list[tuple[Tensor, Tensor, int]]:
    """Return records of a range."""
    slow()
    x, y = problem(part.stop)
    return [(x[index], y[index], index) for index in range(part.start, part.stop)]


kind = args.kind
torch.manual_seed(7)
model: Any = digits() if kind == "digits" else Counting() if kind in COUNTS else classes()
torch.manual_seed(os.getpid())  # nothing else may depend on it
if kind == "divided":
    for layer in (model[0], model[3], model):
        fully_shard(layer, mesh=node_mesh())
if kind == "sharded":
    fully_shard(model, mesh=node_mesh())
keep: dict[str, Any] = {"notes": {"steps": 0, "losses": []}}
notes, ema = keep["notes"], None
optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(model.parameters(), lr=1e-2)]
schedulers: list[LRScheduler | PerEpoch] = [LambdaLR(optimizers[0], lambda step: 0.99**step)]
match kind:
    case "counts" | "sharded":
        optimizers = [optimizer_of(model)]
        schedulers = [scheduler_of(optimizers[0])]
    case "weights":
        momenta = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)
        optimizers = [momenta, torch.optim.AdamW(model[3].parameters())]
        schedulers = [ExponentialLR(each, 0.99) for each in optimizers]
    case "plateau":
        body = torch.optim.AdamW(model[0].parameters(), lr=1e-2)
        head = torch.optim.SGD(model[3].parameters(), lr=1e-1, momentum=0.9)
        plateau = ReduceLROnPlateau(head, factor=0.5, patience=0, threshold=0.5)
        optimizers = [body, head]
        schedulers = [LambdaLR(body, lambda step: 0.99**step), PerEpoch(plateau, "loss")]
        ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))  # type: ignore[no-untyped-call]
        keep["ema"] = ema
elastic = Elastic(
    model,
    optimizers,
    scheduler=schedulers,
    keep=keep,
    seed=args.seed,
    checkpoint=place or None,
    memory_every=every,
    save_every=args.save_every,
)
data: Loader
if kind == "stream":
    data = elastic.stream(read, records=args.records, shard=16, global_batch=args.batch, shuffle=True)
else:
    records = Records(*(images() if kind == "digits" else problem(args.records)))
    readers = 2 if kind == "readers" else args.readers
    data = elastic.loader(records, global_batch=args.batch, workers=readers, **order())
test = elastic.loader(Noisy(*problem(64)), global_batch=16, shuffle=False)


def score(batch: list[Tensor]) -> dict[str, Tensor]:
    """Return the loss of a batch of the test."""
    (args.folder / "evaluating").touch()
    loss = F.cross_entropy(elastic.model(batch[0]), batch[1])
    stand(f"epoch-{elastic.epoch - 1}", NODE)
    time.sleep(args.pace)
    return {"loss": loss}


if kind == "plateau" and not elastic.progress.step:
    elastic.evaluate(test, score)
say(begins=elastic.progress.step, rank=elastic.rank, world=elastic.world_size, round=elastic.round)
for step in elastic.steps(data, epochs=args.epochs):
    here: dict[str, Any] = {"round": elastic.round, "rank": elastic.rank}
    with step:
        for x, y, index in step:
            at("before", step.number, elastic.rank)
            say(step=step.number, epoch=step.epoch, records=index.tolist(), **here)
            loss = elastic.model(index)["loss"] if kind in COUNTS else F.cross_entropy(elastic.model(x), y)
            if kind == "weights":
                step.backward(loss, weight=float(len(y)))
            else:
                step.backward(loss)
        stand(f"step-{step.number}", NODE)
        step.clip_grad_norm_(1e9 if kind in COUNTS else 1.0)
        at("after", step.number, elastic.rank)
    if not step.done:
        continue
    at("behind", step.number, elastic.rank)
    notes["steps"] += 1
    if ema:
        ema.update_parameters(model)
    say(done=step.number, **here)
    if step.number == args.stop:
        break
    if step.ends_epoch and kind not in (*COUNTS, "digits"):
        notes["losses"].append(elastic.evaluate(test, score)["loss"])
result = state_of(model) if kind in COUNTS else {"model": model.state_dict()}
if elastic.is_main:
    export(lambda path: torch.save(result, path))
end(
    **result,
    **notes,
    optimizers=[each.state_dict() for each in optimizers],
    schedulers=[(each.scheduler if isinstance(each, PerEpoch) else each).state_dict() for each in schedulers],
    ema=ema.state_dict() if ema else {},
)
last_line()
