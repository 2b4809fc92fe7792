"""Hugging Face's Trainer with checkpoints in memory: one callback, and one argument of train().

elasticjob run --nproc-per-node 2 train.py /mnt/run
"""

import argparse
import json
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from elasticjob.trainer.integrations.huggingface import ElasticCallback

parser = argparse.ArgumentParser()
parser.add_argument("checkpoint", help="folder or URL of the checkpoints")
parser.add_argument("--epochs", type=int, default=3)


class Counting(torch.utils.data.Dataset):
    """Sentences that count: 256 of them, each from another number on."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        numbers = (torch.arange(16) + index) % 64
        return {"input_ids": numbers, "labels": numbers}


class Told(TrainerCallback):
    """Prints the loss of each step."""

    def on_log(self, args, state, control, logs=None, **more):
        if state.is_world_process_zero and "loss" in logs:
            print(json.dumps({"step": state.global_step, "loss": float(logs["loss"])}), flush=True)


def main() -> None:
    """Train a tiny GPT-2."""
    args = parser.parse_args()
    torch.manual_seed(0)
    size = {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
    config = GPT2Config(**size, use_cache=False)
    elastic = ElasticCallback(args.checkpoint, every=5, save_every=50)
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            num_train_epochs=args.epochs,
            per_device_train_batch_size=8,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=Counting(),
        callbacks=[elastic, Told()],
    )
    trainer.train(resume_from_checkpoint=elastic.newest(trainer))


main()
