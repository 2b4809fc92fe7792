"""Trainings that stop early, are started again, and then are to make more steps; prints the steps of each."""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from accelerate.state import AcceleratorState, GradientState
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch import Trainer as Lightning
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from elasticjob.trainer.integrations import huggingface, lightning
from elasticjob.trainer.integrations.accelerate import ElasticAccelerator

DATA = torch.arange(12.0).view(12, 1)
STOP = 5


class Model(nn.Module):
    """Is told of each of its steps."""

    def __init__(self, steps: list[int]) -> None:
        super().__init__()
        self.line, self.steps = nn.Linear(1, 1), steps

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.steps.append(1)
        return {"loss": self.line(x).square().mean()}


def with_huggingface(folder: Path, epochs: int, stops: bool, steps: list[int]) -> None:
    """Stop in mid-epoch, as after an evaluation."""

    class Stops(TrainerCallback):
        def on_step_end(self, args, state, control, **given):  # type: ignore[no-untyped-def]
            control.should_training_stop |= stops and state.global_step == STOP

    elastic = huggingface.ElasticCallback(folder, every=100, save_every=100)
    arguments = TrainingArguments(
        str(folder / "out"),
        num_train_epochs=epochs,
        per_device_train_batch_size=4,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        Model(steps), arguments, train_dataset=[{"x": each} for each in DATA], callbacks=[elastic, Stops()]
    )
    trainer.train(resume_from_checkpoint=elastic.newest(trainer))


def with_lightning(folder: Path, epochs: int, stops: bool, steps: list[int]) -> None:
    """Stop in mid-epoch."""

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model(steps)

        def training_step(self, batch, _):  # type: ignore[no-untyped-def]
            return self.model(*batch)["loss"]

        def configure_optimizers(self):  # type: ignore[no-untyped-def]
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Stops(Callback):
        def on_train_batch_end(self, trainer, *_):  # type: ignore[no-untyped-def]
            trainer.should_stop |= stops and trainer.global_step == STOP

    elastic = lightning.ElasticCallback(folder, every=100, save_every=100)
    trainer = Lightning(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[elastic, Stops()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), lightning.ResumableLoader(TensorDataset(DATA), batch_size=4))


def with_accelerate(folder: Path, epochs: int, stops: bool, steps: list[int]) -> None:
    """Leave both loops in mid-epoch."""
    for shared in (AcceleratorState, GradientState):
        shared._reset_state()
    accelerator = ElasticAccelerator(folder, every=100, save_every=100, cpu=True)
    model = Model(steps)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(TensorDataset(DATA), 4))
    for _, batches in accelerator.epochs(loader, epochs):
        for (x,) in batches:
            accelerator.backward(model(x)["loss"])
            optimizer.step()
            optimizer.zero_grad()
            if stops and sum(steps) == STOP:
                break
        if stops and sum(steps) == STOP:
            break


LOOPS: dict[str, Callable[[Path, int, bool, list[int]], None]] = {
    "huggingface": with_huggingface,
    "lightning": with_lightning,
    "accelerate": with_accelerate,
}

if __name__ == "__main__":
    folder, name = Path(sys.argv[1]), sys.argv[2]
    for epochs, stops in ((3, True), (3, False), (3, False), (4, False)):
        steps: list[int] = []
        LOOPS[name](folder, epochs, stops, steps)
        print("made", sum(steps), flush=True)
