"""TensorFlow's sessions over servers."""

import os

import numpy as np
import tensorflow.compat.v1 as tf

from elasticjob.trainer.tensorflow import Servers, Step
from lab.scripts.loops.run import args, at, dataset, export, is_other, last_line, say

rank, number = int(os.environ["ELASTICJOB_INDEX"]), 0


def inside(records: np.ndarray) -> np.ndarray:
    """Fail in a step, or not."""
    at("in", number + 1, rank, whole=True)
    return records


def model() -> Step:
    """Return a row for each record, that a step which takes it raises by one, and a loss."""
    record = tf.placeholder(tf.int32, [None])
    seen = tf.get_variable(
        "seen" if not is_other() else "others", [args.records, 1], initializer=tf.zeros_initializer()
    )
    taken = tf.reshape(tf.numpy_function(inside, [record], tf.int32), [-1])
    other = tf.get_variable("other", [4], initializer=tf.zeros_initializer())
    rows = tf.nn.embedding_lookup(seen, taken, partition_strategy="div")
    far = tf.reduce_sum((other - tf.reduce_mean(tf.cast(record, tf.float32)) / 50) ** 2) / 50
    loss = far - tf.reduce_sum(rows)
    train = [] if args.wrong else tf.train.GradientDescentOptimizer(1.0).minimize(loss)
    return Step(train, {"record": record}, loss=loss, seen=rows)


data = dataset(shard=2 * args.batch)
with Servers(model, data, checkpoint=args.folder / "kept", save_every=args.seconds_between_saves) as servers:
    say(begins=0, rank=rank)
    for records, step in servers.steps(batch=args.batch):
        at("before", number + 1, rank, whole=True)
        ids = np.asarray(records)
        made = step(record=ids)
        if made is None:
            continue
        number += 1
        at("after", number, rank)
        at("behind", number, rank)
        say(done=number, rank=rank, records=ids.tolist())
        if number == args.stop:
            break
export(lambda path: path.write_text("done"))
last_line()
