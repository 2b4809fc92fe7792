"""The tables of rules in docs/concepts.md, and the lives of a job and of a node, made by playing the rules.

These two are not drawn by hand: from a first state all events are tried, the code decides what follows, and
each pair of states that was seen is an arrow. So each arrow can happen, and the page follows the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from elasticjob.api.v1alpha1.elasticjob import FINISHED
from elasticjob.controllers.elasticjob import decide as jobs
from elasticjob.controllers.elasticjob.status import PHASES
from elasticjob.controllers.jobresource import decide as resources
from elasticjob.controllers.nodes.exits import Exit
from elasticjob.controllers.nodes.relaunch import Life, Node, Policy, Standing
from elasticjob.controllers.scaleplan import decide as plans
from elasticjob.sizing.exits import of_code
from hack.generate.pages import cell, filled, table

Event = Callable[[Any], Any]
"""An event as a function of a state: the next one, or None where it cannot happen."""

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
DEEP: Final = 8
"""Events in a row that are tried."""
RULES: Final[Mapping[str, tuple[Callable[..., Any], ...]]] = {
    "elasticjob": jobs.RULES,
    "jobresource": resources.RULES,
    "scaleplan": plans.RULES,
}


def concepts(page: Path) -> str:
    """Return the text of the page with its diagrams and tables as the rules are now."""
    tables = {f"rules: {name}": rules(ordered) for name, ordered in RULES.items()}
    return filled(page, {"diagram: elasticjob": elasticjob(), "diagram: node": node(), **tables})


def rules(ordered: Iterable[Callable[..., Any]]) -> str:
    """Return the table of a controller's rules: each name, and the first sentence of its docstring."""
    return table(("rule", ""), ((f"`{one.__name__}`", _first_sentence(one)) for one in ordered))


def _first_sentence(one: Callable[..., Any]) -> str:
    sentence = re.split(r"(?<=\.)\s", cell(inspect.getdoc(one) or ""))[0]
    return re.sub(r"([*_<])", r"\\\1", sentence)


@dataclass
class Diagram:
    """Arrows between named states: (from, to) → the events that lead there, as they were seen."""

    first: str
    last: frozenset[str]
    arrows: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def text(self, box: str = "") -> str:
        """Return the diagram in Mermaid's language.

        With the title of a `box`, the states that are not last ones are in it, and arrows that start from all
        of them start from the box.
        """
        inner = dict.fromkeys(name for arrow in self.arrows for name in arrow if name not in self.last)
        into = dict.fromkeys((to, event) for (_, to), events in self.arrows.items() for event in events)
        shared = [each for each in into if box and self._from_all(inner, *each)]
        lines: list[str] = []
        outer: list[str] = []
        for (before, after), events in self.arrows.items():
            if own := [event for event in events if (after, event) not in shared]:
                line = f"{_id(before)} --> {_id(after)}: {'<br/>or '.join(own)}"
                (outer if box and after in self.last else lines).append(line)
        outer += [f"Box --> {_id(to)}: {event}" for to, event in shared]
        if box:
            lines = [f'state "{box}" as Box {{', "    direction LR", *(f"    {line}" for line in lines), "}"]
        names = [f'state "{name}" as {_id(name)}' for name in (*inner, *sorted(self.last)) if " " in name]
        body = ["direction LR", *names, f"[*] --> {_id(self.first)}", *lines, *outer]
        return "```mermaid\nstateDiagram-v2\n" + "".join(f"    {line}\n" for line in body) + "```\n"

    def _from_all(self, inner: Iterable[str], to: str, event: str) -> bool:
        return all(event in self.arrows.get((name, to), ()) for name in inner if name != to)


def _id(name: str) -> str:
    return "".join(word.capitalize() for word in name.split()) if " " in name else name


def explore(
    first: Any,
    events: Mapping[str, Event],
    name: Callable[[Any], str],
    last: Iterable[str],
    key: Callable[[Any], Hashable],
) -> Diagram:
    """Play all events, DEEP in a row at most, and return what leads from where to where."""
    diagram = Diagram(name(first), frozenset(last))
    waiting, known = [(first, 0)], {key(first)}
    while waiting:
        state, deep = waiting.pop(0)
        if deep == DEEP or name(state) in diagram.last:
            continue
        for event, happen in events.items():
            after = happen(state)
            if after is None:
                continue
            if name(after) != name(state):
                seen = diagram.arrows.setdefault((name(state), name(after)), [])
                seen += [event] if event not in seen else []
            if key(after) not in known:
                known.add(key(after))
                waiting.append((after, deep + 1))
    return diagram


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

    def stands(state: tuple[Life, ...]) -> Standing:
        return Node("worker", 0, state).standing(policy, NOW)

    def when(standing: Standing, change: Callable[[Life], Life]) -> Event:
        return lambda state: (*state[:-1], change(state[-1])) if stands(state) is standing else None

    def exits(code: int, at: datetime = NOW) -> Callable[[Life], Life]:
        end = Exit(of_code(code), code, "", "512Mi", at, at - timedelta(seconds=5))
        return lambda one: replace(one, running=False, ready=False, ended=end)

    def made(state: tuple[Life, ...]) -> tuple[Life, ...] | None:
        if stands(state) is not Standing.DUE:
            return None
        before = Node("worker", 0, state)
        pod, number = f"worker-0-{before.next_relaunch}", before.next_relaunch
        life = Life(pod, pod, "worker", 0, number, before.restarts, running=True, ready=True, machine="m1")
        return (*state[-1:], life)

    def key(state: tuple[Life, ...]) -> Hashable:
        return stands(state), tuple((one.relaunch, one.restarts, one.terminating) for one in state[-1:])

    events: dict[str, Event] = {
        "the operator creates it": made,
        "exit code 0": when(Standing.RUNS, exits(0)),
        "it fails": when(Standing.RUNS, exits(1)),
        "it is evicted, drained or deleted": when(Standing.RUNS, lambda one: replace(one, terminating=True)),
        "its machine is gone": when(Standing.RUNS, lambda one: replace(one, lost=True)),
        "the pod is gone": lambda state: state[:-1] if stands(state) is Standing.LEAVES else None,
        "the back-off is over": when(Standing.PAUSES, exits(1, NOW - timedelta(hours=1))),
    }
    ends = {STANDINGS[Standing.DONE], STANDINGS[Standing.SPENT]}
    return explore((), events, lambda state: STANDINGS[stands(state)], ends, key).text()
