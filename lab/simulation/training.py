"""The workers of scripts in virtual time: those of a world make a step each second, all or none."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final

from elasticjob.api.rpc.nodes import Progress
from elasticjob.kube.clock import Clock, Timer
from elasticjob.trainer.agent.group import Event, Message, ProcessEnd
from elasticjob.trainer.link.channel import (
    Abort,
    Advance,
    Boundary,
    Broken,
    Enter,
    FromAgent,
    FromWorker,
    Hello,
    Interrupt,
    Ready,
    Stop,
)

STEP: Final = 1.0  # seconds
PORT: Final = 29400
RESET: Final = "RuntimeError: Connection closed by peer"
"""What a plain script raises that has lost a peer."""


class Training:
    """The training of a job, which its workers share: `steps` to make, the last `step`, saved with each.

    The script is elastic, or `plain`: then a worker is started into its world, and ends with it.
    """

    def __init__(
        self,
        steps: int,
        breaks: Callable[[str], object],
        *,
        plain: bool = False,
        stands: Callable[[], float] = float,
    ) -> None:
        """`breaks` hears what no worlds of one job may do; `stands` says for how long no step is made yet."""
        self.steps, self.step, self.stands, self.plain = steps, 0, stands, plain
        self._breaks = breaks
        self._last: list[Worker] = []
        self._there: dict[int, list[Worker]] = {}
        self._workers: list[Worker] = []

    def begin(self, worker: Worker) -> None:
        """A worker has started."""
        self._workers = [*(each for each in self._workers if not each.is_over), worker]

    def arrive(self, worker: Worker) -> None:
        """A worker is at the end of its step, which is made once all of its world are."""
        there = self._there.setdefault(worker.round, [])
        there.append(worker)
        if len(there) < worker.size:
            return
        del self._there[worker.round]
        if later := [each.round for each in self._last if each.round > worker.round and not each.is_over]:
            self._breaks(f"round {worker.round} makes a step beside round {later[0]}")
        self._last, self.step = there, max(self.step, min(self.step + 1, self.steps))
        is_over = any(each.interrupted for each in there)
        for each in there:
            each.advance(self.step, self.steps, is_over=is_over)

    def miss(self, worker: Worker) -> None:
        """A worker waits no more for the others of its world."""
        if worker in (there := self._there.get(worker.round, [])):
            there.remove(worker)

    def reset(self, worker: Worker) -> None:
        """The connections of a worker to its world are closed: elastic scripts wait for their agents then."""
        for each in self._workers if self.plain else ():
            if each.round == worker.round and not each.is_over:
                each.lose_peer()


class Worker:
    """A process of a script, which does what its agent says."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        slot: int,
        clock: Clock,
        training: Training,
        starts: float,
        enter: Enter | None = None,
    ) -> None:
        """It takes `starts` seconds to start: into its world if it is plain."""
        self._emit, self._slot, self._clock, self._training = emit, slot, clock, training
        self.round, self.size = (enter.round, enter.size) if enter else (0, 0)
        self.interrupted = self.is_over = False
        training.begin(self)
        self._timer: Timer = clock.call_later(starts, self._make_a_step if enter else self._be_ready)

    def tell(self, message: FromAgent) -> None:
        """Hear the agent."""
        match message:
            case Enter(round=number, size=size):
                self.round, self.size, self.interrupted = number, size, False
                self._make_a_step()
            case Interrupt():
                self.interrupted = True
            case Abort(round=number):
                self._next(0.05, lambda: self._say(Broken(round=number, port=PORT)))
            case Stop():
                self._next(0.05, lambda: self.exit(0))

    def advance(self, step: int, steps: int, *, is_over: bool) -> None:
        """A step is made: the last one of all, or of this world, or there is another."""
        is_last = step >= steps
        if not self._training.plain:
            progress = Progress(step=step, total_steps=steps)
            self._say(Advance(round=self.round, progress=progress, seconds=STEP, ended=is_last))
        if is_last:
            self._next(0.05, lambda: self.exit(0))
        elif is_over:
            self._say(Boundary(round=self.round, port=PORT))
        else:
            self._make_a_step()

    def lose_peer(self) -> None:
        """Raise what a script raises that has lost a peer."""
        self._next(0.05, lambda: self.exit(1, RESET))

    def signal(self, number: signal.Signals) -> None:
        """Die of a signal."""
        self._next(0.01, lambda: self.exit(-number))

    def exit(self, code: int, message: str = "RuntimeError: told to") -> None:
        """End, by a signal if the code is negative."""
        if not self.is_over:
            self.vanish(silently=code == 0)
            self._emit(ProcessEnd(self._slot, code, message if code > 0 else ""))

    def vanish(self, *, silently: bool) -> None:
        """End without a word to the agent; `silently`: without one to its peers, too."""
        self.is_over = True
        self._stop()
        if not silently:
            self._training.reset(self)

    def _be_ready(self) -> None:
        self._say(Hello())
        self._say(Ready(port=PORT))

    def _make_a_step(self) -> None:
        self._next(STEP + self._training.stands(), lambda: self._training.arrive(self))

    def _say(self, message: FromWorker) -> None:
        self._emit(Message(self._slot, message))

    def _next(self, seconds: float, call: Callable[[], object]) -> None:
        """Do this next, in the place of whatever else would be done."""
        self._stop()
        if not self.is_over:
            self._timer = self._clock.call_later(seconds, call)

    def _stop(self) -> None:
        self._timer.cancel()
        self._training.miss(self)
