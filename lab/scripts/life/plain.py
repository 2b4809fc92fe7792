"""Ordinary torchrun scripts with `Checkpoint`: plain.py KIND, plain (DDP) or fsdp (divided over all workers).

Every worker computes every record, so their number changes nothing.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from elasticjob.trainer.link.channel import ROUND
from elasticjob.trainer.torch.checkpoint import Checkpoint
from lab.scripts.life import told


def main() -> None:
    args, lines = told.arguments(), told.Told()
    dist.init_process_group("gloo")
    rank, round = dist.get_rank(), int(os.environ[ROUND])
    model: nn.Module = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    told.start(model)
    if args.kind == "fsdp":
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    notes = {"steps": 0}
    state = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "notes": notes}
    checkpoint = Checkpoint(args.place, state, every=args.memory_every, save_every=args.save_every)
    data = told.Numbered(args.records)
    each = -(-args.records // args.batch)
    first = True
    for step in checkpoint.steps(args.epochs * each):
        if first:
            lines.say(begins=step - 1, rank=rank, world=dist.get_world_size(), round=round)
        first = False
        epoch, at = divmod(step - 1, each)
        order = torch.randperm(args.records, generator=torch.Generator().manual_seed(args.seed + epoch))
        picked = order[at * args.batch : (at + 1) * args.batch].tolist()
        inputs, labels, _ = zip(*(data[index] for index in picked), strict=True)
        if rank == 0:
            lines.say(step=step, epoch=epoch, round=round, rank=rank, records=picked)
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(model(torch.stack(inputs)), torch.stack(labels)))
        optimizer.step()
        scheduler.step()
        notes["steps"] += 1
        lines.step()
        lines.say(done=step, round=round, rank=rank)
    lines.end(model=model.state_dict(), scheduler=scheduler.state_dict(), notes=notes)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
