"""Lightning's Trainer with our callback, two micro-batches a step, and a callback that counts."""

import logging
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from elasticjob.trainer.integrations.lightning import ElasticCallback, ResumableLoader
from lab.scripts.life import told

MICRO = 2


class Classes(LightningModule):
    """Learns classes."""

    def __init__(self, lines: told.Told) -> None:
        super().__init__()
        self.lines = lines
        self.model = nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.1), nn.Linear(6, 3)).double()
        told.start(self.model)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        """Return the loss of a micro-batch."""
        x, y, numbers = batch
        place = {"step": self.trainer.global_step + 1, "epoch": self.trainer.current_epoch}
        self.lines.say(**place, round=told.round_of(), records=numbers.tolist())
        return nn.functional.cross_entropy(self.model(x), y)

    def configure_optimizers(self) -> Any:
        """Return the optimizer and its scheduler."""
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


class Counted(Callback):
    """Counts batches, as EarlyStopping and averages do more usefully."""

    def __init__(self, lines: told.Told) -> None:
        self.lines, self.batches = lines, 0

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Tell where the training begins."""
        self.lines.say(begins=trainer.global_step, round=told.round_of())

    def on_train_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Tell of a step, after its last micro-batch."""
        self.batches += 1
        if not trainer.fit_loop._should_accumulate():
            self.lines.step()
            self.lines.say(done=trainer.global_step, round=told.round_of())

    def state_dict(self) -> dict[str, int]:
        """Return what Lightning keeps of it."""
        return {"batches": self.batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there."""
        self.batches = state["batches"]


def main() -> None:
    args, lines = told.arguments(), told.Told()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(7)
    size = args.batch // MICRO
    loader = ResumableLoader(told.Numbered(args.records), batch_size=size, shuffle=True, seed=args.seed)
    counted, module = Counted(lines), Classes(lines)
    trainer = Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        devices=1,
        accumulate_grad_batches=MICRO,
        callbacks=[ElasticCallback(args.place, every=args.memory_every, save_every=args.save_every), counted],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(module, loader)
    scheduler = trainer.lr_scheduler_configs[0].scheduler
    lines.end(model=module.state_dict(), scheduler=scheduler.state_dict(), counted=counted.batches)


if __name__ == "__main__":
    main()
