"""`Elastic`: a training loop in JAX whose number of workers may change between any two steps.

    elastic = Elastic(state, Dataset(name="digits", size=len(images), epochs=10, shuffle=True), batch=64)
    for step in elastic.steps():
        with step:
            for records in step:
                step.add(gradient(elastic.state, images[records], labels[records]))
            elastic.state = update(elastic.state, step.mean())

A lost peer breaks the step: it comes again, with the same records, in the next world. A planned join or leave
ends the world after a step.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from typing import Any

from elasticjob.trainer.checks import wants, whole
from elasticjob.trainer.jax.run import Run
from elasticjob.trainer.jax.step import Step
from elasticjob.trainer.loop.turns import Loop, OnChange
from elasticjob.trainer.records.done import Done, in_turn
from elasticjob.trainer.shards import Dataset, as_sent


class Elastic:
    """Trains `state`, a pytree of arrays and numbers, in any world that the agent assigns.

    `data` says how many records there are, how often they are read and whether they are shuffled; a step
    takes `batch` of them, the same ones for every number of workers. `state` is the whole state: weights,
    optimizer, keys of random numbers. At a change of the world it goes to the host's memory, JAX's devices
    are made anew, and the oldest worker's state is given to newcomers. Functions are compiled again then.

    With `checkpoint`, a folder that all workers reach, the main worker writes the state there each
    `save_every` steps, at the end and when it is told to leave; a job that begins goes on from the newest
    one. `on_change(round, world_size, lost)` is called after each change of the world, `lost` being the names
    of lost nodes. Without an agent this is a single worker.
    """

    def __init__(
        self,
        state: Any,
        data: Dataset,
        *,
        batch: int,
        checkpoint: str | bytes | os.PathLike[Any] | None = None,
        save_every: int = 1000,
        memory_every: int = 100,
        on_change: OnChange | None = None,
    ) -> None:
        data, batch = as_sent(data), whole("batch", batch, "a whole number of records, at least 1")
        if not data.size:
            raise ValueError(f"dataset {data.name} has no size: give the number of its records")
        if data.partitions:
            raise ValueError(f"dataset {data.name} has partitions: read streams by trainer.shards")
        splitter = f"dataset {data.name}: splitter"
        wants(splitter, data.splitter, data.splitter in ("table", "text"), '"table" or "text", the same here')
        self._looped = False
        self._run = Run(
            state,
            data,
            batch=batch,
            checkpoint=os.fsdecode(checkpoint) if checkpoint else None,
            save_every=save_every,
            memory_every=memory_every,
            environment=os.environ,
        )
        self._loop = Loop(self._run, on_change)
        atexit.register(self._run.close)

    @property
    def state(self) -> Any:
        """The state, with its arrays on this worker's first device. Set it in each step."""
        return self._run.state.tree

    @state.setter
    def state(self, state: Any) -> None:
        self._run.state.tree = state

    @property
    def rank(self) -> int:
        """The rank of this worker in the current world; the oldest worker has 0."""
        return self._run.peers.rank

    @property
    def world_size(self) -> int:
        """The number of workers now."""
        return self._run.peers.size

    @property
    def round(self) -> int:
        """The number of the present world; it rises with every change."""
        return self._run.peers.place.round

    @property
    def is_main(self) -> bool:
        """Whether this worker should print and write files."""
        return self.rank == 0

    @property
    def progress(self) -> Done:
        """Steps and records so far, over all worlds."""
        return self._run.state.done

    def steps(self) -> Iterator[Step]:
        """Yield each step that is left of the dataset's epochs.

        A worker that is told to leave exits after its step (SystemExit). After the last step, and when the
        script leaves the loop by `break`, the last checkpoint is written.
        """
        if self._looped:
            raise RuntimeError("elastic.steps() was called before: there is one loop, use step.ends_epoch")
        self._looped = True
        run, loop = self._run, self._loop
        loop.begin()
        yield from in_turn(lambda: Step(run) if run.left else None, loop)

    def report(self, **metrics: float) -> None:
        """Add your own metrics (accuracy, perplexity) to the progress in the job's status."""
        self._run.report(metrics)
