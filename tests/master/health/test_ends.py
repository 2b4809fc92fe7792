"""What follows from the ends of workers: findings that are counted, and the verdict about a script."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from elasticjob.api.rpc.nodes import Failure
from elasticjob.master.durable.columns import decode, encode
from elasticjob.master.health.ends import CALM
from elasticjob.master.state.job import End, Rule
from elasticjob.master.state.node import Phase
from lab.virtual.master import Played, failure, pod, watch

FRAME = "train.py:12 in main"
ERROR: dict[str, Any] = {"way": f"ValueError: no # {FRAME}", "frame": FRAME, "anywhere": True}


def end(story: str, start: int = 1, **more: Any) -> Failure:
    """The failure of worker `story[1]` of node `story[0]`, in a start of its agent."""
    node, worker = map(int, story[:2])
    given = {**ERROR, "number": 2 * start - 1 + worker, "restarts": start, "workers": 1, **more}
    made = failure(f"node-{node}", final=False, number=start)
    return msgspec.structs.replace(made, local_rank=worker, **given)


def cluster(*names: str, **more: Any) -> Played:
    """A job in a cluster whose pods run, and their agents."""
    game = Played(**{"minimum": 1, "maximum": 4, "replicas": len(names), "restart_count": 9, **more})
    game.see(*map(pod, names))
    game.ask(*(watch(name, pod=name) for name in names))
    return game


TWO = ("node-0", "node-1")
TWICE = (end("00"), end("10"), end("00", 2), end("10", 2))
RULE = Rule(action="Ignore", codes=(1,))


@pytest.mark.parametrize(
    ("names", "ends", "more", "over"),
    [
        pytest.param(TWO, TWICE, {}, True, id="all of them twice"),
        pytest.param(TWO[:1], (end("00"), end("00", 2)), {}, True, id="the only one twice"),
        pytest.param(TWO, TWICE[:3], {}, False, id="one of them once"),
        pytest.param(TWO, (*TWICE[:3], TWICE[2]), {}, False, id="a report that comes again is no other end"),
        pytest.param(TWO, tuple(end("00", n) for n in (1, 2, 3)), {}, False, id="one worker only"),
        pytest.param(TWO[:1], tuple(end("03", n, workers=8) for n in (1, 2)), {}, False,
                     id="one worker of a node with eight"),
        pytest.param(TWO[:1], (end("00", workers=8), end("01", workers=8)), {}, False,
                     id="two workers of a node in one start"),
        pytest.param(TWO[:1], (end("00", workers=8), end("01", 2, workers=8)), {}, True,
                     id="each start by another worker of the node"),
        pytest.param(TWO, (*TWICE[:3], end("10", 2, way="KeyError: #")), {}, False,
                     id="different exceptions"),
        pytest.param(TWO, (*TWICE[:3], end("10", 2, way="ValueError: no # data.py:1")), {}, False,
                     id="elsewhere"),
        pytest.param(TWO, tuple(msgspec.structs.replace(e, anywhere=False) for e in TWICE), {}, False,
                     id="a machine's"),
        pytest.param(TWO, TWICE, {"replicas": None}, False, id="outside of a cluster"),
        pytest.param(TWO, TWICE, {"rules": (RULE,)}, False, id="the user has said what follows"),
        pytest.param(TWO, TWICE, {"minimum": 3}, False, id="a job of which others are yet to come"),
        pytest.param((*TWO, "node-2"), TWICE, {"spares": 1}, True, id="all but the spare"),
    ],
)  # fmt: skip
def test_the_same_exception_from_all_workers_twice_ends_the_job(
    names: tuple[str, ...], ends: tuple[Failure, ...], more: dict[str, Any], *, over: bool
) -> None:
    game = cluster(*names, **more)
    game.ask(*ends[:-1])
    assert game.ended() is None
    game.ask(ends[-1])
    if not over:
        assert game.ended() is None
        return
    assert (game.verdict.end, game.verdict.reason) == (End.FAILED, "CannotStart")
    who = "all 2 nodes" if game.job.nodes["node-0"].alike and len(ends) == 4 else "the node"
    assert game.verdict.message == (
        f"{who} failed twice with the same error before any step: "
        f"node-0: worker 0 ended with exit code 1: ValueError: no ({FRAME})"
    )


def test_a_step_begins_the_history_anew() -> None:
    game = cluster(*TWO)
    game.ask(*TWICE[:3])
    game.job = game.job.but(training=game.job.training.but(stepped=1))
    game.ask(TWICE[3])
    assert game.ended() is None
    game.ask(end("00", 3), end("10", 3))
    assert game.ended() is None
    game.ask(end("00", 4))
    assert game.verdict.reason == "CannotStart"


def test_the_next_pod_of_a_node_goes_on_with_its_history_and_one_that_succeeded_ends_it() -> None:
    game = cluster(*TWO)
    game.ask(*TWICE[:2], end("00", 2))
    game.see(pod("node-0"), pod("node-1", Phase.FAILED), pod("node-1", name="node-1-1", relaunch=1))
    game.ask(watch("node-1", "next", pod="node-1-1"))
    game.ask(msgspec.structs.replace(end("10"), incarnation="next"))
    assert game.verdict.reason == "CannotStart"
    other = cluster(*TWO, "node-2")
    other.see(pod("node-0"), pod("node-1"), pod("node-2", Phase.SUCCEEDED))
    other.ask(*TWICE)
    assert other.ended() is None


def test_ends_are_counted_in_one_finding_for_each_way_until_they_have_not_come_for_long() -> None:
    game = cluster(*TWO)
    for start in range(1, 23):
        game.ask(end("00", start, anywhere=False), end("10", start, anywhere=False))
    game.ask(end("00", 23, way="RuntimeError: peer", echo=True))
    (found,) = game.job.health.findings
    assert (found.reason, found.count) == ("WorkerFailed", 44)
    assert found.message == f"node-0: worker 0 ended with exit code 1: ValueError: no ({FRAME})"
    assert (game.job.restarts, game.job.restarted) == (45, 45)
    assert decode(encode(game.job, game.now)).restarted == 45
    for number in range(24, 34):
        game.ask(end("00", number, way=f"KeyError: '{number}'", anywhere=False))
    assert sum(each.until is None for each in game.job.health.findings) == 4
    game.now += CALM
    for name in TWO:
        game.job = game.job.put(game.job.nodes[name].but(beat=game.now))
    game.tick()
    assert all(each.until for each in game.job.health.findings)
