"""Hugging Face's Trainer with our callback: a tiny GPT-2 that learns to count."""

import tempfile

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from elasticjob.trainer.integrations.huggingface import ElasticCallback
from lab.scripts.life import told


class Counting(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Sentences that count, each from another number on."""

    def __init__(self, records: int) -> None:
        self.records = records

    def __len__(self) -> int:
        return self.records

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        told.slow()
        numbers = (torch.arange(8) + index) % 16
        return {"input_ids": numbers, "labels": numbers, "number": torch.tensor(index)}


class Telling(Trainer):
    """Tells the records of each step."""

    lines: told.Told

    def compute_loss(self, model, inputs, *args, **more):  # type: ignore[no-untyped-def]  # transformers' own
        """Return the loss of a batch."""
        records = inputs.pop("number").tolist()
        epoch = int(self.state.epoch or 0)
        self.lines.say(step=self.state.global_step + 1, epoch=epoch, round=told.round_of(), records=records)
        return super().compute_loss(model, inputs, *args, **more)


class Done(TrainerCallback):
    """Tells what is done."""

    def __init__(self, lines: told.Told) -> None:
        self.lines = lines

    def on_train_begin(self, args, state, control, **more):  # type: ignore[no-untyped-def]  # transformers' own
        """Tell where the training begins."""
        self.lines.say(begins=state.global_step, round=told.round_of())

    def on_step_end(self, args, state, control, **more):  # type: ignore[no-untyped-def]  # transformers' own
        """Tell of a step."""
        self.lines.step()
        self.lines.say(done=state.global_step, round=told.round_of())


def main() -> None:
    args, lines = told.arguments(), told.Told()
    torch.manual_seed(7)
    size = {"vocab_size": 16, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**size, use_cache=False))  # with its dropout
    elastic = ElasticCallback(args.place, every=args.memory_every, save_every=args.save_every)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Telling(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=args.epochs,
                per_device_train_batch_size=args.batch,
                remove_unused_columns=False,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
                seed=args.seed,
            ),
            train_dataset=Counting(args.records),
            callbacks=[Done(lines), elastic],  # a save may be the end,
        )
        trainer.lines = lines
        trainer.train(resume_from_checkpoint=elastic.newest(trainer))
    scheduler = trainer.lr_scheduler
    lines.end(model=model.state_dict(), scheduler=scheduler.state_dict() if scheduler else {})


if __name__ == "__main__":
    main()
