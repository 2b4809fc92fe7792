"""
Train a small convolutional network to read handwritten digits, on as many workers as there happen to be.

alone:          python train.py
two processes:  elasticjob run --nproc-per-node 2 train.py --epochs 40
a cluster:      kubectl apply -f job.yaml

Workers may die, join and leave at any moment. The loop below does not mention it.
"""

import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

from elasticjob.trainer.torch import Elastic

# -----------------------------------------------------------------------------
# settings: sensible for this data, override any of them on the command line
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--global-batch", type=int, default=48, help="images per step")
parser.add_argument("--workers", type=int, default=0, help="processes that read images ahead")
parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
parser.add_argument("--lr", type=float, default=1e-3, help="highest learning rate")
parser.add_argument("--dropout", type=float, default=0.2)
parser.add_argument("--clip", type=float, default=1.0, help="largest norm of the gradients")
parser.add_argument("--checkpoint", default="", help="folder; training goes on from its newest checkpoint")
parser.add_argument("--save-every", type=int, default=200, help="steps")
parser.add_argument("--print-every", type=int, default=100, help="steps")
parser.add_argument("--seed", type=int, default=1337)
args = parser.parse_args()


# -----------------------------------------------------------------------------
# data: 1,797 images of 8 x 8 pixels, real handwriting; every fifth is kept for the test
def digits():
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16.0
    labels = torch.tensor(labels)
    test = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~test], labels[~test]), TensorDataset(images[test], labels[test])


# -----------------------------------------------------------------------------
# model: two convolutions, one hidden layer
class Net(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.fc1 = nn.Linear(2 * width * 4 * 4, 128)
        self.fc2 = nn.Linear(128, 10)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.dropout(F.relu(self.fc1(x.flatten(1))))
        return self.fc2(x)


# every worker starts with the same weights, though only the oldest one's count
torch.manual_seed(args.seed)
train, test = digits()
device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cuda":
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))  # each worker of a node has its own
model = Net(args.width, args.dropout).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2)
# the rate falls with the steps; it need not know of workers: the global batch is the same for any number
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.999**step + 0.01)

elastic = Elastic(
    model,
    optimizer,
    scheduler=scheduler,
    seed=args.seed,
    checkpoint=args.checkpoint or None,
    save_every=args.save_every,
)
data = elastic.loader(train, global_batch=args.global_batch, workers=args.workers)
test_data = elastic.loader(test, global_batch=256, shuffle=False)
if elastic.is_main:
    size = sum(p.numel() for p in model.parameters())
    print(f"{size:,} parameters, {len(train):,} images, {elastic.world_size} worker(s)", end=", ")
    print(f"starting after step {elastic.progress.step}")


# -----------------------------------------------------------------------------
# the score of a batch of the test
def score(batch):
    images, labels = batch
    return {"accuracy": (elastic.model(images).argmax(1) == labels).float().mean()}


# -----------------------------------------------------------------------------
# training loop; the test is shared out too
for step in elastic.steps(data, epochs=args.epochs):
    with step:
        for images, labels in step:
            loss = F.cross_entropy(elastic.model(images), labels)
            step.backward(loss)
        step.log(grad_norm=step.clip_grad_norm_(args.clip))
    if elastic.is_main and step.done and step.number % args.print_every == 0:
        print(f"step {step.number}: epoch {step.epoch}, loss {step.loss:.4f}, {elastic.world_size} worker(s)")

scores = elastic.evaluate(test_data, score)
elastic.report(**scores)
if elastic.is_main:
    print(f"done: {scores['accuracy']:.1%} of {len(test)} test images right, {elastic.progress.step} steps")
