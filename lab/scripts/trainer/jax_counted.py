"""Trains with JAX: adds 1 in each step, and counts how often each record was taken. Ends when it is let end.

python jax_counted.py [seconds of a step] [checkpoint folder] [what JAX lacks]
"""

import json
import os
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from elasticjob.trainer.jax import Dataset, Elastic, coordination

PACE, FOLDER, LACKS = (*sys.argv[1:], *("0.02", "", "")[len(sys.argv) - 1 :])
RECORDS = 100
if LACKS:
    coordination.missing = lambda: LACKS


def say(**more: object) -> None:
    """Print a line; a single write, so that those of several workers do not mix."""
    line = {"pid": os.getpid(), "rank": elastic.rank, "world": elastic.world_size, "round": elastic.round}
    print(json.dumps({**line, "at": time.time(), **more}), flush=True)


def opened() -> bool:
    """Whether the test lets the training end."""
    return (Path(os.environ["COUNTED"]) / "open").exists()


ones = jax.jit(lambda weight: weight / weight)  # a mean that is exactly 1, computed by JAX
start = {
    "sum": jnp.zeros(1000),
    "seen": np.zeros(RECORDS, np.int32),
    "key": jax.random.key(7),
    "half": jnp.ones(3, jnp.bfloat16),
    "steps": 0,
}
data = Dataset(name="counted", size=RECORDS, epochs=0, shuffle=True)
elastic = Elastic(start, data, batch=16, checkpoint=FOLDER or None)
say(begins=elastic.progress.step)
for step in elastic.steps():
    with step:
        for records in step:
            taken = np.zeros(RECORDS, np.float32)
            taken[records] = 1 / len(records)
            step.add((ones(jnp.full(1000, 1.0 + len(records))), taken, float(opened())))
        one, taken, ends = step.mean()
        state = elastic.state
        elastic.state = {
            "sum": state["sum"] + one,
            "seen": state["seen"] + np.rint(np.asarray(taken) * step.records).astype(np.int32),
            "key": jax.random.split(state["key"])[0],
            "half": state["half"],
            "steps": state["steps"] + 1,
        }
        step.log(loss=1 / step.number)
    say(step=elastic.progress.step, done=step.done)
    if step.done and ends > 0:
        break
    time.sleep(float(PACE))
say(
    sums=sorted({float(each) for each in elastic.state["sum"]}),
    seen=elastic.state["seen"].tolist(),
    steps=elastic.state["steps"],
    samples=elastic.progress.samples,
    key=jax.random.key_data(elastic.state["key"]).tolist(),
    half=str(elastic.state["half"].dtype),
)
