"""The diagrams and tables of rules in docs/concepts.md, made by playing the rules of the code.

A diagram is not drawn by hand: from a first state all events are tried, the code decides what follows, and
each pair of states that was seen is an arrow. So each arrow can happen, and the page follows the code.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from elasticjob.api.v1alpha1.elasticjob import FINISHED
from elasticjob.api.v1alpha1.scaleplan import PlanPhase
from elasticjob.controllers.elasticjob import decide as jobs
from elasticjob.controllers.elasticjob.status import PHASES
from elasticjob.controllers.jobresource import decide as resources
from elasticjob.controllers.nodes.relaunch import Life, Node, Policy, Standing
from elasticjob.controllers.passes.plan import Apply
from elasticjob.controllers.scaleplan import decide as plans
from elasticjob.master.shards.ledger import everyone
from hack.crd_docs import plain, table
from lab.build.jobs import NOW, ended, job, life, over, plan, resource, role
from lab.virtual.master import Played, finish, join, leave, watch
from tests.master.shards.test_ledger import Game, opened, who

Event = Callable[[Any], Any]
"""What may happen to a state: the next one, or None where it cannot happen now."""

MARK: Final = re.compile(r"<!-- (diagram|rules): (\w+) -->\n.*?<!-- end -->", re.DOTALL)
DEEP: Final = 8
"""Events in a row that are tried."""


def concepts(page: Path) -> str:
    """Return the text of the page with its diagrams and tables as the rules are now."""

    def made(found: re.Match[str]) -> str:
        text = DIAGRAMS[found[2]]() if found[1] == "diagram" else rules(RULES[found[2]])
        return f"<!-- {found[1]}: {found[2]} -->\n{text}<!-- end -->"

    return MARK.sub(made, page.read_text())


def rules(found: Iterable[Callable[..., Any]]) -> str:
    """Return the table of a controller's rules: each name, and the first sentence of its docstring."""
    return table(("rule", ""), ((f"`{one.__name__}`", _first_sentence(one)) for one in found))


def _first_sentence(one: Callable[..., Any]) -> str:
    return plain(re.split(r"(?<=\.)\s", " ".join((inspect.getdoc(one) or "").split()))[0])


RULES: Final[Mapping[str, tuple[Callable[..., Any], ...]]] = {
    "elasticjob": jobs.RULES,
    "jobresource": resources.RULES,
    "scaleplan": plans.RULES,
}


@dataclass
class Diagram:
    """Arrows between named states: (from, to) → the events that lead there, as they were seen."""

    first: str
    last: frozenset[str]
    arrows: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def add(self, before: str, after: str, event: str) -> None:
        """Add an arrow, unless it is there."""
        events = self.arrows.setdefault((before, after), [])
        if event not in events:
            events.append(event)

    def text(self, box: str = "") -> str:
        """Return the diagram in Mermaid's language.

        With the title of a `box`, the states that are not last ones are in it, and arrows that start from all
        of them start from the box.
        """
        inner = dict.fromkeys(name for arrow in self.arrows for name in arrow if name not in self.last)
        shared = {each for each in self._into() if box and self._from_all(inner, *each)}
        own = {
            (a, b): f"{_id(a)} --> {_id(b)}: {'<br/>or '.join(left)}"
            for (a, b), events in self.arrows.items()
            if (left := [event for event in events if (b, event) not in shared])
        }
        lines = [line for (_, to), line in own.items() if to not in self.last or not box]
        outer = [line for line in own.values() if line not in lines]
        outer += [
            f"Box --> {_id(to)}: {event}"
            for to, event in dict.fromkeys(self._into())
            if (to, event) in shared
        ]
        names = [
            f'state "{name}" as {_id(name)}' for name in (*inner, *sorted(self.last)) if _id(name) != name
        ]
        if box:
            lines = [
                f'state "{box}" as Box {{',
                "    direction LR",
                *(f"    {line}" for line in lines),
                "}",
                *outer,
            ]
        body = ["direction LR", *names, f"[*] --> {_id(self.first)}", *lines]
        return "```mermaid\nstateDiagram-v2\n" + "".join(f"    {line}\n" for line in body) + "```\n"

    def _into(self) -> list[tuple[str, str]]:
        return [(to, event) for (_, to), events in self.arrows.items() for event in events]

    def _from_all(self, inner: Iterable[str], to: str, event: str) -> bool:
        return all(event in self.arrows.get((name, to), ()) for name in inner if name != to)


def _id(name: str) -> str:
    return "".join(word.capitalize() for word in name.split()) if " " in name else name


def explore(
    first: Any,
    events: Mapping[str, Event],
    name: Callable[[Any], str],
    last: Iterable[str],
    seen_as: Callable[[Any], Hashable] | None = None,
) -> Diagram:
    """Play all events, DEEP in a row at most, and return what leads from where to where."""
    found = Diagram(name(first), frozenset(last))
    waiting, known = [(first, 0)], {(seen_as or name)(first)}
    while waiting:
        state, deep = waiting.pop(0)
        if deep == DEEP or name(state) in found.last:
            continue
        for event, happen in events.items():
            after = happen(state)
            if after is None:
                continue
            if name(after) != name(state):
                found.add(name(state), name(after), event)
            if (key := (seen_as or name)(after)) not in known:
                known.add(key)
                waiting.append((after, deep + 1))
    return found


@dataclass(frozen=True)
class Facts:
    """What the phase of a job depends on: the questions of PHASES."""

    outcome: bool | None = None
    suspend: bool = False
    made: bool = False
    active: int = 0
    restarting: bool = False
    scaling: bool = False


def elasticjob() -> str:
    """Phases of an ElasticJob, by the table of its status."""

    def phase(facts: Facts) -> str:
        picture: Any = SimpleNamespace(
            outcome=None if facts.outcome is None else SimpleNamespace(succeeded=facts.outcome),
            seen=SimpleNamespace(
                job=SimpleNamespace(spec=SimpleNamespace(suspend=facts.suspend)),
                resource=facts.made or None,
            ),
            restarting=facts.restarting,
            active=facts.active,
            scaling=facts.scaling,
        )
        return str(next(found for applies, found in PHASES if applies(picture)))

    def when(possible: Callable[[Facts], bool], **changes: Any) -> Event:
        return lambda facts: replace(facts, **changes) if possible(facts) else None

    events = {
        "objects made": when(lambda f: not f.made, made=True),
        "a node runs": when(lambda f: f.made and not f.suspend and not f.active, active=1),
        "plan begins": when(lambda f: f.active > 0 and not f.scaling, scaling=True),
        "plan done": when(lambda f: f.scaling, scaling=False),
        "node lost": when(lambda f: f.active > 0 and not f.restarting, restarting=True),
        "replaced": when(lambda f: f.restarting, restarting=False),
        "suspended": when(lambda f: not f.suspend, suspend=True, active=0, restarting=False, scaling=False),
        "resumed": when(lambda f: f.suspend, suspend=False),
        "succeeds": when(lambda f: f.active > 0, outcome=True),
        "fails": when(lambda _: True, outcome=False),
    }
    return explore(Facts(), events, phase, map(str, FINISHED), lambda facts: facts).text("not finished")


@dataclass(frozen=True)
class Planned:
    """A ScalePlan, and what is around it."""

    phase: str = ""
    job: str = "runs"
    newer: bool = False
    ready: bool = False
    late: bool = False


def scaleplan() -> str:
    """Phases of a ScalePlan, as the rules of its controller write them."""

    def passed(state: Planned) -> Planned:
        """The state after one pass of the controller."""
        about: dict[str, Any] | None = {
            "runs": {},
            "is over": {"status": over()},
            "has no nodes yet": {},
        }.get(state.job)
        found = None if about is None else job({"worker": role(2, minReplicas=1, maxReplicas=4)}, **about)
        ready = {
            "type": "Ready",
            "status": "True" if state.ready else "False",
            "message": "a node is pending",
        }
        started = NOW - timedelta(hours=1 if state.late else 0)
        ones = [
            plan(
                "one", {"worker": 3}, phase=state.phase, started=started if state.phase == "Scaling" else None
            )
        ]
        if state.newer:
            ones.append(plan("two", {"worker": 4}, age=5))
        seen = plans.Seen(
            found,
            resource(
                {"worker": 3 if state.phase == "Scaling" else 2},
                status={"observedGeneration": 1, "conditions": [ready]},
            )
            if found and state.job != "has no nodes yet"
            else None,
            tuple(ones),
        )
        for action in (each for group in plans.decide(seen, NOW).groups for each in group):
            match action:
                case Apply(_, manifest, "status") if manifest["metadata"]["name"] == "one":
                    return replace(state, phase=manifest["status"]["phase"])
        return state

    def after(possible: Callable[[Planned], bool] = lambda _: True, **changes: Any) -> Event:
        return lambda state: passed(replace(state, **changes)) if possible(state) else None

    def going(state: Planned) -> bool:
        return state.phase == "Scaling"

    events = {
        "it is the next one": after(lambda state: not state.phase or state.phase == "Pending", job="runs"),
        "the job has no nodes yet": after(lambda state: not state.phase, job="has no nodes yet"),
        "all its nodes are ready": after(going, ready=True),
        "its nodes are not ready in time": after(going, late=True),
        "a newer plan changes the same": after(lambda state: bool(state.phase), newer=True),
        "the job ends": after(lambda state: bool(state.phase), job="is over"),
        "the job is deleted": after(lambda state: bool(state.phase), job="is gone"),
    }
    ends = {str(phase) for phase in (PlanPhase.SUCCEEDED, PlanPhase.FAILED, PlanPhase.SUPERSEDED)}
    return explore(Planned(), events, lambda state: state.phase or "new", ends, lambda state: state).text()


STANDINGS: Final = {
    Standing.RUNS: "has a pod",
    Standing.LEAVES: "pod is leaving",
    Standing.DONE: "done",
    Standing.SPENT: "failed for good",
    Standing.PAUSES: "backs off",
    Standing.DUE: "due",
}


def node() -> str:
    """The life of a node, as the operator's rules for relaunches decide it."""
    policy = Policy(budget=2)

    def last(state: tuple[Life, ...], end: Callable[[Life], Life]) -> tuple[Life, ...] | None:
        return (*state[:-1], end(state[-1])) if stands(state) is Standing.RUNS else None

    def stands(state: tuple[Life, ...]) -> Standing:
        return Node("worker", 0, state).standing(policy, NOW)

    def exits(code: int) -> Event:
        return lambda state: last(
            state,
            lambda one: ended(0, one.relaunch, code, restarts_before=one.restarts_before, at=NOW),
        )

    def made(state: tuple[Life, ...]) -> tuple[Life, ...] | None:
        if stands(state) is not Standing.DUE:
            return None
        found = Node("worker", 0, state)
        return (*state[-1:], life(0, found.next_relaunch, restarts_before=found.restarts))

    def passes(state: tuple[Life, ...]) -> tuple[Life, ...] | None:
        if stands(state) is not Standing.PAUSES:
            return None
        one = state[-1]
        return (ended(0, one.relaunch, 1, restarts_before=one.restarts_before, at=NOW - timedelta(hours=1)),)

    def seen_as(state: tuple[Life, ...]) -> Hashable:
        return stands(state), [(one.relaunch, one.restarts, one.terminating) for one in state[-1:]].__repr__()

    events: dict[str, Event] = {
        "the operator creates it": made,
        "exit code 0": exits(0),
        "it fails": exits(1),
        "it is evicted, drained or deleted": lambda state: last(
            state, lambda one: replace(one, terminating=True)
        ),
        "its machine is gone": lambda state: last(state, lambda one: replace(one, lost=True)),
        "the pod is gone": lambda state: state[:-1] if stands(state) is Standing.LEAVES else None,
        "the back-off is over": passes,
    }
    ends = {STANDINGS[Standing.DONE], STANDINGS[Standing.SPENT]}
    return explore((), events, lambda state: STANDINGS[stands(state)], ends, seen_as).text()


def rounds() -> str:
    """A round of the rendezvous, as the master's rules decide it."""

    def play(act: Callable[[Played], object], possible: Callable[[Played], bool]) -> Event:
        def happen(game: Played) -> Played | None:
            if not possible(game):
                return None
            played = copy.copy(game)
            act(played)
            return played

        return happen

    def state(game: Played) -> str:
        if game.job.verdict:
            return "job is over"
        if game.job.running:
            return "trains"
        if game.job.ending and not game.job.ending.lost:
            return "ends after this step"
        return "gathers nodes"

    def one_of_two(game: Played) -> None:
        game.ask(watch("node-0"), watch("node-1"), join("node-0", wait=60.0))

    def number(game: Played) -> int:
        return game.job.world.round if game.job.world else 0

    def waits(game: Played) -> bool:
        return bool(game.job.nodes) and game.job.world is None

    def trains(game: Played) -> bool:
        return state(game) == "trains"

    def again(game: Played) -> None:
        alive = [name for name, one in game.job.nodes.items() if one.alive and not one.finished]
        game.ask(*(join(name, after=number(game)) for name in alive))

    def end(game: Played) -> None:
        game.ask(*(finish(name, number(game)) for name in game.names()))

    events = {
        "one of two nodes has joined": play(one_of_two, lambda game: not game.job.nodes),
        "all nodes that live have joined": play(
            lambda game: game.ask(join("node-1")), lambda game: bool(game.job.nodes) and not game.job.world
        ),
        "the last call is over": play(
            lambda game: game.wait(31, "node-0", "node-1"),
            lambda game: bool(game.job.nodes) and not game.job.world,
        ),
        "a member is lost": play(
            lambda game: game.cut(watch(game.names()[-1])),
            lambda game: trains(game) and len(game.names()) > 1,
        ),
        "a new node is ready": play(
            lambda game: game.ask(watch("node-2"), join("node-2")),
            lambda game: trains(game) and "node-2" not in game.job.nodes,
        ),
        "a member leaves as planned": play(
            lambda game: game.ask(
                leave("node-1", game.job.world.round if game.job.world else 0, planned=True)
            ),
            lambda game: trains(game) and "node-1" in game.names(),
        ),
        "the members join again": play(again, lambda game: bool(game.job.world) and not trains(game)),
        "all members have finished": play(end, trains),
    }
    return explore(
        Played(maximum=3), events, state, {"job is over"}, lambda game: (state(game), tuple(game.job.nodes))
    ).text()


def shards() -> str:
    """The life of a shard, as the master's ledger keeps it."""

    def state(game: Game) -> str:
        ledger = game.ledger
        if ledger.next == 0:
            return "not dealt"
        if any(held.number == 0 for reader in everyone(ledger) for held in reader.leases):
            return "on lease"
        if any(first <= 0 < stop for first, stop in ledger.back):
            return "returned"
        if 0 in ledger.late:
            return "has failed"
        return "poisoned" if any(each.number == 0 for each in ledger.poisoned) else "done"

    def play(act: Callable[[Game, int], object], possible: Callable[[str], bool]) -> Event:
        def happen(game: Game) -> Game | None:
            if not possible(state(game)):
                return None
            other = copy.copy(game)
            other.played = copy.copy(game.played)
            readers = [reader for reader in everyone(other.ledger) if reader.leases]
            index = readers[0].consumer.node.rpartition("-")[2] if readers else "1"
            act(other, int(index))
            return other

        return happen

    def take(game: Game, _: int) -> None:
        here = [reader.consumer for reader in everyone(game.ledger)]
        game.take(here[-1])

    def held(game: Game, index: int) -> Any:
        return game.take(who(index)).shards[0]

    def lose(game: Game, index: int) -> None:
        game.ask(watch(f"node-{index}"))
        game.played.cut(watch(f"node-{index}"))
        game.save()

    def late(game: Game, _: int) -> None:
        game.played.now += timedelta(hours=1)
        game.played.tick()
        game.save()

    def leased(name: str) -> bool:
        return name == "on lease"

    events = {
        "a worker takes it": play(take, lambda name: name in ("not dealt", "returned", "has failed")),
        "its result is reported": play(lambda game, index: game.say(who(index), held(game, index)), leased),
        "it fails": play(lambda game, index: game.say(who(index), held(game, index), error="no"), leased),
        "its worker is lost": play(lose, leased),
        "no progress until its deadline": play(late, leased),
    }
    first = opened(0, 1, 2, size=10, shard=10, retries=1)
    return explore(
        first,
        events,
        state,
        {"done", "poisoned"},
        lambda game: (state(game), tuple(game.ledger.failed.items())),
    ).text()


DIAGRAMS: Final[Mapping[str, Callable[[], str]]] = {
    one.__name__: one for one in (elasticjob, scaleplan, node, rounds, shards)
}
