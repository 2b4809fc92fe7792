"""The algorithms, in the order in which they are asked. For each role, the first that has a proposal decides.

A new one is a file with `propose(history, limits, now)`, and a line here; or, from another package, an entry
point of the group `elasticjob.algorithms` that is an `Algorithm`: those go first.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from elasticjob.api.rpc.brain import StageName
from elasticjob.api.v1alpha1.common import PS, WORKER
from elasticjob.brain.algorithms import servers, workers
from elasticjob.brain.algorithms.algorithm import Algorithm, Propose
from elasticjob.brain.history import Event

GROUP: Final = "elasticjob.algorithms"
CREATE, RUNNING = StageName.CREATE, StageName.RUNNING
INITIAL: Final = (StageName.WORKER_INITIAL, StageName.PS_INITIAL)
LOOKS: Final = (Event.TROUBLE, Event.IDLE)


def _row(
    name: str,
    events: tuple[Event, ...],
    stages: tuple[StageName, ...],
    role: str,
    propose: Propose,
    beside: str = "",
) -> Algorithm:
    return Algorithm(name, frozenset(events), frozenset(stages), role, propose, beside)


ALGORITHMS: Final[tuple[Algorithm, ...]] = (
    _row("ps-after-oom", (Event.OOM,), tuple(StageName), PS, servers.after_oom),
    _row("worker-after-oom", (Event.OOM,), tuple(StageName), WORKER, workers.after_oom),
    _row("ps-from-history", (Event.START,), (CREATE,), PS, servers.from_history),
    _row("ps-cold", (Event.START,), (CREATE,), PS, servers.cold),
    _row("worker-from-history", (Event.START,), (CREATE,), WORKER, workers.from_history),
    _row("worker-cold", (Event.START,), (CREATE,), WORKER, workers.cold),
    _row("ps-initial", (Event.START,), INITIAL, PS, servers.initial),
    _row("hot-ps", LOOKS, (RUNNING,), PS, servers.hot),
    _row("idle-ps", (Event.IDLE,), (RUNNING,), PS, servers.idle),
    _row("worker-beside-ps", (Event.START, *LOOKS), (*INITIAL, RUNNING), WORKER, workers.beside_servers, PS),
    _row("worker-all-reduce", LOOKS, (RUNNING,), WORKER, workers.all_reduce),
)


def installed() -> tuple[Algorithm, ...]:
    """Return all algorithms: those of other packages, then ours. Raises TypeError for one that is none."""
    found = tuple(each.load() for each in entry_points(group=GROUP))
    for each in found:
        if not isinstance(each, Algorithm):
            raise TypeError(f"{each!r} of the entry points {GROUP} is no Algorithm")
    return (*found, *ALGORITHMS)
