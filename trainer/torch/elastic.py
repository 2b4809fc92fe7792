"""`Elastic`: a training loop whose number of workers may change between any two steps.

    elastic = Elastic(model, optimizer)
    data = elastic.loader(digits, global_batch=64)
    for step in elastic.steps(data, epochs=10):
        with step:
            for images, labels in step:
                step.backward(F.cross_entropy(elastic.model(images), labels))

A lost peer breaks the step: it comes again, with the same records, in the next world. A planned join or leave
ends the world at a step boundary, on which all workers agree with the sums of each step.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from elasticjob.trainer.loop.losses import Remedy
from elasticjob.trainer.loop.turns import Loop, OnChange
from elasticjob.trainer.records.done import Done, in_turn
from elasticjob.trainer.torch import meetings
from elasticjob.trainer.torch.evaluation import Score, evaluate
from elasticjob.trainer.torch.records.data import (
    ByPart,
    Indices,
    Loader,
    Order,
    Read,
    SamplerOrder,
    Shards,
    by_index,
)
from elasticjob.trainer.torch.run import Run
from elasticjob.trainer.torch.state import PerEpoch, State, check_keep, check_optimizers
from elasticjob.trainer.torch.step import Step


class Elastic:
    """Trains `model` with `optimizer`, or several, in any world that the agent assigns.

    The global batch is fixed: a step takes the same records for every number of workers, cut into as many
    micro-batches as the job may have workers; fewer workers compute several each. Gradients, clipping and
    schedules see the same step for every number of workers. Random numbers in the model are drawn from a
    stream per micro-batch, so they do not depend on it either. Buffers that `forward` changes (running
    statistics of BatchNorm) are rank 0's.

    `scheduler`, one or several, steps after each step, a `PerEpoch(scheduler)` after each epoch. `scaler` is
    used for the backward passes and the optimizers. `keep` names objects with a state_dict (moving averages,
    metrics) or dicts, which travel to new workers and into checkpoints with the model; change them outside of
    `with step`. With `checkpoint`, a folder or a URL that fsspec knows, the state is copied to the memory of
    each node every `memory_every` steps, and every `save_every` steps, at the end and when the job is stopped
    the agent writes rank 0's copy there; a new job resumes from the newest one. With `noise_every`, each so
    many steps measure the noise scale of the gradient, the metric `gradient_noise_scale`, in records. `ddp`
    is passed to DistributedDataParallel.

    A loss that is not finite, or far above the usual, is told in the job's status. With `on_nan` "skip" such
    a step changes nothing but the position in the data; with "rollback" the state goes back to the last copy
    (each `memory_every` steps), too. After `nan_limit` such steps the training fails. `on_change(round,
    world_size, lost)` is called after each change of the world, `lost` being the names of lost nodes.
    Without an agent this is a single worker.

    A model that `fully_shard` has divided over the workers of a node, by `mesh=node_mesh()`, stays divided:
    each node has it whole, and nodes come and go. `scaler`, `noise_every` and `ddp` are not for that.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer],
        *,
        scheduler: LRScheduler | PerEpoch | Sequence[LRScheduler | PerEpoch] = (),
        scaler: GradScaler | None = None,
        keep: Mapping[str, Any] | None = None,
        seed: int = 0,
        checkpoint: str | bytes | os.PathLike[Any] | None = None,
        save_every: int = 1000,
        memory_every: int = 100,
        noise_every: int = 0,
        on_nan: Literal["skip", "rollback"] | None = None,
        nan_limit: int = 3,
        on_change: OnChange | None = None,
        ddp: Mapping[str, Any] | None = None,
    ) -> None:
        check_keep(keep or {})
        schedulers = several("scheduler", scheduler, (LRScheduler, PerEpoch))
        if any(isinstance(each, ReduceLROnPlateau) for each in schedulers):
            raise TypeError(
                'give ReduceLROnPlateau as PerEpoch(plateau, "accuracy"), with the name of its score'
            )
        state = State(
            model,
            several("optimizer", optimizer, (Optimizer,)),
            [each for each in schedulers if isinstance(each, LRScheduler)],
            [each for each in schedulers if isinstance(each, PerEpoch)],
            scaler,
            keep or {},
        )
        check_optimizers(model, state.optimizers)
        self._seed = seed
        self._looped = False
        self._run = Run(
            state,
            seed=seed,
            checkpoint=os.fsdecode(checkpoint) if checkpoint else None,
            save_every=save_every,
            memory_every=memory_every,
            noise_every=noise_every,
            ddp=ddp or {},
            environment=os.environ,
            remedy=Remedy.of(on_nan, nan_limit),
        )
        meetings.note_losses(self._run)
        self._loop = Loop(self._run, on_change)
        atexit.register(self._run.membership.close)

    @property
    def model(self) -> nn.Module:
        """The model to call: wrapped for the present world in steps, bare in evaluations and after them."""
        run = self._run
        return run.state.model if run.evaluating or run.ended else run.reduction.model

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
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self._run.state.done.epoch

    @property
    def progress(self) -> Done:
        """Steps and records so far, over all worlds; a new worker knows them from its first step on."""
        return self._run.state.done

    def loader(
        self,
        dataset: Any,
        *,
        global_batch: int,
        micro_batch: int | None = None,
        shuffle: bool | None = None,
        sampler: Any = None,
        drop_last: bool = False,
        workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **more: Any,
    ) -> Loader:
        """Return the records of an indexable `dataset`, `global_batch` of them in each step.

        A worker gets micro-batches: the global batch in as many parts as the job may have workers, and of at
        most `micro_batch` records each, if that is given. `workers` is the number of processes that read
        ahead on each node's worker; `more` goes to torch's DataLoader (pin_memory, prefetch_factor, …).
        `sampler`, one of torch's or your own with a length, gives the indices of each epoch instead of
        `shuffle` (True without one); it draws the same ones on every worker. `drop_last` leaves out the last
        records of an epoch that are fewer than `global_batch`.
        Random numbers that the dataset draws do not depend on who reads.
        """
        if not hasattr(dataset, "__len__") or not (
            hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")
        ):
            raise TypeError(
                f"dataset is a {type(dataset).__name__} that has no length or cannot be indexed: give "
                "elastic.stream a function that reads ranges of its records"
            )
        if sampler is not None and (shuffle is not None or not hasattr(sampler, "__len__")):
            raise TypeError("give a sampler that has a length, and then no shuffle: it has its own order")
        order: Order = Indices(len(dataset), self._seed, shuffle=shuffle is not False)
        return Loader(
            order if sampler is None else SamplerOrder(sampler, self._seed),
            by_index(dataset),
            global_batch=global_batch,
            micro_batch=micro_batch,
            seed=self._seed,
            workers=workers,
            collate_fn=collate_fn,
            drop_last=drop_last,
            more=more,
        )

    def stream(
        self,
        read: Read,
        *,
        records: int | None,
        global_batch: int,
        shard: int = 1024,
        offsets: Sequence[int] = (0,),
        micro_batch: int | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
        workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **more: Any,
    ) -> Loader:
        """Return records that are read by ranges: files of lines, tables, the partitions of a log.

        `read(part)` returns the records from `part.start` to before `part.stop`, in the processes that read
        ahead. `shard` records follow one another in the source; `shuffle` shuffles the shards anew in each
        epoch. With `records` None the stream has no end: shards are taken in turn from as many partitions as
        there are `offsets`, each from its offset on. See `loader` for the rest.
        """
        return Loader(
            Shards(records, shard, self._seed, shuffle=shuffle, offsets=offsets),
            ByPart(read),
            global_batch=global_batch,
            micro_batch=micro_batch,
            seed=self._seed,
            workers=workers,
            collate_fn=collate_fn,
            drop_last=drop_last and records is not None,
            more=more,
        )

    def steps(self, data: Loader, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Step]:
        """Yield each remaining step of `epochs` epochs over `data`, or up to the job's step number `steps`.

        With both, until either is reached; with neither, of one epoch. A loop that the script leaves by
        `break` is saved as it is. A worker that is told to leave exits after its step (SystemExit). After the
        last step the last checkpoint is written.
        """
        if self._looped:
            raise RuntimeError("elastic.steps(...) was called before: there is one loop, use step.ends_epoch")
        self._looped = True
        run, loop = self._run, self._loop
        run.reading.begin(data, 1 if epochs is None and steps is None else epochs, steps)
        loop.begin()
        yield from in_turn(lambda: Step(run) if run.left else None, loop)

    def evaluate(self, data: Loader, score: Score) -> dict[str, float]:
        """Return the mean of each of the scores over all records of `data`, computed by all workers together.

        `score(batch)` returns the means over one micro-batch by name, such as {"loss": …, "accuracy": …}; it
        is called without gradients, with the model in evaluation mode, on each batch once. What a lost worker
        had to do is done by the others. Call it at the same places on all workers: outside of `with step`. A
        worker that is new to a running job gets the last scores from it, before its own first step.
        """
        return evaluate(self._run, data, score)

    def mean(self, value: Any) -> Any:
        """Return the mean of the `value` of each worker, the same on all of them.

            accuracy = elastic.mean(correct / seen)

        A number gives a float, a tensor one of its shape and type (whole numbers: float64), a dict of these a
        dict. Unlike collectives of torch.distributed between two steps it survives the loss of a worker: then
        it is the mean over those of the next world. Call it outside of `with step`, at the same places on all
        workers: ValueError on all of them otherwise. A worker that is new to a running job gets the others'
        results of the calls before their first step. TypeError for what has no mean.
        """
        return meetings.mean(self._run, value)

    def gather(self, value: Any) -> list[Any]:
        """Return the `value` of each worker, in the order of ranks, the same on all of them.

        Values are numbers, strings, tensors of any shapes, and dicts, lists and tuples of these; TypeError
        for others. Each worker gets all of them, so keep them small. See `mean` for losses, newcomers and
        where to call it.
        """
        return meetings.gather(self._run, value)

    def report(self, **metrics: float) -> None:
        """Add your own metrics (accuracy, perplexity) to the progress in the job's status, now."""
        self._run.report(metrics)


def several(name: str, given: Any, kinds: tuple[type, ...]) -> list[Any]:
    """Return one or several objects as a list; TypeError names the argument."""
    all_ = [given] if isinstance(given, kinds) else given
    if not isinstance(all_, (list, tuple)) or not all(isinstance(each, kinds) for each in all_):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} is a {type(given).__name__}: give one {wanted}, or a list of them")
    if name == "optimizer" and not all_:
        raise TypeError("optimizer is an empty list: give at least one")
    return list(all_)
