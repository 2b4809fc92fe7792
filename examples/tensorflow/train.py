"""Recommendations over parameter servers that come, go and move: `python train.py FOLDER [RECORDS]`.

The table of users lies in rows over the servers, with its optimizer's values. FOLDER has the checkpoints, for
servers and workers alike: `tf.train.load_checkpoint(tf.train.latest_checkpoint(FOLDER))` reads the last one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from elasticjob.trainer.shards import Dataset
from elasticjob.trainer.tensorflow import Servers, Step

FOLDER, RECORDS = sys.argv[1], int((*sys.argv, "200000")[2])
USERS, ITEMS, WIDTH = 50_000, 2_000, 32


def model() -> Step:
    """Called again for each number of servers: variables are there, all else is in this process."""
    user = tf.placeholder(tf.int32, [None])
    item = tf.placeholder(tf.int32, [None])
    score = tf.placeholder(tf.float32, [None])
    near = tf.random_normal_initializer(0, 0.1)
    users = tf.get_variable("users", [USERS, WIDTH], initializer=near)
    items = tf.get_variable("items", [ITEMS, WIDTH], initializer=near)
    x = tf.concat(
        [
            tf.nn.embedding_lookup(users, user, partition_strategy="div"),
            tf.nn.embedding_lookup(items, item, partition_strategy="div"),
        ],
        axis=1,
    )
    for number, units in enumerate((32, 1)):
        kernel = tf.get_variable(f"kernel{number}", [x.shape[1], units])
        bias = tf.get_variable(f"bias{number}", [units], initializer=tf.zeros_initializer())
        x = tf.matmul(x, kernel) + bias
        x = tf.nn.relu(x) if units > 1 else x[:, 0]
    loss = tf.reduce_mean((x - score) ** 2)
    train = tf.train.AdagradOptimizer(0.05).minimize(loss)
    return Step(train, {"user": user, "item": item, "score": score}, loss=loss)


def read(records: Sequence[int]) -> dict[str, np.ndarray]:
    """Return users, items and scores; yours come from files."""
    number = np.asarray(records)
    user, item = number * 2_654_435_761 % 1_000, number * 40_503 % ITEMS
    return {"user": user, "item": item, "score": (user % 7 - item % 3).astype(np.float32)}


data = Dataset(name="ratings", size=RECORDS, shard=4_096)
with Servers(model, data, checkpoint=FOLDER, save_every=60) as servers:
    for number, (records, step) in enumerate(servers.steps(batch=512)):
        made = step(**read(records))
        if made and number % 20 == 0:  # None: the servers changed, and the same records come again
            print(f"step {number} loss {made['loss']:.3f}", flush=True)
