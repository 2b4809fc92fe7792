"""`Elastic` of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
from shared import args, at, dataset, export, is_other, last_line, say

from elasticjob.trainer.jax import Elastic

start = {
    "seen": jnp.zeros(args.records),
    "other": jnp.linspace(-1, 1, 4 if not is_other() else 7),
    "touched": 0,
    "key": jax.random.key(7),
}
if args.half:
    start["halves"] = jnp.zeros(3, args.half)
elastic = Elastic(
    start,
    dataset(),
    batch=0 if args.wrong else args.batch,
    checkpoint=args.folder / "kept",
    save_every=args.save_every,
)
ones = jax.jit(lambda given: given / given)
say(begins=elastic.progress.step, rank=elastic.rank)
for step in elastic.steps():
    number, rank = elastic.progress.step + 1, elastic.rank
    with step:
        state = elastic.state = {**elastic.state, "touched": elastic.state["touched"] + 1}
        for records in step:
            at("before", number, rank)
            taken = np.zeros(args.records, np.float32)
            taken[np.asarray(records)] = 1 / len(records)
            far = 2 / 50 * (state["other"] - float(np.mean(records)) / 50)
            more = {"halves": jnp.full(3, 150, args.half)} if args.half else {}
            step.add({"seen": ones(jnp.ones(args.records)) * taken, "other": far, **more})
        mean = step.mean()
        at("after", number, rank)
        elastic.state = {
            **state,
            "seen": state["seen"] + mean["seen"],
            "other": state["other"] - mean["other"],
            "key": jax.random.split(state["key"])[0],
            **({"halves": state["halves"] + mean["halves"]} if args.half else {}),
        }
    if not step.done:
        continue
    at("behind", number, rank)
    say(step=number, rank=rank, round=elastic.round)
    if number == args.stop:
        break
state = elastic.state
seen = (np.asarray(state["seen"], np.float64) * args.batch).tolist()
rest = {
    name: np.asarray(state[name], np.float64).ravel().tolist()
    for name in state
    if name not in ("key", "seen")
}
if elastic.is_main:
    export(lambda path: path.write_bytes(np.asarray(seen).tobytes()))
say(end={"seen": seen, **rest, "key": jax.random.key_data(state["key"]).tolist()}, rank=elastic.rank)
last_line()
