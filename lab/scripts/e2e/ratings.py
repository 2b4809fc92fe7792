"""A training over parameter servers that counts its records in the model: ratings.py FOLDER RECORDS USERS.

Each step adds its time to FOLDER/steps, the first worker writes its pod to FOLDER/chief. Until
FOLDER/gate is there, steps are slow, the last ones very slow.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from elasticjob.trainer.shards import Dataset
from elasticjob.trainer.tensorflow import Servers, Step

FOLDER, RECORDS, USERS = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
SLOWLY = 0.04


def model() -> Step:
    """Return an embedding and two layers, and a count of each record."""
    user, score = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None])
    table = tf.get_variable("users", [USERS, 32], initializer=tf.random_normal_initializer(0, 0.1))
    x = tf.nn.embedding_lookup(table, user, partition_strategy="div")
    for i, units in enumerate((16, 1)):
        w = tf.get_variable(f"w{i}", [x.shape[1], units])
        b = tf.get_variable(f"b{i}", [units], initializer=tf.zeros_initializer())
        x = tf.matmul(x, w) + b
        x = tf.nn.relu(x) if units > 1 else x[:, 0]
    loss = tf.reduce_mean((x - score) ** 2)
    train = tf.train.AdagradOptimizer(0.05).minimize(loss)
    record = tf.placeholder(tf.int32, [None])
    seen = tf.get_variable("seen", [RECORDS], tf.int32, initializer=tf.zeros_initializer(), trainable=False)
    return Step(
        tf.group(train, *counts(seen, record)), {"user": user, "score": score, "record": record}, loss=loss
    )


def counts(variable: Any, ids: Any) -> list[Any]:
    """Return what adds one to each of the rows `ids`."""
    found = []
    for part in variable:
        first = part._save_slice_info.var_offset[0]
        rows = tf.boolean_mask(ids, (ids >= first) & (ids < first + part.shape[0])) - first
        found.append(part.scatter_add(tf.IndexedSlices(tf.ones_like(rows), rows)))
    return found


data = Dataset(name="ratings", size=RECORDS, shard=1_000)
with (
    (FOLDER / "steps").open("a", buffering=1) as steps,
    Servers(model, data, checkpoint=FOLDER / "kept", save_every=1e6) as servers,
):
    for records, step in servers.steps(batch=100):
        if servers.is_chief:
            (FOLDER / "chief").write_text(os.environ.get("POD_NAME", ""))
        if (FOLDER / "save").exists() and servers.is_chief:
            (FOLDER / "save").unlink(missing_ok=True)
            servers.save()
        ids = np.array(records)
        made = step(record=ids, user=ids * 7 % USERS, score=(ids % 7).astype(np.float32))
        if made:
            steps.write(f"{time.time():.3f} {os.environ.get('POD_NAME')} {made['loss']:.3f}\n")
        slow = SLOWLY if records[0] < RECORDS * 3 // 4 else 0.5
        time.sleep(0 if (FOLDER / "gate").exists() else slow)
