"""accelerate: accumulation, dropout, a scaler, a registered object, and work at the end of each epoch."""

from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState, GradientState
from torch.utils.data import DataLoader, TensorDataset

from elasticjob.trainer.integrations.accelerate import ElasticAccelerator
from lab.jobs.training.kills import Model, main, weights


class Counts:
    """Counts steps, and epochs."""

    def __init__(self) -> None:
        self.seen = {"batches": 0, "epochs": 0}
        self.optimizer = None  # as a scheduler has it

    def state_dict(self) -> dict[str, Any]:
        return dict(self.seen)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = dict(state)


def train(folder: Path, kill: int | None) -> dict[str, Any]:
    """Two epochs of five micro-batches, three steps each: the last one is of one micro-batch."""
    for shared in (AcceleratorState, GradientState):  # of the worker before
        shared._reset_state()
    inputs = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    accelerator = ElasticAccelerator(folder, every=1, save_every=1, cpu=True, gradient_accumulation_steps=2)
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    counts = Counts()
    accelerator.register_for_checkpointing(counts)
    model = Model(kill)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(inputs), batch_size=4, shuffle=True)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    model, loader, scheduler = accelerator.prepare(model, loader, scheduler)
    optimizer = accelerator.prepare_optimizer(optimizer)
    losses = []
    for _, batches in accelerator.epochs(loader, 2):
        for (records,) in batches:
            with accelerator.accumulate(model):
                loss = model(records)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            counts.seen["batches"] += 1
            losses.append(loss.item())
        counts.seen["epochs"] += 1
        losses.append(torch.rand(()).item())
    return {
        "weights": weights(model),
        "counts": counts.seen,
        "scaler": accelerator.scaler.state_dict(),
        "lr": scheduler.get_last_lr(),
        "steps": accelerator.steps_done,
        "logged": losses,
    }


main(train, 10)
