"""Who hangs: which workers keep the others waiting, from where each says it is.

1. A worker waits if it reduces, or waits for the others at their first step; it acts otherwise.
2. While a worker is between two steps (evaluates, saves, prints) the others wait for good reason, however
long; unless it is stopped.
3. A worker that is stopped (SIGSTOP) hangs when all others wait.
4. A worker that acts hangs when there was no step for the bound, others wait, and it has done the same for
as long. The bound is a few seconds beyond three usual steps. Not before its first step, which may compile.
5. If all wait, those that are a step behind hang. If none is behind, a collective hangs. Whose fault that is
cannot be told, so the bound is longer, and the youngest worker is started again, which ends the collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from elasticjob.api.rpc.nodes import Doing, WorkerState

FIRST: Final = 30.0  # seconds, instead of three steps whose usual duration is not known yet
COLLECTIVE: Final = 60.0  # seconds beyond ten usual steps until a collective hangs
COMPUTES: Final = 0.5  # cores: who uses as much may only be slow (it compiles), and is named but not killed
SLOWLY: Final = 60.0  # seconds after which it is killed nevertheless


class Seen(NamedTuple):
    """A worker of the world, and how old its state is in seconds."""

    node: str
    rank: int
    state: WorkerState
    age: float = 0.0

    @property
    def stopped(self) -> bool:
        """Whether it is stopped."""
        return self.state.stopped > 0

    @property
    def waits(self) -> bool:
        """Whether it waits for the others."""
        return self.state.doing in WAITS and not self.stopped

    @property
    def since(self) -> float:
        """How long it has done the same, or been stopped."""
        return (self.state.stopped or self.state.since) + self.age


class Hung(NamedTuple):
    """Workers that hang, in a sentence; `patient`: they may only be slow."""

    workers: tuple[Seen, ...]
    sentence: str
    patient: bool = False


WAITS: Final = frozenset({Doing.REDUCING, Doing.WAITING})
BETWEEN: Final = frozenset({Doing.OUTSIDE, Doing.ENDED, Doing.STARTING})
DOES: Final = {
    Doing.COMPUTING: "computes",
    Doing.READING: "waits for its records",
    Doing.REDUCING: "reduces",
}


def find(workers: Sequence[Seen], floor: float) -> Hung | None:
    """Return the workers that hang, None if none does; the bound is `floor` seconds beyond three steps."""
    waiting = [worker for worker in workers if worker.waits]
    if not waiting or any(each.state.doing in BETWEEN and not each.stopped for each in workers):
        return None
    known = [each.state.usual for each in workers if each.state.usual]
    usual = median(known) if known else 0.0
    patience = floor + (3 * usual if known else FIRST)
    idle = [None if each.state.idle is None else each.state.idle + each.age for each in workers]
    begun = [seconds for seconds in idle if seconds is not None]
    steps = len(begun) == len(workers)
    if begun and min(begun) <= patience:
        return None
    acting = [worker for worker in workers if not worker.waits]
    if acting and all(worker.stopped for worker in acting):
        bound = patience if known else floor
        hung = [worker for worker in acting if worker.since > bound]
        return blamed(hung, len(waiting), begun, usual) if len(hung) == len(acting) else None
    if not steps or max(worker.since for worker in waiting) <= patience - usual:
        return None
    if acting:
        hung = [worker for worker in acting if worker.since > patience - usual]
        return blamed(hung, len(waiting), begun, usual) if hung else None
    least, most = (choose(worker.state.step for worker in workers) for choose in (min, max))
    if least < most:
        behind = [w for w in waiting if w.state.step == least and w.since > patience - usual]
        return blamed(behind, len(waiting) - len(behind), begun, usual) if behind else None
    waited = min(*begun, *(worker.since for worker in workers))
    if len(workers) > 1 and waited > COLLECTIVE + 10 * usual:
        youngest = max(workers, key=lambda worker: worker.rank)
        return Hung((youngest,), in_a_collective(workers, youngest, min(begun), usual))
    return None


def blamed(hung: Sequence[Seen], waiting: int, idle: Sequence[float], usual: float) -> Hung | None:
    """Return the verdict about `hung`, for which `waiting` others wait."""
    if not waiting:
        return None
    first = hung[0]
    does = "is stopped (SIGSTOP)" if first.stopped else DOES.get(first.state.doing, first.state.doing)
    more = f" and {len(hung) - 1} more" if len(hung) > 1 else ""
    others = "1 other waits" if waiting == 1 else f"{waiting} others wait"
    last = f"; its last step was {first.state.step}" if first.state.step else ""
    still = f"no step for {min(idle):.1f} s (usual {usual:.2g} s); " if idle and usual else ""
    sentence = (
        f"rank {first.rank} on {first.node}{more} hangs: {still}"
        f"it {does} for {first.since:.1f} s while {others} for it{last}"
    )
    computes = all(not each.stopped and each.state.cores >= COMPUTES for each in hung)
    return Hung(tuple(hung), sentence, patient=computes)


def in_a_collective(workers: Sequence[Seen], youngest: Seen, idle: float, usual: float) -> str:
    """Return the verdict about a collective that does not end."""
    return (
        f"all {len(workers)} workers hang in a collective: no step for {idle:.0f} s (usual {usual:.2g} s), "
        f"and each waits for the others; rank {youngest.rank} on {youngest.node}, the youngest, is restarted"
    )
