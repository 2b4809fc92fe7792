"""`Checkpoint` in a script of torchrun's, whose loader is a part of the state."""

import torch
import torch.distributed as dist
from shared import args, at, export, last_line, say
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler
from torchs import Counts, Numbers, end, optimizer_of, order, state_of

from elasticjob.trainer.torch.checkpoint import Checkpoint, ResumableLoader

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(Counts())
optimizer, notes = optimizer_of(model), {"steps": 0}
given = order()
sampler = given.get("sampler") or DistributedSampler(Numbers(), shuffle=given["shuffle"], seed=args.seed)
loader = ResumableLoader(Numbers(), batch_size=args.batch // world, sampler=sampler, seed=args.seed)
state = {"model": model, "optimizer": optimizer, "notes": notes, "loader": loader}
checkpoint = Checkpoint(args.folder / "kept", state, every=0 if args.wrong else 1, save_every=args.save_every)
batches = None
for step in checkpoint.steps(args.epochs * args.records // args.batch):
    if batches is None:
        say(begins=step - 1, rank=rank)
        batches = loader.endless()
    index = next(batches)["index"]
    at("before", step, rank)
    optimizer.zero_grad()
    model(index)["loss"].backward()
    at("after", step, rank)
    optimizer.step()
    at("behind", step, rank)
    notes["steps"] += 1
    say(step=step, rank=rank)
    if step == args.stop:
        break
if rank == 0:
    export(lambda path: torch.save(state_of(model.module), path))
end(rank, model.module, steps=notes["steps"])
dist.destroy_process_group()
last_line()
