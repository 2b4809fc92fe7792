"""The algorithms, in the order in which they are asked. The first to name a number or an amount decides it.

A new one is a file in rules/ with `propose(facts)`, and a line here; or, from another package, an entry point
of the group `elasticjob.algorithms` that is an `Algorithm`: those go first, wherever they are installed.
Rows of Brain need the history of other jobs, or a long one; all others are asked by masters and by Brain.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Final

from elasticjob.api.roles import PS, WORKER
from elasticjob.api.sizes.facts import Stage
from elasticjob.sizing.algorithm import Algorithm, Decider, Propose
from elasticjob.sizing.facts import Event
from elasticjob.sizing.rules import beside, cores, growth, history, memory, model, pending, servers, start

GROUP: Final = "elasticjob.algorithms"
BOTH: Final = tuple(Decider)
BRAIN: Final = (Decider.BRAIN,)
MASTER: Final = (Decider.MASTER,)
CREATE: Final = (Stage.CREATE,)
RUNNING: Final = (Stage.RUNNING,)
INITIAL: Final = (Stage.WORKER_INITIAL, Stage.PS_INITIAL)
TRAINS: Final = (*INITIAL, *RUNNING)
START: Final = (Event.START,)
LOOKS: Final = (Event.TROUBLE, Event.IDLE)
IDLE: Final = (Event.IDLE,)


def _row(
    name: str,
    by: tuple[Decider, ...],
    events: tuple[Event, ...],
    stages: tuple[Stage, ...],
    propose: Propose,
    role: str = "",
    *,
    beside: str = "",
    without: str = "",
    alone: bool = False,
) -> Algorithm:
    return Algorithm(
        name, frozenset(events), frozenset(stages), propose, role, beside, without, frozenset(by), alone
    )


ALGORITHMS: Final[tuple[Algorithm, ...]] = (
    _row("ps-from-history", BRAIN, START, CREATE, history.servers, PS),
    _row("worker-from-history", BRAIN, START, CREATE, history.workers, WORKER),
    _row("start", BOTH, START, CREATE, start.propose),
    _row("waiting", BOTH, LOOKS, TRAINS, pending.propose, alone=True),
    _row("ps-initial", BRAIN, START, INITIAL, history.initial_servers, PS),
    _row("hot-ps", BRAIN, LOOKS, RUNNING, servers.hot, PS),
    _row("idle-ps", BRAIN, IDLE, RUNNING, servers.idle, PS),
    _row("worker-beside-ps", BRAIN, (*START, *LOOKS), TRAINS, beside.propose, WORKER, beside=PS),
    _row("cores", BOTH, LOOKS, TRAINS, cores.propose),
    _row("memory", BOTH, LOOKS, TRAINS, memory.propose),
    _row("ps-and-workers", MASTER, LOOKS, TRAINS, servers.propose, PS),
    _row("worker-model", BRAIN, LOOKS, RUNNING, model.propose, WORKER, without=PS),
    _row("worker-growth", BOTH, LOOKS, TRAINS, growth.propose, WORKER, without=PS),
)


@cache
def all_algorithms() -> tuple[Algorithm, ...]:
    """Return all algorithms: those of other packages, then ours. Raises TypeError for one that is none."""
    loaded = tuple(each.load() for each in entry_points(group=GROUP))
    for each in loaded:
        if not isinstance(each, Algorithm):
            raise TypeError(f"{each!r} of the entry points {GROUP} is no Algorithm")
    return (*loaded, *ALGORITHMS)
