"""Lightning with checkpoints in memory: one callback, and a loader that can begin in the midst of an epoch.

elasticjob run --nproc-per-node 2 train.py /mnt/run
"""

import argparse
import json
import logging
import os

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import TensorDataset

from elasticjob.trainer.integrations.lightning import ElasticCallback, ResumableLoader

parser = argparse.ArgumentParser()
parser.add_argument("checkpoint", help="folder or URL of the checkpoints")
parser.add_argument("--epochs", type=int, default=3)


class Regression(LightningModule):
    """Learns a plane."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def training_step(self, batch, index):
        """Return the loss of a batch."""
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        if self.trainer.is_global_zero:
            step = self.trainer.global_step + 1
            print(json.dumps({"step": step, "loss": round(loss.item(), 6)}), flush=True)
        return loss

    def configure_optimizers(self):
        """Return the optimizer and its scheduler."""
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def main() -> None:
    """Train; `elasticjob run` has started the workers, as torchrun would."""
    args = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    torch.manual_seed(0)
    inputs = torch.randn(512, 8)
    loader = ResumableLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16, shuffle=True)
    trainer = Trainer(
        max_epochs=args.epochs,
        accelerator="auto" if torch.cuda.is_available() else "cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        strategy="ddp" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else "auto",
        callbacks=[ElasticCallback(args.checkpoint, every=5, save_every=50)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(Regression(), loader)


main()
