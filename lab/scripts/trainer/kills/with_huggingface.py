"""Trainer: accumulation, dropout, evaluation, early stopping, a scaler."""

import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments, logging
from transformers.trainer_callback import ExportableState

from elasticjob.trainer.integrations.huggingface import ElasticCallback
from lab.jobs.training.kills import Model, main, weights

logging.set_verbosity_info()  # Trainer's word that it has no random numbers is no warning


class Named(Model):
    """Returns its loss as Trainer expects it."""

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        return {"loss": super().forward(inputs)}


class Counts(TrainerCallback, ExportableState):
    """Counts what it sees."""

    def __init__(self) -> None:
        self.begun = self.ended = self.evaluations = 0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.begun += 1

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ended += 1

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        self.evaluations += 1

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": dict(vars(self))}


def train(folder: Path, kill: int | None) -> dict[str, Any]:
    """Two epochs of five micro-batches, three steps each: the last one is of one micro-batch."""
    inputs = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    data = [{"inputs": each, "labels": each.sum()} for each in inputs]
    model, elastic = Named(kill), ElasticCallback(folder, every=1, save_every=1)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            num_train_epochs=2,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=2,
            metric_for_best_model="loss",
            load_best_model_at_end=False,
            restore_callback_states_from_checkpoint=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=data,
        eval_dataset=data,
        callbacks=[Counts(), EarlyStoppingCallback(9), elastic],
    )
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    trainer.train(resume_from_checkpoint=elastic.newest(trainer))
    counts, stopping = (
        next(each for each in trainer.callback_handler.callbacks if isinstance(each, kind))
        for kind in (Counts, EarlyStoppingCallback)
    )
    keys = ("step", "loss", "eval_loss", "grad_norm", "learning_rate")
    return {
        "weights": weights(model),
        "counts": counts.state(),
        "stopping": stopping.state(),
        "best": trainer.state.best_metric,
        "scaler": trainer.accelerator.scaler.state_dict(),
        "logged": [{key: each[key] for key in keys if key in each} for each in trainer.state.log_history],
    }


main(train, 10)
