"""Lightning's Trainer with our callback and loader."""

import logging
import os
import warnings

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from shared import args, at, export, last_line, say
from torchs import Counts, Numbers, end, optimizer_of, order, state_of

from elasticjob.trainer.integrations.lightning import ElasticCallback, ResumableLoader

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Trained(LightningModule):
    """Fails where it is told."""

    def __init__(self):
        super().__init__()
        self.counts = Counts()

    def training_step(self, batch, index):
        """Return the loss."""
        at("before", self.trainer.global_step + 1, self.trainer.global_rank)
        return self.counts(batch["index"])["loss"]

    def on_after_backward(self):
        """Fail behind the sum, or not."""
        at("after", self.trainer.global_step + 1, self.trainer.global_rank)

    def configure_optimizers(self):
        """Return the optimizer."""
        return optimizer_of(self.counts)


class Tells(Callback):
    """Says each step."""

    def on_train_start(self, trainer, module):
        say(begins=trainer.global_step, rank=trainer.global_rank)

    def on_train_batch_end(self, trainer, *given):
        at("behind", trainer.global_step, trainer.global_rank)
        say(step=trainer.global_step, rank=trainer.global_rank)
        trainer.should_stop |= trainer.global_step == args.stop


world = int(os.environ.get("WORLD_SIZE", "1"))
elastic = ElasticCallback(args.folder / "kept", every=0 if args.wrong else 1, save_every=args.save_every)
trainer = Trainer(
    max_epochs=args.epochs,
    accelerator="cpu",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
    strategy="ddp" if world > 1 else "auto",
    callbacks=[Tells(), elastic],
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    logger=False,
)
module = Trained()
trainer.fit(module, ResumableLoader(Numbers(), args.batch // world, seed=args.seed, **order()))
if trainer.is_global_zero:
    export(lambda path: torch.save(state_of(module.counts), path))
end(trainer.global_rank, module.counts, steps=trainer.global_step)
last_line()
