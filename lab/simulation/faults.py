"""Faults of programs, requests and watches: a row each, with its weight and its fields.

A fault of a write names the how manyth of the operator's writes from its second on: `crash write=12
when=before`. All end by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

from elasticjob.kube.errors import ApiError, Conflict, ServerError, TooManyRequests, Unreachable
from elasticjob.kube.objects.kinds import Kind
from lab.simulation.connection import BRAIN, MASTERS, OPERATOR, READS, Connection, Strike
from lab.simulation.history import Value

if TYPE_CHECKING:
    from lab.simulation.world import World
    from lab.virtual.operator import Watch

WRITES: Final = 12
"""What follows from an act makes about as many."""
KINDS: Final = ("pods", "elasticjobs", "jobresources", "scaleplans", "services", "nodes", "workloads")
DOUBT: Final = 1.0
"""Seconds in which the operator has seen whether a write was done of which it got no answer."""
ERRORS: Final[dict[int, Callable[[], ApiError]]] = {
    409: lambda: Conflict(409, "Conflict", "the object has been modified"),
    429: lambda: TooManyRequests(429, "TooManyRequests", "too many requests"),
    500: lambda: ServerError(500, "InternalError", "etcdserver: request timed out"),
}


@dataclass(frozen=True)
class Fault:
    """One row; see the module. `do` is called at its second, with the fields of its line."""

    name: str
    weight: int
    draw: Callable[[Random], dict[str, Value]]
    do: Callable[..., None]


def crash(world: World, write: int, when: str, back: float, behind: int = 0, program: str = OPERATOR) -> None:
    """A program dies before or after a write, and starts again; an operator's first lists may be old."""

    async def die(connection: Connection) -> None:
        world.note(f"--- {program} dies {when} write {write}, {connection.what}")
        if program == BRAIN:
            world.crash_brain(back)
        elif program == MASTERS:
            connection.dead = True
            world.crash_master(connection)
        else:
            world.crash(back, behind)

    world.strike(write, Strike(when == "after", die), program)


def restart(world: World, back: float, behind: int = 0) -> None:
    world.note("--- the operator dies")
    world.crash(back, behind)


def restart_brain(world: World, back: float) -> None:
    world.note("--- Brain dies")
    world.crash_brain(back)


def cut(world: World, write: int, done: str, program: str = OPERATOR) -> None:
    """The connection is cut between request and answer: the write was done, or was not."""

    async def befall(connection: Connection) -> None:
        world.note(f"--- write {write}, {connection.what}, is cut, done: {done}")
        world.doubtful = world.time + DOUBT
        raise Unreachable("the connection was reset")

    world.strike(write, Strike(done == "yes", befall), program)


def refuse(world: World, write: int, code: int, program: str = OPERATOR) -> None:
    """A request is refused; of a deletion a conflict would say that the object is another."""

    async def befall(connection: Connection) -> None:
        world.note(f"--- write {write}, {connection.what}, is refused: {code}")
        raise ERRORS[code]()

    world.strike(write, Strike(False, befall, "delete" if code == 409 else ""), program)


def slow(world: World, write: int, seconds: float, program: str = OPERATOR) -> None:
    """A write is long on its way."""

    async def befall(connection: Connection) -> None:
        world.note(f"--- write {write}, {connection.what}, is on its way for {seconds:g} s")
        world.hold(seconds)
        until = world.time + seconds
        while world.time < until:
            try:
                await asyncio.sleep(until - world.time)
            except asyncio.CancelledError:  # it has left its program, whose end does not stop it
                if world.closed:
                    raise

    world.strike(write, Strike(False, befall, is_sent=True), program)


def depose(world: World, write: int, seconds: float) -> None:
    """The leader is stopped in the middle of a write, and goes on after another has led for a while."""

    async def befall(connection: Connection) -> None:
        world.note(f"--- the operator is stopped at write {write}, {connection.what}, and another leads")
        world.depose(seconds)
        if connection.paused:
            await connection.paused.wait()

    world.strike(write, Strike(False, befall))


def stale(world: World, kind: str, versions: int, seconds: float) -> None:
    """Reads of a kind lag by so many versions, for a while."""
    if watch := _watch(world, kind, seconds):
        watch.behind = versions
        world.lag(seconds)


def drop(world: World, kind: str, seconds: float) -> None:
    """Events of a kind are lost, until it is listed anew."""
    if watch := _watch(world, kind, seconds):
        watch.copies = 0
        world.lag(seconds)


def double(world: World, kind: str, seconds: float) -> None:
    """Events of a kind come twice."""
    if watch := _watch(world, kind, seconds):
        watch.copies = 2


def _watch(world: World, kind: str, seconds: float) -> Watch | None:
    """Return the operator's watch of a kind, which is well again after its last fault; None without one."""
    if (operator := world.operator) is None:
        return None
    resource = _resource(world, kind)
    watch = operator.watches[resource]

    def heal() -> None:
        has_lost = watch.copies == 0
        watch.catch_up()
        if has_lost and world.operator is operator:
            operator.relist(resource)

    world.lasts(f"watch {id(watch)}", seconds, heal)
    return watch


def late(world: World, kind: str, seconds: float) -> None:
    if world.operator:
        world.operator.watches[_resource(world, kind)].stall(seconds)
        world.lag(seconds)


def relist(world: World, kind: str) -> None:
    """The server has compacted the version of a watch: 410."""
    if world.operator:
        world.operator.relist(_resource(world, kind))


def away(world: World, seconds: float) -> None:
    """The API server does not answer."""

    def back() -> None:
        world.server.away = False

    world.server.away = True
    world.lasts("away", seconds, back)


def deny(world: World, kind: str, seconds: float) -> None:
    """The API server fails each write of a kind, by its plural."""
    usual = world.server.fault

    def fault(verb: str, of: Kind[Any], name: str) -> Exception | None:
        return ERRORS[500]() if of.plural == kind and verb not in READS else usual(verb, of, name)

    def again() -> None:
        world.server.fault = usual

    world.server.fault = fault
    world.lasts("deny", seconds, again)


def collector(world: World, after: float, seconds: float) -> None:
    """The garbage collector is behind: what has lost its owner stays so long."""
    world.collects_after = after

    def again() -> None:
        world.collects_after = None

    world.lasts("collector", seconds, again)


def clock(world: World, step: float) -> None:
    """The clock of the operator's machine is set."""
    world.clock.ahead += timedelta(seconds=step)


def _resource(world: World, kind: str) -> str:
    watches = world.operator.watches if world.operator else {}
    return next(name for name in watches if name.partition(".")[0] == kind)


def _write(chance: Random) -> int:
    return chance.randint(1, WRITES)


FAULTS: Final = (
    Fault(
        "crash",
        8,
        lambda c: {
            "write": _write(c),
            "when": c.choice(("before", "after")),
            "back": c.choice((0.05, 1, 10)),
        },
        crash,
    ),
    Fault(
        "crash",
        1,
        lambda c: {
            "write": _write(c),
            "when": c.choice(("before", "after")),
            "back": 1,
            "program": c.choice((MASTERS, BRAIN)),
        },
        crash,
    ),
    Fault("restart", 3, lambda c: {"back": c.choice((0.05, 1, 10))}, restart),
    Fault("restart-brain", 1, lambda c: {"back": c.choice((0.05, 1, 10))}, restart_brain),
    Fault("cut", 3, lambda c: {"write": _write(c), "done": c.choice(("yes", "no"))}, cut),
    Fault("refuse", 3, lambda c: {"write": _write(c), "code": c.choice(sorted(ERRORS))}, refuse),
    Fault(
        "refuse",
        1,
        lambda c: {"write": c.randint(1, 12), "code": c.choice(sorted(ERRORS)), "program": MASTERS},
        refuse,
    ),
    Fault("slow", 2, lambda c: {"write": _write(c), "seconds": c.choice((0.2, 3, 10))}, slow),
    Fault(
        "slow",
        1,
        lambda c: {"write": _write(c), "seconds": c.choice((0.2, 3, 10)), "program": MASTERS},
        slow,
    ),
    Fault("depose", 3, lambda c: {"write": _write(c), "seconds": c.choice((1, 5, 20))}, depose),
    Fault(
        "stale",
        5,
        lambda c: {"kind": c.choice(KINDS), "versions": c.randint(1, 5), "seconds": c.choice((2, 10))},
        stale,
    ),
    Fault("drop", 3, lambda c: {"kind": c.choice(KINDS), "seconds": c.choice((2, 10))}, drop),
    Fault("double", 1, lambda c: {"kind": c.choice(KINDS), "seconds": 20}, double),
    Fault("late", 2, lambda c: {"kind": c.choice(KINDS), "seconds": c.choice((0.5, 4, 12))}, late),
    Fault("relist", 1, lambda c: {"kind": c.choice(KINDS)}, relist),
    Fault("away", 1, lambda c: {"seconds": c.choice((0.1, 1, 10))}, away),
    Fault("deny", 0, lambda c: {"kind": "pods", "seconds": 10}, deny),
    Fault("collector", 1, lambda c: {"after": c.choice((2, 8)), "seconds": 20}, collector),
    Fault("clock", 1, lambda c: {"step": c.choice((-30, 30, 3600))}, clock),
)
