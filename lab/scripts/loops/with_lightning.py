"""Lightning's Trainer with our callback and loader, and a callback of the script's own that has a state."""

import logging
import os
import warnings
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from elasticjob.trainer.integrations.lightning import ElasticCallback, ResumableLoader
from lab.scripts.loops.run import args, at, end, every, export, last_line, place, say
from lab.scripts.loops.torchs import Counting, Numbers, optimizer_of, order, scheduler_of, state_of

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Trained(LightningModule):
    """Fails where it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.counting = Counting(dropout=0.1)

    def training_step(self, batch: Any, index: int) -> Any:
        """Return the loss."""
        step = self.trainer.global_step + 1
        at("before", step, self.trainer.global_rank)
        say(step=step, epoch=self.trainer.current_epoch, records=batch["index"].tolist())
        return self.counting(batch["index"])["loss"]

    def on_after_backward(self) -> None:
        """Fail behind the sum, or not."""
        at("after", self.trainer.global_step + 1, self.trainer.global_rank)

    def configure_optimizers(self) -> Any:
        """Return the optimizer and its scheduler."""
        optimizer = optimizer_of(self.counting)
        return [optimizer], [scheduler_of(optimizer)]


class Tells(Callback):
    """Says each step, and counts batches, as EarlyStopping and averages do more usefully."""

    def __init__(self) -> None:
        self.batches = 0

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Say where the training begins."""
        say(begins=trainer.global_step)

    def on_train_batch_end(self, trainer: Any, *given: Any) -> None:
        """Say that a step is done, after its last batch."""
        self.batches += 1
        if trainer.fit_loop._should_accumulate():
            return
        at("behind", trainer.global_step, trainer.global_rank)
        say(done=trainer.global_step)
        trainer.should_stop |= trainer.global_step == args.stop

    def state_dict(self) -> dict[str, int]:
        """Return what Lightning keeps of it."""
        return {"batches": self.batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there."""
        self.batches = state["batches"]


torch.manual_seed(7)
world = int(os.environ.get("WORLD_SIZE", "1"))
tells, module = Tells(), Trained()
trainer = Trainer(
    max_epochs=args.epochs,
    accelerator="cpu",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
    strategy="ddp" if world > 1 else "auto",
    accumulate_grad_batches=args.micro,
    callbacks=[tells, ElasticCallback(place, every=every, save_every=args.save_every)],
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    logger=False,
)
size = args.batch // world // args.micro
trainer.fit(module, ResumableLoader(Numbers(), size, seed=args.seed, **order()))
if trainer.is_global_zero:
    export(lambda path: torch.save(state_of(module.counting), path))
scheduler = trainer.lr_scheduler_configs[0].scheduler
states = {"scheduler": scheduler.state_dict(), "batches": tells.batches}
end(**state_of(module.counting), steps=trainer.global_step, **states)
last_line()
