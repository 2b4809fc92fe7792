"""`Elastic` of JAX.

With `--epochs=0` it trains until there is a file `open` in the folder $COUNTED. Steps are printed, too.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elasticjob.trainer.jax import Elastic, coordination
from lab.scripts.loops.run import args, at, dataset, end, export, is_other, last_line, place, say
from lab.scripts.told import FOLDER

if args.lacks:
    coordination.missing = lambda: args.lacks
start = {
    "seen": jnp.zeros(args.records),
    "sum": jnp.zeros(1000),
    "other": jnp.linspace(-1, 1, 4 if not is_other() else 7),
    "touched": 0,
    "key": jax.random.key(7),
    "half": jnp.ones(3, jnp.bfloat16),
}
if args.half:
    start["halves"] = jnp.zeros(3, args.half)
elastic = Elastic(
    start,
    dataset(),
    batch=0 if args.wrong else args.batch,
    checkpoint=place or None,
    save_every=args.save_every,
)
ones = jax.jit(lambda given: given / given)  # exactly 1, computed by JAX
say(begins=elastic.progress.step, rank=elastic.rank)
for step in elastic.steps():
    number, rank = elastic.progress.step + 1, elastic.rank
    with step:
        state = elastic.state = {**elastic.state, "touched": elastic.state["touched"] + 1}
        for records in step:
            at("before", number, rank)
            taken = np.zeros(args.records, np.float32)
            taken[np.asarray(records)] = 1 / len(records)
            one = ones(jnp.full(1000, 1.0 + len(records)))
            far = 2 / 50 * (state["other"] - float(np.mean(records)) / 50)
            more: dict[str, Any] = {"halves": jnp.full(3, 150, args.half)} if args.half else {}
            more["ends"] = float(not args.epochs and (FOLDER / "open").exists())
            step.add({"seen": taken, "sum": one, "other": far, **more})
        mean = step.mean()
        at("after", number, rank)
        elastic.state = {
            **state,
            "seen": state["seen"] + mean["seen"] * step.records,
            "sum": state["sum"] + mean["sum"],
            "other": state["other"] - mean["other"],
            "key": jax.random.split(state["key"])[0],
            **({"halves": state["halves"] + mean["halves"]} if args.half else {}),
        }
    if not step.done:
        continue
    at("behind", number, rank)
    say(prints=True, step=number, done=number, rank=rank, world=elastic.world_size, round=elastic.round)
    if number == args.stop or mean["ends"] > 0:
        break
state = {**elastic.state}
state["key"], state["half"] = jax.random.key_data(state["key"]), str(state["half"].dtype)
if elastic.is_main:
    export(lambda path: path.write_bytes(np.asarray(state["seen"]).tobytes()))
end(**state, samples=elastic.progress.samples)
last_line()
