"""One worker's part in the training: its state, its present world, and the way from one world to the next.

All workers are at the same place of the script when they meet in a collective: a step that broke is repaired
inside its `with` block, so that `step.done` is the same everywhere. A process that begins the script anew
gets the state of the others at the *gate*: when they are at the start of a step too, or after the last one.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NoReturn, Protocol

import torch
from torch import Tensor, nn

from elasticjob.api.rpc.nodes import Progress
from elasticjob.trainer.link import pulse
from elasticjob.trainer.link.address import SLOT
from elasticjob.trainer.link.channel import Advance, Behind, Copied, Enter, Hampered
from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.torch import record as records
from elasticjob.trainer.torch.buffers import Buffers
from elasticjob.trainer.torch.copies import Copies
from elasticjob.trainer.torch.losses import Remedy
from elasticjob.trainer.torch.noise import METRIC, Noise
from elasticjob.trainer.torch.records.data import Loader, Place
from elasticjob.trainer.torch.records.sampler import ENDLESS, Piece, Position, Sampler, Window
from elasticjob.trainer.torch.reports import Reports
from elasticjob.trainer.torch.saving.flash import Flash
from elasticjob.trainer.torch.saving.tree import is_distributed, settle
from elasticjob.trainer.torch.state import NOTHING, Done, State, is_behind
from elasticjob.trainer.torch.world import link as links
from elasticjob.trainer.torch.world.link import Stopped
from elasticjob.trainer.torch.world.nccl import wait_for_ends
from elasticjob.trainer.torch.world.peers import Peers
from elasticjob.trainer.torch.world.replicated import Replicated

log = logging.getLogger("elasticjob")

KEEP = 2  # checkpoints in storage
NUMBERS = 5  # loss, weight, interrupted, step, squares of gradients
FOREVER: Final = 3600.0  # seconds of one sleep
ALONE = Enter(round=1, rank=0, size=1, address="", port=0, batch_slots=1)


OnChange = Callable[[int, int, tuple[str, ...]], object]
"""Is told the round, the number of workers, and the nodes that were lost before it."""


class Reduction(Protocol):
    """How the gradients of a step become those of all workers: by `Replicated` or `Divided`."""

    @property
    def together(self) -> int:
        """How many workers compute each micro-batch together, and have a model together."""
        ...

    @property
    def model(self) -> nn.Module:
        """The model to call in steps."""
        ...

    def peers(self, place: Enter) -> Peers: ...
    def enter(self, peers: Peers) -> None: ...
    def outdated(self) -> bool: ...
    def leave(self) -> None: ...
    def begin(self) -> None: ...
    def adding_up(self, last: bool) -> AbstractContextManager[None]: ...
    def check_used(self) -> None: ...
    def without_gradients(self, loss: Tensor) -> AbstractContextManager[None]: ...
    def send(self, numbers: Tensor) -> tuple[Tensor, Tensor] | None: ...
    def means(self) -> list[float]: ...
    def clip(self, parameters: Sequence[Tensor], max_norm: float, norm_type: float) -> Tensor: ...


class Run:
    """The training of one worker: `Elastic` and `Step` are what a script sees of it."""

    def __init__(
        self,
        state: State,
        *,
        seed: int,
        checkpoint: str | None,
        save_every: int,
        memory_every: int,
        noise_every: int,
        ddp: Mapping[str, Any],
        environment: Mapping[str, str],
        remedy: Remedy | None = None,
        on_change: OnChange | None = None,
    ) -> None:
        self.state = state
        self.seed = seed
        self.device = next(state.model.parameters()).device
        self.reduction = reduction_of(state, noise_every, ddp)
        self.peers = self.reduction.peers(ALONE)
        self.noise, self.reports = Noise(noise_every), Reports()
        self.evaluating = self.ended = False
        self._on_change, self._changed = on_change, False
        self._remedy = remedy
        self._loader: Loader | None = None
        self._limit: tuple[int | None, int | None] = (0, None)  # epochs, steps
        self._reads: tuple[int, Position] | None = None  # round and position of the next batch that is read
        self._buffers: Sequence[Tensor] = ()
        self.buffers = Buffers((), ())
        self._sources = [0]  # the workers that held the state when this world began
        self._gate = False  # a member of this world has no state yet
        self._newcomer = False  # the others began long ago, and this worker has not been at a step
        self._boundary = False  # all agreed to end this world
        self._before = Done()
        self._began = 0.0
        self._records = 0  # that this worker takes in the present step
        self._record = records.from_environment(environment)
        self._page = pulse.from_environment(environment)
        self._link = links.from_environment(environment)
        flash = Flash(checkpoint, keep=KEEP, environment=environment, say=self._tell) if checkpoint else None
        one_of_its_node = environment.get(SLOT, "0") == "0"
        self._copies = Copies(
            state,
            flash,
            save_every=save_every,
            memory_every=memory_every,
            together=self.reduction.together,
            takes=one_of_its_node or self.reduction.together > 1,
            clones=remedy is not None and remedy.rolls_back,
            page=self._page,
        )
        self._first_world()

    # what a step needs

    @property
    def sampler(self) -> Sampler:
        """How the records are cut into steps."""
        assert self._loader is not None
        return self._loader.sampler(self.peers.place.batch_slots)

    def say(self, phase: Phase, *, busy: float | None = None) -> None:
        """Tell the agent what this worker does."""
        if self._page is not None:
            self._page.say(phase, busy=busy)

    def inside(self, inside: bool = True) -> AbstractContextManager[None]:
        """Tell the agent's questions from now on that this thread may be in a collective, or is in none."""
        return self._link.inside(inside) if self._link else nullcontext()

    def interrupted(self) -> bool:
        """Whether the agent asks to end this world at the next step boundary."""
        return self._link is not None and self._link.interrupted(self.peers.place.round)

    def broken_by(self, error: RuntimeError) -> bool:
        """Whether `error` is the loss of a peer, not the script's."""
        return self._link is not None and self.peers.broken_by(error)

    def begin_step(self, window: Window) -> tuple[Piece, ...]:
        """Clear the gradients; return this worker's micro-batches of `window`."""
        self._wrap_what_is_trained()
        self._began = time.monotonic()
        self._before = self.state.done
        self.reduction.begin()
        for optimizer in self.state.optimizers:
            optimizer.zero_grad()
        self._read_ahead()
        pieces = window.of(self.peers.rank, self.peers.size, self.reduction.together)
        self._buffers = self.state.buffers() if self.peers.size > 1 or len(pieces) > 1 else ()
        self.buffers = Buffers(list(self.state.model.buffers()), self._buffers)
        self._records = sum(piece.count for piece in pieces)
        return pieces

    def next_batch(self) -> Any:
        """Return the next micro-batch; it may take as long as reading takes."""
        assert self._loader is not None
        return self._loader.next()

    def remedies(self, loss: float) -> bool:
        """Whether this step is not to be taken: its loss or its gradients are not finite.

        RuntimeError if that was so too often. The same on all workers.
        """
        if self._remedy is None or self.state.scaler is not None:
            return False
        norm = self.reduction.clip(self.trained_parameters(), math.inf, 2.0)
        if math.isfinite(loss) and bool(torch.isfinite(norm)):
            return False
        self.state.left_out += 1
        self._remedy.check(self.state.done.step + 1, self.state.left_out)
        self._copies.roll_back()
        return True

    def step_optimizers(self) -> None:
        """Take the step: the gradients are reduced."""
        scaler = self.state.scaler
        for optimizer in self.state.optimizers:
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
        if scaler is not None:
            scaler.update()
        for scheduler in self.state.schedulers:
            scheduler.step()

    def count_step(self, records: int, position: Position, loss: float, boundary: bool) -> None:
        """Count a step of `records` records as done; `boundary`: this world ends with it."""
        self.state.done = self.state.done.then(position, records, loss)
        self._reads = (self.peers.place.round, self.state.done.position)
        self._boundary = boundary

    def after_step(self) -> None:
        """Report and record a step that is done."""
        done = self.state.done
        if self._page is not None:
            ended = time.monotonic()
            self._page.say(Phase.OUTSIDE, step=done.step, reduced=ended, records=self._records)
        if self._record and self.peers.rank == 0:
            self._record.add(self.peers.place.round, self.peers.size, self._before, done)
        self._report(last=False)

    def repair(self, number: int, error: str) -> bool:
        """Form the next world after a loss in step `number`; return whether a survivor has finished it."""
        if self._buffers:
            self.state.put_back(self._buffers)
        self._next_world(error)
        if self.state.done.step < number:
            return False
        self.after_step()
        return True

    def trained_parameters(self) -> list[Tensor]:
        """Return the parameters of all optimizers."""
        groups = (group for optimizer in self.state.optimizers for group in optimizer.param_groups)
        return [parameter for group in groups for parameter in group["params"]]

    # the loop

    def train(self, loader: Loader, epochs: int | None, steps: int | None) -> None:
        """Begin the loop over `loader`: until `epochs` are over, or `steps` steps are done."""
        self._loader, self._limit = loader, (epochs, steps)
        self._copies.settle()
        self.at_step()
        self.sampler.check(self.state.done.position)
        self.state.check_order(loader.told())
        if not self.left() and self.peers.rank == 0:
            log.warning(
                "nothing is left to train: step %d is done, and steps(...) asks for no more; ask for more, "
                "or give another checkpoint folder",
                self.state.done.step,
            )

    def at_step(self) -> None:
        """Be at the start of a step: all workers are here. End the world if they agreed to.

        The script's own code after the step before has run. So copies are taken here: averages, metrics and
        schedulers are those of the step.
        """
        if self.state.whole:
            self.state.end_epoch()
            self._copies.take_if_due(self.peers)
        if self._boundary and self.left():
            self._next_world()
        self._pass_gate()
        self._newcomer = False
        self._copies.settle()
        self._tell_change()

    def _tell_change(self) -> None:
        """Call what the script wants to know of a new world."""
        if not self._changed:
            return
        self._changed = False
        self._copies.clone()
        if self._on_change is not None:
            place = self.peers.place
            self._on_change(place.round, place.size, place.lost)

    def left(self) -> int:
        """Return the number of steps that are left."""
        epochs, steps = self._limit
        of_steps = ENDLESS if steps is None else max(0, steps - self.state.done.step)
        of_epochs = ENDLESS if epochs is None else self.sampler.steps_left(self.state.done.position, epochs)
        return min(of_steps, of_epochs)

    def finish(self) -> None:
        """After the last step: report, save the last checkpoint."""
        self.ended = True
        self._report(last=True)
        if self._page is not None:
            self._page.say(Phase.ENDED)
        self._copies.take(self.peers, persist=True)
        self._copies.close()

    def leave_loop(self) -> None:
        """After a `break` of the script: save what was trained till then."""
        if self.ended or not self.state.whole:
            return
        try:
            self.state.end_epoch()
        except RuntimeError as error:  # a score is missing: the copy before stays the newest
            log.warning("step %d is not saved: %s", self.state.done.step, error)
            return
        self._copies.settle()
        self._report(last=False, at_once=True)
        self._copies.take(self.peers, persist=True)

    def is_newcomer(self) -> bool:
        """Whether the others are at some step of a job that began before this worker; gets their state."""
        if self._newcomer:
            self._pass_gate()
        return self._newcomer

    def forget(self, loader: Loader) -> None:
        """Begin to read anew before the next step: something else has read from `loader`."""
        if loader is self._loader:
            self._reads = None

    def _pass_gate(self) -> None:
        """Give the state to members that have none, or wait for it."""
        while self._gate:
            self.say(Phase.WAITING)
            try:
                with self.inside():
                    self._take()
            except RuntimeError as error:
                if not self.broken_by(error):
                    raise
                self._next_world(str(error))

    def close(self) -> None:
        """Leave the group, at the end of the process."""
        self._leave_group()
        wait_for_ends()

    def report(self, metrics: Mapping[str, float]) -> None:
        """Add metrics to the progress in the job's status."""
        self.reports.add(metrics)
        if self._link is not None and self._loader is not None:
            self._link.advance(Advance(round=self.peers.place.round, progress=self._news(None)))

    def exchange(self, data: bytes) -> list[bytes]:
        """Return the `data` of every worker that is at this place of the script."""
        with self.inside():
            return self.peers.exchange(data)

    def share_buffers(self) -> None:
        """Use the first worker's buffers (running statistics) on all that are at this place."""
        with self.inside():
            self.peers.unify(list(self.state.model.buffers()))

    def survive(self, error: RuntimeError) -> None:
        """Form the next world outside of a step; raises `error` if it is the script's."""
        if not self.broken_by(error):
            raise error
        self._next_world(str(error))

    # worlds

    def _first_world(self) -> None:
        if self._link is None:
            self._enter(ALONE, None, at_step=False)
            return
        self.peers.warm_up()
        self.say(Phase.WAITING)
        place, listener = self._link.first_world()
        try:
            self._enter(place, listener, at_step=False)
        except RuntimeError as error:
            self.survive(error)
        self.say(Phase.OUTSIDE)

    def _next_world(self, error: str | None = None) -> None:
        """Leave the group and enter the next world that holds; Stopped if there is none for this worker."""
        if self._link is None:
            raise RuntimeError("a worker without an agent has no next world")
        at_step = error is None
        self.say(Phase.WAITING)
        while True:
            ended = self.peers.place.round
            with self.inside():
                self._leave_group(broken=error is not None)
            try:
                place, listener = self._link.next_world(ended, error)
            except Stopped:
                self._copies.take_before_leaving(self.peers)
                raise
            try:
                self._enter(place, listener, at_step=at_step)
                return
            except RuntimeError as failed:
                if not self.peers.broken_by(failed):
                    raise
                error = str(failed)

    def _enter(self, place: Enter, listener: socket.socket | None, *, at_step: bool) -> None:
        """Form the group of `place` and agree on the state; `at_step`: this worker is at a step's start."""
        self.peers = self.reduction.peers(place)
        self._gate = self._boundary = False
        if self._link is not None:
            self._link.guard(place.round, self.peers)
        with self.inside():
            self.peers.open(listener)
            self._agree(at_step)
        self.reduction.enter(self.peers)
        self.reports.enter()
        self._changed = True
        os.environ.update(
            RANK=str(place.rank),
            WORLD_SIZE=str(place.size),
            MASTER_ADDR=place.address,
            MASTER_PORT=str(place.port),
        )

    def _agree(self, at_step: bool) -> None:
        """Bring the workers that hold a state to the newest one, and see who has none.

        Survivors of a broken collective may be one whole step or one evaluation apart. If nobody holds a
        state, the script has begun on all of them. Who has none gets it at the gate: at once, if all others
        are at the start of a step.
        """
        ages = self.peers.gather((*self.state.age, at_step))
        holders = [rank for rank, age in enumerate(ages) if age[0] != NOTHING]
        if not holders:
            self.state.begin(self.peers, lambda: self._copies.restore(self.peers, self._pause))
            return
        held = [ages[rank][:2] for rank in holders]
        if self.state.whole and is_behind(self.state.age, max(held)):
            self._fall_behind(max(held))
        if min(held) != max(held):
            self.state.catch_up(self.peers, holders[held.index(max(held))])
        self._sources, self._gate = holders, len(holders) < len(ages)
        if not self._gate:
            return
        self._newcomer |= not self.state.whole
        if all(ages[rank][2] for rank in holders):
            self._take()
        else:
            self.peers.divide(holders)

    def _fall_behind(self, newest: Sequence[int]) -> NoReturn:
        """Wait to be killed: only a new process can reach the place of the others in the script."""
        mine, round_ = self.state.age, self.peers.place.round
        reason = f"it missed the others' steps {mine[0] + 1} to {newest[0]}"
        if mine[0] == newest[0]:
            reason = f"it missed the others' evaluations {mine[1] + 1} to {newest[1]}"
        assert self._link is not None
        self._link.say(Behind(round=round_, reason=f"{reason}, so it begins as a newcomer"))
        while True:
            time.sleep(FOREVER)

    def _take(self) -> None:
        """Pass the gate: all workers of this world are at a step."""
        self.state.take(self.peers, self._sources)
        self.peers.unite()
        self._gate = False

    def _wrap_what_is_trained(self) -> None:
        """Wrap the model anew if the script has frozen or unfrozen parameters since."""
        if not self.reduction.outdated():
            return
        try:
            with self.inside():
                self.reduction.enter(self.peers)
        except RuntimeError as error:
            done = self.state.done.step
            self.survive(error)
            if self.state.done.step != done:
                self._fall_behind(self.state.age)

    def _pause(self, seconds: float) -> None:
        """Wait outside of collectives, while storage cannot be read."""
        with self.inside(False):
            time.sleep(seconds)
        self.peers.check()

    def _leave_group(self, *, broken: bool = False) -> None:
        self.reduction.leave()
        if self._link is not None:
            self._link.release()
        self.peers.close(broken=broken)

    def _read_ahead(self) -> None:
        """Let the loader read from the present position on, if it does not already."""
        assert self._loader is not None
        place, position = self.peers.place, self.state.done.position
        if self._reads != (place.round, position):
            with self.inside(False):
                together = self.reduction.together
                self._loader.start(position, Place(place.rank, place.size, place.batch_slots, together))

    # progress

    def _report(self, *, last: bool, at_once: bool = False) -> None:
        """Report progress, if it is time."""
        now = time.monotonic()
        if not self.reports.step(now, at_once=last or at_once) or self._link is None:
            return
        self._link.advance(
            Advance(
                round=self.peers.place.round,
                progress=self._news(self.reports.standstill(now)),
                seconds=now - self._began,
                ended=last,
            )
        )

    def _news(self, standstill: float | None) -> Progress:
        if self.noise.scale is not None:
            self.reports.add({METRIC: self.noise.scale})
        return self.reports.progress(
            self.state.done, left=self.left(), records=self.sampler.records, standstill=standstill
        )

    def _tell(self, message: Copied | Hampered) -> None:
        if self._link is not None:
            self._link.say(message)


def reduction_of(state: State, noise_every: int, ddp: Mapping[str, Any]) -> Reduction:
    """Return how the model is trained: as fully_shard has divided it, or replicated over all workers."""
    if not is_divided(state.model):
        return Replicated(state.model, NUMBERS, ddp)
    for name, given in (("ddp", ddp), ("scaler", state.scaler), ("noise_every", noise_every)):
        if given:
            raise ValueError(f"the model is divided by fully_shard: Elastic({name}=...) is not for that")
    from elasticjob.trainer.torch.world.divided import Divided  # what it imports takes a second

    return Divided(state.model)


def is_divided(model: nn.Module) -> bool:
    """Whether fully_shard has divided a model."""
    settle(model)
    return any(map(is_distributed, model.parameters()))
