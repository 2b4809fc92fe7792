"""Workers that step together in virtual time, their agents' digests, and the master's judgement of them.

A step of a worker is READING for a moment, COMPUTING for `busy` seconds, then REDUCING until the slowest is
there. Between steps it is OUTSIDE for `pause` seconds. Both are functions of rank and step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from elasticjob.api.rpc.nodes import Orders, Report
from elasticjob.master.state.condition import Finding
from elasticjob.trainer.agent.seeing.health import EVERY, Sight, Watcher
from elasticjob.trainer.link.pulse import Phase, Pulse
from elasticjob.trainer.usage.cores import Work
from lab.virtual.master import START, Played, join, watch

Seconds = Callable[[int, int], float]
REDUCE = 0.02


class Stepping:
    """A world of `size` nodes with one worker each, which take steps until the test has seen enough."""

    def __init__(self, size: int, busy: Seconds, pause: Seconds = lambda *_: 0.0, **more: Any) -> None:
        self.names = [f"node-{rank}" for rank in range(size)]
        self.busy, self.pause = busy, pause
        self.game = Played(maximum=size, **more)
        self.game.ask(*(watch(name) for name in self.names))
        self.game.ask(*(join(name) for name in self.names))
        self.now = 1000.0
        self.watchers = [Watcher(closer=self.work) for _ in self.names]
        self.stopped: dict[int, float] = {}
        self.cores: dict[int, float] = {}
        self.reported = [0.0] * size
        self.step = 0
        self.ended = 0.0
        self.busies = [0.0] * size
        self.began = [self.now] * size
        self._begin()

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.game.job.health.findings

    @property
    def until(self) -> float:
        """When the present step ends."""
        late = (began + busy for began, busy in zip(self.began, self.busies, strict=True))
        return math.inf if self.stopped else max(late) + REDUCE

    def orders(self) -> Orders:
        return self.game.orders(self.names[0])

    def run(self, seconds: float, *, alone: bool = True) -> None:
        """Let time pass, with looks, reports and ticks as often as real ones; until a finding if `alone`."""
        end, many = self.now + seconds, len(self.findings)
        while self.now < end and (not alone or len(self.findings) == many):
            self.at(self.now + EVERY)

    def at(self, now: float) -> None:
        """Look at everything at `now`."""
        while self.until <= now:
            self._step()
        self.now = now
        self.game.now = START + timedelta(seconds=now - 1000.0)
        for rank in range(len(self.names)):
            self.look(rank)
        for name in self.names:
            job = self.game.job
            self.game.job = job.put(job.nodes[name].but(beat=self.game.now))
        self.game.tick()

    def steps(self, many: int) -> None:
        """Take steps, with one look at the end of each: enough where nothing hangs."""
        for _ in range(many):
            self.at(self.until)

    def look(self, rank: int) -> None:
        """Let an agent look at its worker, and report when it would."""
        sight = Sight(self.pulse(rank), rank in self.stopped, self.work(rank + 1).cpu, pid=rank + 1)
        urgent = self.watchers[rank].look({0: 1}, {0: sight}, self.now)
        if urgent or self.now - self.reported[rank] >= 1.0:
            self.reported[rank] = self.now
            self.report(rank)

    def work(self, pid: int) -> Work:
        """What a worker has done till now."""
        return Work(cpu=self.cores.get(pid - 1, 0.0) * self.now)

    def report(self, rank: int, stacks: int = 0) -> None:
        """Send an agent's report."""
        name, states = self.names[rank], self.watchers[rank].states(self.now)
        self.game.ask(Report(node=name, incarnation=f"{name}-life", round=1, workers=states, stacks=stacks))

    def pulse(self, rank: int) -> Pulse:
        """Where a worker is now."""
        now, began, busy = self.stopped.get(rank, self.now), self.began[rank], self.busies[rank]
        last, done = self.busy(rank, self.step - 1) if self.step > 1 else 0.0, self.step - 1
        if now < began:
            return Pulse(Phase.OUTSIDE, done, self.ended, last, self.ended)
        if now < began + busy:
            return Pulse(Phase.COMPUTING, done, began, last, self.ended)
        return Pulse(Phase.REDUCING, done, began + busy, busy, self.ended)

    def stop(self, rank: int) -> None:
        """Stop a worker (SIGSTOP)."""
        self.stopped[rank] = self.now

    def _begin(self) -> None:
        self.step += 1
        self.busies = [self.busy(rank, self.step) for rank in range(len(self.names))]

    def _step(self) -> None:
        end = self.until
        self.ended = end
        self.began = [end + self.pause(rank, self.step) for rank in range(len(self.names))]
        self._begin()
