"""The same training with Ray Train, elastic: one worker or as many as there is room for."""

import os
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import ray
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch import optim
from torch.utils.data import DataLoader, DistributedSampler

from lab.scripts.told import Steps
from lab.scripts.work import BATCH, chosen

SAVE_EVERY = 20


def train(about: dict[str, Any]) -> None:
    """Train for ever, from the newest checkpoint."""
    here = ray.train.get_context()
    rank, world = here.get_world_rank(), here.get_world_size()
    work = chosen()
    steps = Steps()
    optimizer = optim.AdamW(work.model.parameters())
    step = 0
    if newest := ray.train.get_checkpoint():
        with newest.as_directory() as folder:
            saved = torch.load(Path(folder, "state.pt"), weights_only=True)
        work.model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    ddp = prepare_model(work.model)
    loader = prepare_data_loader(DataLoader(work.records, batch_size=BATCH, shuffle=True))
    for epoch in count():
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = work.loss(ddp(inputs), labels)
            torch.autograd.backward(loss)
            optimizer.step()
            step += 1
            steps.done(step, rank, world, os.getpid())
            if about["saves"] and step % SAVE_EVERY == 0:
                state = {"model": work.model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                report(rank, state)


def report(rank: int, state: dict[str, Any]) -> None:
    """Report a step as all workers have to; the first one brings the checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        if rank == 0:
            torch.save(state, Path(folder, "state.pt"))
        kept = Checkpoint.from_directory(folder) if rank == 0 else None
        ray.train.report({"step": state["step"]}, checkpoint=kept)


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else ""
    TorchTrainer(
        train,
        train_loop_config={"saves": bool(path)},
        scaling_config=ScalingConfig(num_workers=(1, int(os.environ["BENCH_WORKERS"]))),
        run_config=RunConfig(
            name="bench",
            storage_path=os.path.dirname(path) or tempfile.mkdtemp(dir=os.environ["BENCH_FOLDER"]),
            failure_config=FailureConfig(max_failures=-1),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    ).fit()
