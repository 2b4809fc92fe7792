"""Lightning: accumulation, dropout, validation, an average of weights, a scaler, callbacks that count."""

import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, EMAWeightAveraging
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.plugins import MixedPrecision
from torch.utils.data import DataLoader, TensorDataset

from elasticjob.trainer.integrations.lightning import ElasticCallback, ResumableLoader
from lab.jobs.training.kills import Model, main, weights

warnings.simplefilter("ignore")
for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)


class Counts(Callback):
    """Counts what it sees."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def _count(self, name: str) -> None:
        self.seen[name] = self.seen.get(name, 0) + 1

    def on_train_epoch_start(self, *_: Any) -> None:
        self._count("epochs")

    def on_train_batch_start(self, *_: Any) -> None:
        self._count("begun")

    def on_train_batch_end(self, *_: Any) -> None:
        self._count("ended")

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self._count("validations")

    def state_dict(self) -> dict[str, Any]:
        return dict(self.seen)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = dict(state)


class Logged(DummyLogger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int | None, str, float]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.lines += [(step, name, value) for name, value in metrics.items() if name != "epoch"]

    def __getattr__(self, _: str) -> Any:
        return lambda *a, **k: None


class Trained(LightningModule):
    def __init__(self, at: int | None) -> None:
        super().__init__()
        self.save_hyperparameters({"a class": Path})
        self.model = Model(at)
        self.steps_seen = 0

    def training_step(self, batch: Any, index: int) -> Any:
        loss = self.model(*batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("score", self.model(*batch))

    def optimizer_step(self, *arguments: Any, **more: Any) -> None:
        self.steps_seen += 1
        super().optimizer_step(*arguments, **more)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["steps seen"] = self.steps_seen

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.steps_seen = checkpoint["steps seen"]

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [
            {"scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), "interval": "step"}
        ]


def train(folder: Path, kill: int | None) -> dict[str, Any]:
    """Two epochs of five micro-batches, three steps each: the last one is of one micro-batch."""
    inputs = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    module, counts, logger = Trained(kill), Counts(), Logged()
    stopping = EarlyStopping("score", patience=9)
    average = EMAWeightAveraging(decay=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    trainer = Trainer(
        max_epochs=2,
        accumulate_grad_batches=2,
        accelerator="cpu",
        callbacks=[counts, stopping, average, ElasticCallback(folder, every=1, save_every=1)],
        plugins=[MixedPrecision("16-mixed", "cpu", scaler)],
        val_check_interval=3,
        check_val_every_n_epoch=None,
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=logger,
    )
    loader = ResumableLoader(TensorDataset(inputs), batch_size=4, shuffle=True)
    trainer.fit(module, loader, DataLoader(TensorDataset(inputs), batch_size=10))
    return {
        "weights": weights(module),
        "counts": counts.seen,
        "steps": [module.steps_seen, trainer.global_step],
        "stopping": [stopping.wait_count, float(stopping.best_score)],
        "scaler": scaler.state_dict(),
        "logged": logger.lines,
    }


main(train, 10)
