"""Helpers for tests of the master's rules: short names for requests, and turns that check the invariants."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, ParamSpec

from elasticjob.api.rpc.check import Check
from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.nodes import Failure, Finish, Order, Orders, Progress, Report, Watch
from elasticjob.api.rpc.rendezvous import Join, Leave, Recovery, World
from elasticjob.api.sizes.role import Range
from elasticjob.master.durable import columns
from elasticjob.master.durable.store import restore, snapshot
from elasticjob.master.handlers import dispatch, nodes, rendezvous
from elasticjob.master.handlers.nodes import Pod
from elasticjob.master.state.condition import Finding, Kind
from elasticjob.master.state.invariants import invariants
from elasticjob.master.state.job import Job, Spec, Verdict
from elasticjob.master.state.node import Phase

P = ParamSpec("P")
START = datetime(2026, 1, 1, tzinfo=UTC)


def join(name: str, life: str = "", **more: Any) -> Join:
    given: dict[str, Any] = {"slots": 1, "address": "127.0.0.1", "port": 1, "recovery": Recovery.IN_PROCESS}
    return Join(**{**_who(name, life), **given, **more})


def watch(name: str, life: str = "", **more: Any) -> Watch:
    return Watch(**{**_who(name, life), **more})


def plain(name: str, life: str = "", **more: Any) -> Join:
    """The join of a script that a change of the world restarts."""
    return join(name, life, **{"recovery": Recovery.RESTART, "wait": 60.0, **more})


def leave(name: str, number: int, *, planned: bool = False, life: str = "", grace: float = 0.0) -> Leave:
    return Leave(node=name, incarnation=life or f"{name}-life", round=number, planned=planned, grace=grace)


def ran(name: str, turn: int = 0, seconds: float = 1.0, error: str = "", life: str = "") -> Check:
    return Check(
        node=name,
        role="worker",
        index=int(name.rpartition("-")[2]),
        incarnation=life or f"{name}-life",
        address="127.0.0.1",
        port=1000 + turn,
        slots=1,
        device="cpu",
        turn=turn,
        seconds=seconds,
        error=error,
    )


def report(name: str, number: int, step: int, **more: Any) -> Report:
    progress = Progress(step=step, **more)
    return Report(node=name, incarnation=f"{name}-life", round=number, progress=progress)


def failure(name: str, *, final: bool = True, code: int = 1, life: str = "", number: int = 1) -> Failure:
    return Failure(
        node=name,
        incarnation=life or f"{name}-life",
        round=number,
        local_rank=0,
        exit_code=code,
        message="ValueError: no",
        final=final,
    )


def finish(name: str, number: int, life: str = "") -> Finish:
    return Finish(node=name, incarnation=life or f"{name}-life", round=number)


def pod(node: str, phase: Phase = Phase.RUNNING, **more: Any) -> Pod:
    given: dict[str, Any] = {"name": node, "role": "worker", "index": int(node.rpartition("-")[2]), **more}
    given.setdefault("uid", given["name"])
    return Pod(node=node, phase=phase, **given)


Step = Request[Any] | tuple[Pod, ...] | Callable[["Played"], object]
"""A step of a history: a request, the pods that are there now, or another thing."""


def act(do: Callable[Concatenate[Played, P], object]) -> Callable[P, Step]:
    """Make steps of what a function does to a job: it is called without the job, which `play` adds."""
    return lambda *args, **more: lambda game: do(game, *args, **more)


@act
def wait(game: Played, seconds: float, *alive: str) -> None:
    """Time passes; the agents of `alive` go on watching."""
    if seconds <= 0 or seconds * 2 % 1:
        raise ValueError(f"time passes in halves of a second, not by {seconds}")
    game.wait(seconds, *alive)


@act
def hears(game: Played, /, name: str, life: str = "", number: int = 0, **told: Any) -> None:
    """A node of a round is told this when it watches now: `says` is a part of the reason."""
    orders, says = game.orders(name, life, number), told.pop("says", "")
    if not says and not told:
        raise ValueError(f"hears({name!r}) checks nothing: say what it is told")
    assert says in orders.reason
    assert {field: getattr(orders, field) for field in told} == told


@act
def forms(game: Played, *names: str) -> None:
    """The last world is of these nodes, in rank order."""
    assert game.names() == [*names]


@act
def cut(game: Played, request: Request[Any]) -> None:
    """The line of a request is cut."""
    game.cut(request)


class Played:
    """A job in virtual time: send requests, advance the clock, read the replies. Checks every turn."""

    lazy = False  # a change of parameter servers is saved at once

    def __init__(self, minimum: int = 1, maximum: int = 2, unit: int = 1, **more: Any) -> None:
        bounds = Range(least=minimum, most=maximum, unit=unit)
        self.now = START
        self.job = Job(spec=Spec(job="digits", bounds=bounds, **more), gathering=START)

    @classmethod
    def of(cls, snapshot: bytes, skew: timedelta = timedelta(0)) -> Played:
        """The job of a master's snapshot, as the next master has it, whose clock is ahead by `skew`."""
        game, before = cls(), columns.decode(snapshot)
        game.now = (before.saved or START) + skew
        game.job = restore(snapshot, before.spec, game.now)
        return game

    def ask(self, *requests: Request[Any]) -> Any:
        reply = None
        for request in requests:
            turn = dispatch.handle(self.job, request, self.now)
            reply = turn.reply
            self._become(turn.job)
        return reply

    def play(self, *steps: Step) -> None:
        """Let things happen, one after another."""
        for step in steps:
            match step:
                case Request():
                    self.ask(step)
                case tuple():
                    self.see(*step)
                case _ if callable(step(self)):
                    raise TypeError("a step that does nothing: it lacks its parentheses")

    def cut(self, request: Request[Any]) -> None:
        self._become(dispatch.cut(self.job, request, self.now))

    def see(self, *pods: Pod) -> None:
        self._become(dispatch.judge(nodes.observe(self.job, pods, self.now), self.now))

    def wait(self, seconds: float, *alive: str) -> None:
        """Let time pass; the agents of `alive` go on watching, the joined ones go on joining."""
        for _ in range(int(seconds * 2)):
            self.now += timedelta(seconds=0.5)
            for name in alive:
                node = self.job.nodes[name]
                self._become(self.job.put(node.but(beat=self.now)))
            self._become(dispatch.tick(self.job, self.now))

    def another_master(self) -> None:
        """The next master takes over, from a snapshot of now."""
        self._become(restore(snapshot(self.job, self.now), self.job.spec, self.now))

    def tick(self) -> None:
        """Let the master look at its timeouts now."""
        self._become(dispatch.tick(self.job, self.now))

    def orders(self, name: str, life: str = "", number: int = 0) -> Orders:
        """The present reply to a Watch of this node."""
        request = watch(name, life, round=number)
        return nodes.orders(self.job, request, self.now)

    def order(self, name: str) -> Order:
        return self.orders(name).order

    def world(self, name: str, after: int = 0) -> World | None:
        return rendezvous.answer(self.job, join(name, self.job.nodes[name].incarnation, after=after))

    def ended(self) -> Verdict | None:
        return self.job.verdict

    @property
    def verdict(self) -> Verdict:
        """The verdict, of which the test is sure that it is there."""
        assert self.job.verdict is not None
        return self.job.verdict

    @property
    def found(self) -> list[Finding]:
        """What was found but for the ends of workers, which the test itself has reported."""
        return [each for each in self.job.health.findings if each.reason is not Kind.WORKER_FAILED]

    def names(self) -> list[str]:
        """Members of the last world in rank order."""
        return [member.node for member in self.job.world.members] if self.job.world else []

    def _become(self, job: Job) -> None:
        assert invariants(job) == []
        self.job = job
        if not self.lazy:
            self.save()

    def save(self) -> None:
        """Note that the job is saved, as far as parameter servers go."""
        self.job = self.job.but(parameters=self.job.parameters.after_save(self.job.parameters.mark))


def played(*names: str, enter: Callable[..., Join] = join, **bounds: Any) -> Played:
    """A job whose nodes `names` have formed the first world; without names it has yet to begin."""
    game = Played(**{"maximum": len(names) or 2, **bounds})
    game.ask(*(watch(name, pod=name) for name in names))
    game.ask(*(enter(name) for name in names))
    assert game.names() == list(names)
    return game


def _who(name: str, life: str) -> dict[str, Any]:
    return {
        "node": name,
        "role": "worker",
        "index": int(name.rpartition("-")[2]),
        "incarnation": life or f"{name}-life",
    }
