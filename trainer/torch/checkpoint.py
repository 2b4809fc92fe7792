"""Checkpoints for any training script, two lines of it:

    checkpoint = Checkpoint("/mnt/run", {"model": model, "optimizer": optimizer})
    for step in checkpoint.steps(10_000):      # from the newest checkpoint on; saved after each so many steps
        ...

Started by `elasticjob run`, each save is a copy to shared memory, which the agent writes to the place while
training goes on. Workers that are started again go on from memory: after a failure, and in a world of another
size, too.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from elasticjob.trainer.checkpoint import memory, part
from elasticjob.trainer.checkpoint.flash import Flash
from elasticjob.trainer.checkpoint.part import Save
from elasticjob.trainer.checkpoint.rest import pointer
from elasticjob.trainer.link.channel import ROUND, Copied, Hampered, encode
from elasticjob.trainer.link.worlds import channel_to
from elasticjob.trainer.records.done import is_left_by_script
from elasticjob.trainer.torch import restoring
from elasticjob.trainer.torch.saving.loader import ResumableLoader
from elasticjob.trainer.torch.saving.random_state import RandomState
from elasticjob.trainer.torch.saving.tensors import Tensors
from elasticjob.trainer.torch.saving.tree import targets
from elasticjob.trainer.torch.state import Stateful, plain
from elasticjob.trainer.torch.world.peers import gather

log = logging.getLogger("elasticjob")

OTHERS: Final = 1.0  # seconds until all workers of a job know that they are to end

__all__ = ["Checkpoint", "RandomState", "ResumableLoader"]


class Checkpoint:
    """The checkpoints of a training: `state` names what is in them, objects with a state_dict, or dicts.

    `where` is a folder that all workers reach, or a URL that fsspec knows (s3://, gs://); "memory://" keeps
    them in the memory of the nodes alone. Each `every` steps the state is copied to memory, each `save_every`
    steps (a multiple) that copy is written to `where`, where the newest `keep` stay.
    Models may be replicated (DistributedDataParallel) or divided (fully_shard); another number of workers
    loads them as well. All workers make one, after init_process_group, and call it at the same steps.
    """

    def __init__(
        self,
        where: str | bytes | os.PathLike[Any],
        state: Mapping[str, Any],
        *,
        every: int = 100,
        save_every: int = 1000,
        keep: int = 2,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if every < 1 or save_every < 1 or save_every % every:
            raise ValueError(f"save_every is {save_every}: give a multiple of every, {every}")
        for name, each in state.items():
            if not isinstance(each, (dict, Stateful)):
                raise TypeError(
                    f"state[{name!r}] is a {type(each).__name__}: give objects with state_dict and "
                    "load_state_dict, or dicts, which are changed in place"
                )
        self._state = {name: bare(each) for name, each in state.items()}
        self._every, self._save_every = every, save_every
        self._round = int(environment.get(ROUND, "0"))
        self._channel = channel_to(environment)
        if self._channel is None:  # nobody else would use the memory
            environment = {name: value for name, value in environment.items() if name != memory.FOLDER}
        self._flash = Flash(os.fsdecode(where), Tensors(), keep=keep, environment=environment, say=self._say)
        self._asked = False  # to end
        self._loaded = 0  # the step of what was loaded
        self._leaving: tuple[int, float] | None = None  # the step and the time at which it knew that
        self._clock = clock
        if self._channel is not None and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._ask)

    def load(self) -> int:
        """Restore the newest checkpoint; return its step, 0 if there is none. All workers call it at once.

        Damaged if there are some, and none can be read; ValueError if it was made with another state.
        """
        found = self._flash.load(exchange, rank(), self._targets)
        if found is None:
            return 0
        state, save = found
        self._loaded = save.step
        of = f"the checkpoint of step {save.step} in {self._flash.where}"
        if not self._takes(state):
            raise ValueError(
                f"{of} has {sorted(state)}, and Checkpoint(...) got {sorted(self._state)}: give the same "
                "names, or another folder; elasticjob.trainer.torch.saved.read returns what is in this one"
            )
        for warning in restoring.warnings_of(self._restore(state, of), of, "checkpoint.load()"):
            if rank() == 0:
                log.warning("%s", warning)
        return save.step

    def save(self, step: int, *, last: bool = False, ended: int = 0) -> None:
        """After `step`: copy the state, if it is time. With `last` write it to storage at any rate.

        With `ended` the training is over with it, though so many steps had been asked for (`is_ended`).

        A worker that was asked to end (SIGTERM) copies its state and exits (SystemExit, code 143). Where each
        worker has a part of it, all have to copy the same step, and are asked moments apart: then it copies
        after each step from now on, and exits a while later.
        """
        if not (last or self.is_due(step)):
            self._flash.expect(self._snapshot, rank())
            return
        self._copy(step, last=last, ended=ended)
        if self._asked and self._may_leave(step):
            raise SystemExit(128 + signal.SIGTERM)

    def end(self, step: int, asked: int) -> None:
        """After the script has left its loop of `asked` steps in `step`: save the last state, as an end.

        Python takes no exception where it closes a generator: what fails is told.
        """
        try:
            self._copy(step, last=True, ended=asked)
        except Exception:
            log.exception("the loop was left in step %d, and the state after it is not saved", step)

    def is_ended(self, asked: int) -> bool:
        """Whether the script has ended its loop before, having `asked` for no less; says so."""
        if asked > self._flash.ended:
            return False
        if rank() == 0:
            log.warning(
                "nothing is left to train: the script has ended its loop by itself before, after step %d of "
                "the checkpoint, when it asked for %d; ask for more, or give another folder",
                self._loaded,
                self._flash.ended,
            )
        return True

    @property
    def ended(self) -> int:
        """How many steps had been asked for when the script ended the training by itself; 0: it did not."""
        return self._flash.ended

    @property
    def is_stored(self) -> bool:
        """Whether what was loaded is in storage: a save after the last step may have failed."""
        return self._flash.is_stored

    def is_due(self, step: int) -> bool:
        """Whether `save` would copy the state after this step."""
        return self._asked or step % self._every == 0

    def steps(self, total: int) -> Iterator[int]:
        """Yield the numbers of the steps that are left of `total`, counted from 1; save after each.

        A loop that the script leaves by `break` is saved, with this step, as a training that has ended: until
        it asks for more steps, nothing is left of it. Not so after an exception.
        """
        first = self.load() + 1
        if first <= total and self.is_ended(total):
            if not self.is_stored:
                self.end(first - 1, total)
            return
        if first > total and rank() == 0:
            log.warning(
                "nothing is left to train: the checkpoint is of step %d, and steps(%d) asks for no more",
                first - 1,
                total,
            )
        if first > total and not self.is_stored:
            self.save(first - 1, last=True)
        for step in range(first, total + 1):
            try:
                yield step
            except GeneratorExit:
                if not sys.is_finalizing() and is_left_by_script(sys._getframe().f_back):
                    self.end(step, total)
                raise
            self.save(step, last=step == total)

    def _copy(self, step: int, *, last: bool, ended: int = 0) -> None:
        persist, save = last or step % self._save_every == 0, Save(step, self._round)
        if last or step % self._every == 0:  # not if this worker was asked to end: others may not be here
            for each in self._state.values():
                if isinstance(each, RandomState):
                    each.gather(exchange)
        self._flash.save(self._snapshot(), save, rank(), persist=persist, exchange=exchange, ended=ended)

    def _snapshot(self) -> Any:
        state = {
            name: each if isinstance(each, dict) else each.state_dict() for name, each in self._state.items()
        }
        return plain(state)

    def _restore(self, state: Mapping[str, Any], of: str) -> list[str]:
        """Load each object's state; return which arguments of the script that changes."""
        schedulers = [each for each in self._state.values() if isinstance(each, LRScheduler)]
        models_first = sorted(self._state.items(), key=lambda item: not isinstance(item[1], nn.Module))
        changes: list[str] = []
        for name, mine in models_first:  # what does not fit another model, an optimizer does not fit either
            if name in state:
                changes += restoring.load(f"state[{name!r}]", mine, state[name], of, schedulers)
            else:
                log.warning("the checkpoint has no random numbers: those of the script go on")
        return changes

    def _ask(self, _: int, __: FrameType | None) -> None:
        self._asked = True

    def _may_leave(self, step: int) -> bool:
        """Whether a worker that was asked to end has done its part: the others were asked, too, by then."""
        first, at = self._leaving = self._leaving or (step, self._clock())
        return not self._flash.divided or (step > first and self._clock() >= at + OTHERS)

    def _say(self, message: Copied | Hampered) -> None:
        if self._channel is not None:
            self._channel.sendall(encode(message))

    def _takes(self, state: Mapping[str, Any]) -> bool:
        """Whether this is the state of a checkpoint with the same names; random numbers may be new here."""
        new = [each for name, each in self._state.items() if name not in state]
        return state.keys() <= self._state.keys() and all(isinstance(each, RandomState) for each in new)

    def _targets(self, rest: Any, tensors: Sequence[part.Tensor]) -> dict[str, Tensor]:
        """Return what to fill; nothing of mine if the checkpoint is one of another state."""
        mine = self._state if self._takes(rest) else {}
        return targets({pointer("", name): each for name, each in mine.items()}, tensors)


def bare(value: Any) -> Any:
    """Return the model inside of DistributedDataParallel: its names do not depend on how it is trained."""
    return value.module if isinstance(value, nn.parallel.DistributedDataParallel) else value


def rank() -> int:
    """Return the rank of this worker. RuntimeError if there are others, and no group yet."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise RuntimeError("there are several workers: call init_process_group before Checkpoint is used")
    return 0


def exchange(data: bytes) -> list[bytes]:
    """Return the `data` of every worker, by rank."""
    if not (dist.is_available() and dist.is_initialized()):
        return [data]
    return gather(data, _all)


def _all(tensor: Tensor) -> list[Tensor]:
    """Return a tensor of every worker, by way of the devices that the group is for."""
    mine = tensor.to("cpu" if "gloo" in dist.get_backend() else "cuda")
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return [each.cpu() for each in every]
