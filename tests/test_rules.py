"""Laws of each rule of each ordered table, asked alone and at any time: others go before it in `decide`."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from random import Random
from types import FunctionType, ModuleType
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import Phase, given, settings

from elasticjob.api.diengine.pods import Server
from elasticjob.api.rpc.nodes import Hang, Order, Progress, WorkerPlace
from elasticjob.api.troubles.trouble import Trouble
from elasticjob.controllers.dijob.decide import Terms
from elasticjob.controllers.kueue import decide as queues
from elasticjob.controllers.passes.plan import (
    Apply,
    Create,
    CreateOrApply,
    Delete,
    DeleteOwned,
    Patch,
    Plan,
    Resize,
)
from elasticjob.master.health import ends
from elasticjob.master.state.errors import RequestError
from elasticjob.master.state.invariants import invariants
from elasticjob.master.state.job import Job, Verdict
from elasticjob.trainer.agent.actions import Step
from elasticjob.trainer.agent.decide import decide
from elasticjob.trainer.agent.group import (
    AskedToLeave,
    Event,
    Group,
    MasterOrders,
    Message,
    ProcessEnd,
    WarmReady,
    observe,
)
from elasticjob.trainer.link.channel import Advance, Behind, Boundary, Broken, Hello, Ready
from lab.build.jobs import NOW
from lab.virtual.master import START, Played, failure, finish, join, leave, plain, pod, report, watch
from tests.api.troubles import test_troubles
from tests.controllers.dijob import test_dijob
from tests.controllers.elasticjob import test_decide as of_jobs
from tests.controllers.jobresource import test_decide as of_nodes
from tests.controllers.jobresource import test_request
from tests.controllers.kueue import test_decide as of_queues
from tests.controllers.scaleplan import test_decide as of_plans
from tests.master.health.test_ends import RULE as IGNORE
from tests.master.health.test_ends import end
from tests.trainer.agent.test_decide import formed, orders, restarting, training

ROOMS = ("api", "brain", "controllers", "master", "sizing", "trainer")
TABLE = re.compile(
    r"^[A-Z_]+(?:: .+)? = \(\s*[a-z_][\w.]*,|^[A-Z_]+: .*Callable\[\[\w+, (?:datetime|float)\].* = ", re.M
)
"""Where a literal of functions begins."""
RULE = re.compile(r"[, ](now: (datetime|float)|terms: Terms)\)")
"""The end of a rule's parameters."""
NODES = ("node-0", "node-1", "node-2")

Situations = Callable[[Random], Iterator[Any]]


def rows(module: ModuleType, form: str) -> Situations:
    """Return all values of a form in the tables of a test module, and in the parameters of its tests."""
    type_: type = vars(module)[form]

    def within(value: Any) -> Iterator[Any]:
        if isinstance(value, type_):
            yield value
        if isinstance(value, Mapping):
            value = tuple(value.values())
        if isinstance(value, (tuple, list)):
            for each in value:
                yield from within(each)

    found = [seen for value in vars(module).values() for seen in within(value)]
    for test in vars(module).values():
        for mark in getattr(test, "pytestmark", ()):
            found += within(mark.args)
    assert found
    return lambda chance: iter(found)


def jobs(chance: Random) -> Iterator[Job]:
    """Yield a master's job after each of a few requests of nodes that train, fail and finish."""
    enter, leader = chance.choice([join, plain]), chance.choice(["", "node-0"])
    game = Played(
        2,
        3,
        replicas=3,
        restart_count=chance.randrange(2),
        leader=leader,
        rules=chance.choice([(), (IGNORE,)]),
    )
    game.see(*map(pod, NODES))
    game.ask(*(watch(name, pod=name) for name in NODES), *map(enter, NODES))
    again = failure if chance.random() < 0.5 else finish
    for start in range(12):
        name, round_ = chance.choice(NODES), game.job.round
        requests = [
            again(name, number=round_),
            again(name, number=round_),
            end(f"{name[-1]}0", start),
            leave(name, round_, planned=chance.random() < 0.5),
            enter(name, after=round_),
            report(name, round_, start),
        ]
        with suppress(RequestError):
            game.ask(chance.choice(requests))
        yield game.job
        game.wait(chance.choice([0, 1, 6]), *(name for name in NODES if chance.random() < 0.9))
        yield game.job.but(
            fatal=chance.choice(["", "exit code 42"]), unsaved=chance.choice(["", "the disk is full"])
        )


def groups(chance: Random) -> Iterator[Group]:
    """Yield an agent's group after each of a few events of a node that trains."""
    story = chance.choice([training, restarting])("a", "b", slots=2)
    group, now = story.group, story.now
    for version in range(1, 16):
        slot, round_ = chance.randrange(2), chance.choice([group.round, group.round, version])
        hang = Hang(
            number=1,
            round=round_,
            reason="no step",
            workers=(WorkerPlace(node="a", local_rank=slot),),
            kill=True,
        )
        ordered = orders(version, chance.choice(list(Order)), round_, "b").orders
        events: list[Event] = [
            Message(slot, Hello()),
            Message(slot, Ready(port=5000)),
            Message(
                slot, Advance(round=round_, progress=Progress(step=version), seconds=0.1, ended=version > 9)
            ),
            Message(slot, Boundary(round=round_, port=5001)),
            Message(slot, Broken(round=round_, port=5002)),
            Message(slot, Behind(round=round_, reason="left behind")),
            ProcessEnd(slot, chance.choice([0, 1, 137])),
            MasterOrders(ordered),
            MasterOrders(msgspec.structs.replace(ordered, hang=hang)),
            formed(group.round + 1, "a", "b", slots=2),
            AskedToLeave("Left"),
            WarmReady(),
        ]
        group = observe(group, chance.choice(events), now)
        yield group
        for _ in range(chance.randrange(9)):
            step = decide(group, now)
            group = step.group if step else group
        now += chance.choice([0.1, 5.0, 60.0])


TABLES: dict[str, Situations] = {
    "elasticjob.api.troubles.cluster": rows(test_troubles, "ClusterFacts"),
    "elasticjob.api.troubles.job": rows(test_troubles, "JobFacts"),
    "elasticjob.controllers.dijob.decide": rows(test_dijob, "Seen"),
    "elasticjob.controllers.elasticjob.decide": rows(of_jobs, "Seen"),
    "elasticjob.controllers.jobresource.decide": rows(of_nodes, "Seen"),
    "elasticjob.controllers.jobresource.request": rows(test_request, "Seen"),
    "elasticjob.controllers.kueue.decide": rows(of_queues, "Seen"),
    "elasticjob.controllers.scaleplan.decide": rows(of_plans, "Seen"),
    "elasticjob.master.handlers.dispatch": jobs,
    "elasticjob.master.health.ends": lambda chance: (
        replace(ends.history(job), nodes=chance.randrange(3)) for job in jobs(chance)
    ),
    "elasticjob.master.health.verdict": jobs,
    "elasticjob.trainer.agent.decide": groups,
}


def rules(module: ModuleType) -> list[Callable[[Any, Any], Any]]:
    """Return the functions of all tables of a module that are asked with a time, or with `terms`."""
    found = dict[Callable[[Any, Any], Any], None]()
    for value in vars(module).values():
        each = tuple(value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ())
        functions = bool(each) and all(isinstance(rule, FunctionType) for rule in each)
        if functions and [*inspect.signature(each[0]).parameters][1:] in (["now"], ["terms"]):
            found |= dict.fromkeys(each)
    return list(found)


def test_each_table_is_asked() -> None:
    """Rows of sizing/table.py are no functions: tests/sizing/test_history_rules.py asks them."""
    files = (path for room in ROOMS for path in Path("elasticjob", room).rglob("*.py"))
    texts = {".".join(path.with_suffix("").parts): path.read_text() for path in files}
    names = [name for name, text in texts.items() if TABLE.search(text) and RULE.search(text)]
    assert {name for name in names if rules(import_module(name))} == TABLES.keys()


@pytest.mark.parametrize("table", TABLES)
@settings(max_examples=3, phases=[Phase.reuse, Phase.generate])  # a seed has nothing to shrink
@given(
    within=st.sampled_from([timedelta(0), timedelta(days=400)]),
    seed=st.integers(0, 10**6),
)
def test_a_rule_alone_has_an_answer_at_any_time(table: str, within: timedelta, seed: int) -> None:
    """Each situation is looked at at its own moment; where a rule applies, around the clock."""
    asked, chance = rules(import_module(table)), Random(seed)
    for seen in TABLES[table](chance):
        later = within * chance.random()
        for rule in asked:
            once = answer(rule, seen, at(table, later))
            assert once == answer(rule, seen, at(table, later))
            is_whole(once)
            for hours in range(2, 24, 2) if once and once is not seen else ():
                answer(rule, seen, at(table, later + timedelta(hours=hours)))


def answer(rule: Callable[[Any, Any], Any], seen: Any, now: Any) -> Any:
    said = rule(seen, now)
    return tuple(said) if isinstance(said, Iterable) else said


def at(table: str, later: timedelta) -> Any:
    """Return what a rule is asked with, so much later than the moment of which the situations tell."""
    match table.split(".")[1:-1]:
        case ["trainer", _]:
            return 100 + later.total_seconds()
        case ["controllers", "dijob"]:
            return Terms(Server(), "token" if later.seconds % 2 else "", graceful=bool(later.seconds % 3))
        case ["master", _]:
            return START + later
        case ["api", *_]:
            return test_troubles.NOW + later
        case _:
            return NOW + later


def is_whole(said: Any) -> None:
    """Check that an answer says why, and can be written."""
    match said:
        case None | Delete() | DeleteOwned() | Resize():
            return
        case tuple():
            for each in said:
                is_whole(each)
        case Plan():
            assert said.reason
            assert all(note.reason and note.sentence for note in said.notes)
            is_whole((said.again_in, said.actions))
        case queues.Step():
            assert said.note is None or (said.note.reason and said.note.sentence)
            is_whole((said.again_in, said.groups))
        case Create() | CreateOrApply() | Apply():
            assert said.manifest["metadata"]["name"]
            is_finite(said.manifest)
        case Patch():
            is_finite(said.body)
        case timedelta():
            assert said >= timedelta(0)
        case Trouble():
            assert said.sentence
        case Verdict():
            assert said.reason
            assert said.message
        case Step():
            assert isinstance(said.group, Group)
        case Job():
            assert invariants(said) == []
        case _:
            raise AssertionError(f"no rule returns {said!r}")


def is_finite(manifest: Any) -> None:
    """Check that a manifest can be sent: JSON has neither infinity nor NaN."""
    json.dumps(manifest, allow_nan=False)
