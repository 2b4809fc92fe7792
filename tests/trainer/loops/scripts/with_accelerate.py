"""A loop with accelerate, by our Accelerator."""

import torch
from accelerate.utils import DataLoaderConfiguration, set_seed
from shared import args, at, export, last_line, say
from torch.utils.data import DataLoader
from torchs import Counts, Numbers, end, optimizer_of, order, state_of

from elasticjob.trainer.integrations.accelerate import ElasticAccelerator

accelerator = ElasticAccelerator(
    args.folder / "kept",
    every=0 if args.wrong else 1,
    save_every=args.save_every,
    cpu=True,
    dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=args.seed),
)
set_seed(args.seed)
rank, model = accelerator.process_index, Counts()
optimizer = optimizer_of(model)
loader = DataLoader(Numbers(), batch_size=args.batch // accelerator.num_processes, **order())
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
is_stopped, begins = False, True
for _, batches in accelerator.epochs(loader, args.epochs):
    for batch in batches:
        if begins:
            say(begins=accelerator.steps_done, rank=rank)
        begins, step = False, accelerator.steps_done + 1
        at("before", step, rank)
        accelerator.backward(model(batch["index"])["loss"])
        at("after", step, rank)
        optimizer.step()
        optimizer.zero_grad()
        at("behind", step, rank)
        say(step=step, rank=rank)
        if is_stopped := step == args.stop:
            break
    if is_stopped:
        break
bare = accelerator.unwrap_model(model)
if accelerator.is_main_process:
    export(lambda path: torch.save(state_of(bare), path))
end(rank, bare, steps=accelerator.steps_done)
accelerator.end_training()
last_line()
