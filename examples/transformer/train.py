"""
Train a small transformer to write Python, character by character, on the sources of Python's own library.

alone:          python train.py
two processes:  elasticjob run --nproc-per-node 2 train.py --steps 2000

Warm-up, clipping, a moving average of the weights, validation, and bfloat16 on a GPU: what a real training
has. Workers may die, join and leave at any moment; the loop does not mention it.
"""

import argparse
import inspect
import json
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import Dataset

from elasticjob.trainer.torch import Elastic

# -----------------------------------------------------------------------------
# settings
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--global-batch", type=int, default=32, help="sequences per step")
parser.add_argument("--length", type=int, default=64, help="characters of a sequence")
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--warm-up", type=int, default=50, help="steps")
parser.add_argument("--validate-every", type=int, default=250, help="steps")
parser.add_argument("--workers", type=int, default=0, help="processes that read ahead")
parser.add_argument("--checkpoint", default="", help="folder; training goes on from its newest checkpoint")
args = parser.parse_args()


# -----------------------------------------------------------------------------
# data: sequences of bytes, each predicts the next one; the last tenth of the text is for validation
class Text(Dataset):
    def __init__(self, text):
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()

    def __len__(self):
        return (len(self.text) - 1) // args.length

    def __getitem__(self, index):
        start = index * args.length + int(torch.randint(0, 1 + (len(self.text) - 1) % args.length, ()))
        piece = self.text[start : start + args.length + 1]
        return {"x": piece[:-1], "y": piece[1:]}


source = "".join(map(inspect.getsource, (argparse, inspect, json.decoder))).encode("ascii", "replace")
cut = len(source) * 9 // 10


# -----------------------------------------------------------------------------
# model
class Transformer(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.characters = nn.Embedding(128, width)
        self.places = nn.Embedding(args.length, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(args.length))

    def forward(self, x):
        h = self.characters(x) + self.places.weight
        return self.head(self.body(h, mask=self.mask, is_causal=True))


torch.manual_seed(1337)
device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cuda":
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))  # each worker of a node has its own
model = Transformer(args.width, args.layers).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)


def rate(step):
    return min(1, (step + 1) / args.warm_up) * 0.5 * (1 + math.cos(math.pi * min(1, step / args.steps)))


scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))

elastic = Elastic(
    model, optimizer, scheduler=scheduler, keep={"ema": ema}, checkpoint=args.checkpoint or None
)
data = elastic.loader(Text(source[:cut]), global_batch=args.global_batch, workers=args.workers)
test = elastic.loader(Text(source[cut:]), global_batch=args.global_batch, shuffle=False)


def loss_of(net, batch):
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        return F.cross_entropy(net(batch["x"]).flatten(0, 1), batch["y"].flatten())


# -----------------------------------------------------------------------------
# training loop
for step in elastic.steps(data, epochs=10_000, steps=args.steps):
    with step:
        for batch in step:
            step.backward(loss_of(elastic.model, batch))
        step.log(grad_norm=step.clip_grad_norm_(1.0), lr=scheduler.get_last_lr()[0])
    if not step.done:
        continue
    ema.update_parameters(model)
    if step.number % args.validate_every == 0 or step.number == args.steps:
        scores = elastic.evaluate(test, lambda batch: {"bits": loss_of(ema.module, batch) / math.log(2)})
        if elastic.is_main:
            print(f"step {step.number}: loss {step.loss:.3f}, {scores['bits']:.3f} bits per character")
