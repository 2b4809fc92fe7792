"""A loop of accelerate with our Accelerator, and dropout."""

import torch
from torch import nn
from torch.utils.data import DataLoader

from elasticjob.trainer.integrations.accelerate import ElasticAccelerator
from lab.scripts.life import told


def main() -> None:
    args, lines = told.arguments(), told.Told()
    accelerator = ElasticAccelerator(
        args.place, every=args.memory_every, save_every=args.save_every, cpu=True
    )
    torch.manual_seed(7 + args.seed)
    model = nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.1), nn.Linear(6, 3)).double()
    told.start(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    loader = DataLoader(told.Numbered(args.records), batch_size=args.batch, shuffle=True)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    first = True
    for epoch, batches in accelerator.epochs(loader, args.epochs):
        if first:
            lines.say(begins=accelerator.steps_done, round=told.round_of())
        first = False
        for x, y, numbers in batches:
            step = accelerator.steps_done + 1
            lines.say(step=step, epoch=epoch, round=told.round_of(), records=numbers.tolist())
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            lines.step()
            lines.say(done=step, round=told.round_of())
    lines.end(model=model.state_dict(), scheduler=scheduler.state_dict())
    accelerator.end_training()


if __name__ == "__main__":
    main()
