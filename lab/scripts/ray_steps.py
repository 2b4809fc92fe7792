"""The same training with Ray Train, elastic: one worker or as many as there is room for."""

import os
import sys
import tempfile
from typing import Any

import ray
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch.utils.data import DataLoader

from lab.scripts.work import BATCH, SAVE_EVERY, Training

STATE = "state.pt"


def train(about: dict[str, Any]) -> None:
    """Train for ever, from the newest checkpoint."""
    here = ray.train.get_context()
    rank, world = here.get_world_rank(), here.get_world_size()
    training = Training()
    if newest := ray.train.get_checkpoint():
        with newest.as_directory() as folder:
            training.load(os.path.join(folder, STATE))
    loader = prepare_data_loader(DataLoader(training.records, batch_size=BATCH, shuffle=True))
    for step in training.steps(prepare_model(training.model), loader):
        training.told.done(step, rank, world, os.getpid())
        if about["saves"] and step % SAVE_EVERY == 0:
            report(rank, training)


def report(rank: int, training: Training) -> None:
    """Report a step as all workers have to; the first one brings the checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        if rank == 0:
            training.save(os.path.join(folder, STATE))
        checkpoint = Checkpoint.from_directory(folder) if rank == 0 else None
        ray.train.report({"step": training.step}, checkpoint=checkpoint)


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
