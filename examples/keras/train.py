"""A Keras 3 model whose weights lie on parameter servers, which may come, go, move and die while it trains.

    python train.py --records 100000

TensorFlow makes gradients only: no session, graph or strategy knows the servers, so a change of them costs it
nothing. Scores are made here: they depend on the user and the hour.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
import tensorflow as tf

from elasticjob.trainer.shards import Dataset
from elasticjob.trainer.store import Adagrad, Adam, Normal, Store, Table, Zeros

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--records", type=int, default=100_000)
parser.add_argument("--users", type=int, default=2_000)
parser.add_argument("--width", type=int, default=16, help="columns of a user's row")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch", type=int, default=250)
parser.add_argument("--save-every", type=float, default=60.0, help="seconds between checkpoints")
args = parser.parse_args()

keras.utils.set_random_seed(0)  # each worker begins with the same weights
model = keras.Sequential(
    [
        keras.layers.Input((args.width + 1,)),
        keras.layers.Dense(64, "relu"),
        keras.layers.Dense(1),
    ]
)
# The servers have what training adds to the first weights, a row of a weight matrix as a row of its table.
first = [each.numpy().reshape(-1, each.shape[-1]) for each in model.trainable_variables]
weights = [Table(f"weights-{n}", rows.shape[1], Adam(0.005), Zeros()) for n, rows in enumerate(first)]
tables = [Table("users", args.width, Adagrad(0.2), Normal(0.1)), *weights]
data = Dataset(
    name="scores", size=args.records, shard=2_500, epochs=args.epochs, shuffle=True, batch=args.batch
)


@tf.function(reduce_retracing=True)
def gradients(rows: tf.Tensor, hours: tf.Tensor, scores: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Return the loss, and the gradients of the users' rows and of all weights."""
    with tf.GradientTape() as tape:
        tape.watch(rows)
        guesses = model(tf.concat([rows, hours[:, None]], axis=1))[:, 0]
        loss = tf.reduce_mean((guesses - scores) ** 2)
    return loss, tape.gradient(loss, [rows, *model.trainable_variables])


with Store(tables, data, save_every=args.save_every) as store:
    for number, batch in enumerate(store.batches(args.batch), start=1):
        records = np.asarray(batch.records)
        users, hours = records * 7919 % args.users, (records % 24 / 24).astype(np.float32)
        scores = (users % 7 + 3 * hours).astype(np.float32)
        for table, rows, variable in zip(weights, first, model.trainable_variables, strict=True):
            now = rows + store.pull(table.name, range(len(rows)))
            variable.assign(now.reshape(variable.shape))
        loss, (of_users, *of_weights) = gradients(store.pull("users", users), hours, scores)
        update = {"users": (users, of_users.numpy() * args.batch)}  # each row by its own records
        for table, rows, gradient in zip(weights, first, of_weights, strict=True):
            update[table.name] = (range(len(rows)), gradient.numpy().reshape(rows.shape))
        batch.push(update)
        if number % 50 == 0:
            print(f"batch {number}: loss {loss.numpy():.3f}", flush=True)
