"""Machines that take pods away: what is made beforehand, what leaves, and what evictions leave running.

The rows follow the table of what a shared cluster does to a node.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest

from elasticjob.api.v1alpha1.elasticjob import CleanPodPolicy
from elasticjob.controllers.jobresource.budget import PATIENCE, Budget, budget, written
from elasticjob.controllers.jobresource.decide import Seen, decide
from elasticjob.controllers.nodes.drains import SILENT, Notice
from elasticjob.controllers.nodes.exits import Exit
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.passes.plan import LATER, Create, Delete
from elasticjob.sizing.exits import ExitReason
from lab.build.jobs import NOW, ended, job, life, over, pending, resource, role

CORDONED = Notice("is cordoned")
SPOT = Notice("ends within minutes (taint spot)", at_once=True)
QUIET = Notice(SILENT)
WARNED = life(1, notice=CORDONED)
LONG_SINCE = NOW - timedelta(minutes=5)
ALONE: dict[str, Any] = {"distributionStrategy": "Local", "optimizeMode": "manual"}


def stand_in(index: int, for_: int, **more: Any) -> Life:
    return life(index, stands_in=for_, machine="m3", **more)


def taken(
    index: int, relaunch: int = 0, at: datetime = LONG_SINCE, *, for_: int | None = None, repeats: int = 0
) -> Life:
    """A pod that the cluster took away, soon after its start."""
    end = Exit(ExitReason.TAKEN_AWAY, 143, "", "512Mi", at, at)
    more: dict[str, Any] = {"running": False, "ready": False, "stands_in": for_, "repeats_before": repeats}
    return life(index, relaunch, ended=end, **more)


def seen(*lives: Life, spares: int = 0, least: int = 1, size: int = 2, **spec: Any) -> Seen:
    worker = role(size, minReplicas=least, maxReplicas=4, spares=spares)
    status = spec.pop("status", None)
    made = job({"worker": worker}, status=status, **spec)
    return Seen(resource({"worker": size}), made, lives, "10.0.0.1:50001")


def actions(given: Seen) -> list[str]:
    found = []
    for action in decide(given, NOW).actions:
        match action:
            case Create(_, manifest, optional):
                meta = manifest["metadata"]
                for_ = meta["annotations"].get("elasticjob.dlrover/stands-in")
                beside = f" for {for_}" if for_ is not None else " spare" if optional else ""
                found.append(f"+{meta['name'].removeprefix('digits-worker-')}{beside}")
            case Delete(_, name):
                found.append(f"-{name.removeprefix('digits-worker-')}")
            case _:
                raise AssertionError(action)
    return sorted(found)


ROWS: list[tuple[str, Seen, list[str]]] = [
    ("cordon: a stand-in first, the pod stays", seen(life(0), WARNED), ["+2 for 1"]),
    ("one stand-in", seen(life(0), WARNED, stand_in(2, 1)), []),
    ("one that starts", seen(life(0), WARNED, stand_in(2, 1, running=False, ready=False)), []),
    ("all machines are cordoned", seen(life(0, notice=CORDONED), WARNED), ["+2 for 0", "+3 for 1"]),
    ("evicted: it leaves, its stand-in stays", seen(life(0), life(1, terminating=True), stand_in(2, 1)), []),
    ("evicted and gone: made again", seen(life(0), stand_in(2, 1)), ["+1"]),
    ("made again, not ready", seen(life(0), pending(1, 1), stand_in(2, 1)), []),
    ("made again, has yet to join", seen(life(0), life(1, 1, since=NOW), stand_in(2, 1)), []),
    ("made again: its stand-in leaves", seen(life(0), life(1, 1, since=LONG_SINCE), stand_in(2, 1)), ["-2"]),
    ("uncordoned: its stand-in leaves", seen(life(0), life(1, since=LONG_SINCE), stand_in(2, 1)), ["-2"]),
    ("the stand-in's machine is cordoned, too", seen(life(0), WARNED, stand_in(2, 1, notice=CORDONED)), []),
    ("a stand-in that was taken away is made again", seen(life(0), WARNED, taken(2, for_=1)), ["+2-1 for 1"]),
    ("later, if it was again and again", seen(life(0), WARNED, taken(2, at=NOW, for_=1, repeats=4)), []),
    ("a stand-in that failed is not", seen(life(0), WARNED, ended(2, stands_in=1)), []),
    ("preempted, evicted by the kubelet, node shut down: made again", seen(life(0), taken(1)), ["+1-1"]),
    ("spot: leaves now, with a stand-in on its way", seen(life(0), life(1, notice=SPOT)), ["+2 for 1", "-1"]),
    ("spot: leaves once", seen(life(0), life(1, notice=SPOT, terminating=True), stand_in(2, 1)), []),
    ("a silent machine: a stand-in", seen(life(0), life(1, notice=QUIET)), ["+2 for 1"]),
    ("all are silent: nothing is known", seen(life(0, notice=QUIET), life(1, notice=QUIET)), []),
    ("a spare is there from the start", seen(spares=1), ["+0", "+1", "+2 spare"]),
    ("a spare stays", seen(life(0), life(1), life(2), spares=1), []),
    ("a spare that is lost is made again", seen(life(0), life(1), taken(2), spares=1), ["+2-1 spare"]),
    ("a spare's machine", seen(life(0), life(1), life(2, notice=CORDONED), spares=1), ["+3 for 2"]),
    ("no more spares", seen(life(0), life(1), life(2)), ["-2"]),
    ("scale down while a stand-in is there", seen(life(0), life(1), stand_in(2, 1), size=1), ["-1", "-2"]),
    ("scale up: the stand-in is the node", seen(life(0), WARNED, stand_in(2, 1), size=3), ["+3 for 1"]),
    ("without a master, a pod has to begin anew", seen(life(0), WARNED, **ALONE, spares=0), []),
]


@pytest.mark.parametrize(("given", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_is_made_and_what_leaves(given: Seen, expected: list[str]) -> None:
    assert actions(given) == expected


def test_a_stand_in_that_is_refused_is_asked_for_again() -> None:
    plan = decide(seen(life(0), WARNED), NOW)
    assert plan.again_in == LATER
    assert [note.sentence for note in plan.notes] == [
        "digits-worker-2 is made beforehand for digits-worker-1: m1 is cordoned"
    ]


LEAVING = life(3, ready=False, terminating=True, created=LONG_SINCE, deleted_at=NOW)
AGAIN = pending(3, 1, created=NOW)
COUNTS: list[tuple[str, Seen, int | None]] = [
    ("one at a time", seen(life(0), life(1), life(2), life(3), size=4), 3),
    ("one has left: the next waits", seen(life(0), life(1), life(2), taken(3, at=NOW), size=4), 3),
    ("its place is empty for long", seen(life(0), life(1), life(2), taken(3), size=4), 2),
    ("it leaves", seen(life(0), life(1), life(2), LEAVING, size=4), 3),
    ("its replacement starts", seen(life(0), life(1), life(2), pending(3, 1, created=NOW), size=4), 3),
    ("no pod can be made for it", seen(life(0), life(1), life(2), size=4), 2),
    ("a standby that is not there yet", seen(life(0), life(2), life(3), WARNED, size=4, least=2), 3),
    ("it begins again and again", seen(life(0), life(1), life(2), taken(3), AGAIN, size=4), 2),
    ("it finds no machine", seen(life(0), life(1), life(2), pending(3, 1, created=LONG_SINCE), size=4), 2),
    ("never fewer than minReplicas", seen(life(0), life(1), least=2), 2),
    ("a stand-in lets one go", seen(life(0), WARNED, stand_in(2, 1), least=2), 2),
    ("two let two go, one at a time", seen(life(0), life(1), life(2), life(3), least=2, spares=2), 3),
    ("a node of its own", seen(life(0), size=1), 1),
    ("nothing has started", seen(), None),
    ("none runs yet", seen(pending(0), pending(1), pending(2), size=3), None),
    ("the first one runs", seen(life(0), pending(1), pending(2), size=3), 2),
    ("what failed for good is not counted", seen(life(0), life(1), ended(2, restarts_before=9), size=3), 1),
    ("the job is over", seen(life(0), status=over()), None),
    ("its pods go on", seen(life(0), status=over(), runPolicy={"cleanPodPolicy": CleanPodPolicy.NONE}), 0),
    ("no master", seen(life(0), **ALONE), None),
]


@pytest.mark.parametrize(("given", "least"), [row[1:] for row in COUNTS], ids=[row[0] for row in COUNTS])
def test_what_evictions_leave_running(given: Seen, least: int | None) -> None:
    found = budget(given, NOW)
    assert (found and found.least) == least


STATES: tuple[Callable[[int], tuple[Life, ...]], ...] = (
    lambda n: (),
    lambda n: (life(n),),
    lambda n: (life(n, notice=CORDONED),),
    lambda n: (pending(n, created=NOW),),
    lambda n: (life(n, ready=False, created=LONG_SINCE),),
    lambda n: (life(n, terminating=True, ready=False, created=LONG_SINCE, deleted_at=NOW),),
    lambda n: (taken(n, at=NOW),),
    lambda n: (taken(n), pending(n, 1, created=NOW)),
    lambda n: (ended(n, code=0, at=NOW),),
    lambda n: (ended(n, 9, at=NOW, restarts_before=9),),
    lambda n: (life(n, lost=True, created=NOW),),
)


@pytest.mark.parametrize("least", [1, 2, 3])
def test_in_every_state_an_eviction_is_granted_in_time_unless_minreplicas_forbids_it(least: int) -> None:
    for states in product(STATES, repeat=3):
        lives = [each for n, state in enumerate(states) for each in state(n)]
        given = seen(life(3), *lives, size=3, least=least, spares=1)
        found = budget(given, NOW + PATIENCE)
        ready = sum(each.ready for each in given.lives if not each.lost and not each.terminating)
        assert found is not None
        assert found.least < ready or ready <= least, lives


def test_the_budget_is_counted_again_when_a_replacement_is_late() -> None:
    late = budget(seen(life(0), pending(1, created=NOW - timedelta(seconds=20))), NOW)
    assert late is not None
    assert late.again_in == timedelta(seconds=40)


def test_the_budget_selects_workers_only() -> None:
    made = written(job(), Budget(1)).manifest
    assert made["spec"] == {
        "minAvailable": 1,
        "selector": {
            "matchLabels": {"elasticjob.dlrover/name": "digits", "elasticjob.dlrover/replica-type": "worker"}
        },
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    assert made["metadata"]["ownerReferences"][0]["uid"] == "job-1"
