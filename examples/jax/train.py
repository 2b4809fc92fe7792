"""
Train a small network to read handwritten digits with JAX, on as many workers as there happen to be.

alone:          python train.py
two processes:  elasticjob run --nproc-per-node 2 train.py --epochs 40
a cluster:      kubectl apply -f job.yaml

Workers may die, join and leave at any moment. The loop below does not mention it.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

from elasticjob.trainer.jax import Dataset, Elastic

# -----------------------------------------------------------------------------
# settings: sensible for this data, override any of them on the command line
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--batch", type=int, default=48, help="images per step, of all workers together")
parser.add_argument("--width", type=int, default=64, help="of the hidden layer")
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--checkpoint", default="", help="folder; training goes on from its newest checkpoint")
parser.add_argument("--save-every", type=int, default=200, help="steps")
parser.add_argument("--print-every", type=int, default=100, help="steps")
parser.add_argument("--seed", type=int, default=1337)
args = parser.parse_args()

# -----------------------------------------------------------------------------
# data: 1,797 images of 8 x 8 pixels, real handwriting; every fifth is kept for the test.
# It stays in numpy: what JAX holds outside of the state is copied at each change of the world.
images, labels = load_digits(return_X_y=True)
images = np.asarray(images, np.float32) / 16.0
is_test = np.arange(len(labels)) % 5 == 0
test_images, test_labels = images[is_test], labels[is_test]
images, labels = images[~is_test], labels[~is_test]


# -----------------------------------------------------------------------------
# model: one hidden layer
def predict(weights, x):
    hidden = jax.nn.relu(x @ weights["w1"] + weights["b1"])
    return hidden @ weights["w2"] + weights["b2"]


def loss(weights, x, y):
    return -jnp.mean(jax.nn.log_softmax(predict(weights, x))[jnp.arange(len(y)), y])


gradient = jax.jit(jax.value_and_grad(loss))


@jax.jit
def update(state, gradients):
    """SGD with momentum."""
    moved = jax.tree.map(lambda v, g: args.momentum * v + g, state["velocity"], gradients)
    weights = jax.tree.map(lambda w, v: w - args.lr * v, state["weights"], moved)
    return {"weights": weights, "velocity": moved}


# every worker starts with the same weights, though only the oldest one's count
one, two = jax.random.split(jax.random.key(args.seed))
weights = {
    "w1": jax.random.normal(one, (64, args.width)) / 8,
    "b1": jnp.zeros(args.width),
    "w2": jax.random.normal(two, (args.width, 10)) / args.width**0.5,
    "b2": jnp.zeros(10),
}
elastic = Elastic(
    {"weights": weights, "velocity": jax.tree.map(jnp.zeros_like, weights)},
    Dataset(name="digits", size=len(images), epochs=args.epochs, shuffle=True, seed=args.seed),
    batch=args.batch,
    checkpoint=args.checkpoint or None,
    save_every=args.save_every,
)
if elastic.is_main:
    print(f"{len(images):,} images, {elastic.world_size} worker(s), after step {elastic.progress.step}")

# -----------------------------------------------------------------------------
# training loop
for step in elastic.steps():
    with step:
        for records in step:
            step.add(gradient(elastic.state["weights"], images[records], labels[records]))
        mean, gradients = step.mean()
        elastic.state = update(elastic.state, gradients)
        step.log(loss=mean)
    if elastic.is_main and step.done and step.number % args.print_every == 0:
        print(f"step {step.number}: epoch {step.epoch}, loss {mean:.4f}, {elastic.world_size} worker(s)")

if elastic.is_main:
    right = np.mean(np.argmax(predict(elastic.state["weights"], test_images), 1) == test_labels)
    print(f"done: {right:.1%} of {len(test_labels)} test images right, {elastic.progress.step} steps")
