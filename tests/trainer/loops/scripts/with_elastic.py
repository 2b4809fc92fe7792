"""`Elastic`, the model replicated or, with DIVIDED=1, divided over the workers of a node."""

import os

import torch
from shared import args, at, export, last_line, say
from torch.distributed.fsdp import fully_shard
from torchs import Counts, Numbers, end, optimizer_of, order, state_of

from elasticjob.trainer.torch import Elastic, node_mesh

model, notes = Counts(), {"steps": 0}
if os.environ.get("DIVIDED"):
    fully_shard(model, mesh=node_mesh())
elastic = Elastic(
    model,
    optimizer_of(model),
    keep={"notes": notes},
    seed=args.seed,
    checkpoint=args.folder / "kept",
    memory_every=0 if args.wrong else 1,
    save_every=args.save_every,
)
data = elastic.loader(Numbers(), global_batch=args.batch, **order())
say(begins=elastic.progress.step, rank=elastic.rank)
for step in elastic.steps(data, epochs=args.epochs):
    with step:
        for batch in step:
            at("before", step.number, elastic.rank)
            step.backward(elastic.model(batch["index"])["loss"])
        step.clip_grad_norm_(1e9)
        at("after", step.number, elastic.rank)
    if not step.done:
        continue
    at("behind", step.number, elastic.rank)
    notes["steps"] += 1
    say(step=step.number, rank=elastic.rank, round=elastic.round)
    if step.number == args.stop:
        break
result = state_of(model)
if elastic.is_main:
    export(lambda path: torch.save(result, path))
end(elastic.rank, model, steps=notes["steps"])
last_line()
