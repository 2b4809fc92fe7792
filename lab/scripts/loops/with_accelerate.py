"""A loop with accelerate, by our Accelerator."""

import torch
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import DataLoader

from elasticjob.trainer.integrations.accelerate import ElasticAccelerator
from lab.scripts.loops.run import args, at, end, every, export, last_line, place, say
from lab.scripts.loops.torchs import Counting, Numbers, optimizer_of, order, scheduler_of, state_of

accelerator = ElasticAccelerator(
    place,
    every=every,
    save_every=args.save_every,
    cpu=True,
    dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=args.seed),
)
set_seed(args.seed)
rank, model = accelerator.process_index, Counting(dropout=0.1)
optimizer = optimizer_of(model)
loader = DataLoader(Numbers(), batch_size=args.batch // accelerator.num_processes, **order())
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler_of(optimizer))
is_stopped, begins = False, True
for epoch, batches in accelerator.epochs(loader, args.epochs):
    for batch in batches:
        if begins:
            say(begins=accelerator.steps_done)
        begins, step = False, accelerator.steps_done + 1
        at("before", step, rank)
        say(step=step, epoch=epoch, records=batch["index"].tolist())
        accelerator.backward(model(batch["index"])["loss"])
        at("after", step, rank)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        at("behind", step, rank)
        say(done=step)
        if is_stopped := step == args.stop:
            break
    if is_stopped:
        break
bare = accelerator.unwrap_model(model)
if accelerator.is_main_process:
    export(lambda path: torch.save(state_of(bare), path))
end(**state_of(bare), steps=accelerator.steps_done, scheduler=scheduler.state_dict())
accelerator.end_training()
last_line()
