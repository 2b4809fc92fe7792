"""`Checkpoint` in a script of torchrun's: the kinds counts, plain and fsdp.

With `counts`, workers share the records, by a loader that is a part of the state. Else every worker computes
every record, so their number changes nothing; the model is replicated, or divided over all workers.
"""

from collections.abc import Iterator
from itertools import count

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

from elasticjob.trainer.torch.checkpoint import Checkpoint, ResumableLoader
from lab.scripts.loops.run import args, at, end, every, export, last_line, place, say, slow
from lab.scripts.loops.torchs import Counting, Numbers, optimizer_of, order, scheduler_of, state_of

in_epoch = -(-args.records // args.batch)


def everyones(step: int) -> Iterator[dict[str, Tensor]]:
    """Yield the records of each step from this one on, the same on all workers."""
    for number in count(step - 1):
        slow()
        epoch, batch = divmod(number, in_epoch)
        drawn = torch.randperm(args.records, generator=torch.Generator().manual_seed(args.seed + epoch))
        yield {"index": drawn[batch * args.batch : (batch + 1) * args.batch]}


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
bare = Counting()
model: nn.Module = bare
if args.kind == "fsdp":
    fully_shard(bare)
else:
    model = DistributedDataParallel(bare)
optimizer, notes = optimizer_of(model), {"steps": 0}
scheduler = scheduler_of(optimizer)
state = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "notes": notes}
if args.kind == "counts":
    given = order()
    sampler = given.get("sampler") or DistributedSampler(Numbers(), shuffle=given["shuffle"], seed=args.seed)
    loader = ResumableLoader(Numbers(), batch_size=args.batch // world, sampler=sampler, seed=args.seed)
    state["loader"] = loader
checkpoint = Checkpoint(place, state, every=every, save_every=args.save_every)
batches = None
for step in checkpoint.steps(args.epochs * in_epoch):
    if batches is None:
        say(begins=step - 1, world=world)
        batches = loader.endless() if args.kind == "counts" else everyones(step)
    index = next(batches)["index"]
    at("before", step, rank)
    say(step=step, epoch=(step - 1) // in_epoch, records=index.tolist())
    optimizer.zero_grad()
    torch.autograd.backward(model(index)["loss"])
    at("after", step, rank)
    optimizer.step()
    scheduler.step()
    at("behind", step, rank)
    notes["steps"] += 1
    say(done=step)
    if step == args.stop:
        break
result = state_of(bare)
if rank == 0:
    export(lambda path: torch.save(result, path))
end(**result, **notes, scheduler=scheduler.state_dict())
dist.destroy_process_group()
last_line()
