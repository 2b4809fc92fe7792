"""Two judges of virtual time: the same histories on devcluster, and on a control plane with kwok's nodes.

A history is played in virtual time, and then by a judge; what both have in the end is the same but for uids,
versions, times and generated names. A difference that a judge does not repeat is unsteady: time decides it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from elasticjob.api.v1alpha1.common import LABEL_RELAUNCH
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import POD, SECRET
from lab.clusters.plane.controlplane import ControlPlane
from lab.simulation.cluster import KINDS, Cluster, on_devcluster, on_plane, set_up
from lab.simulation.history import History, Line, Value
from lab.simulation.normal import TIMES, UIDS
from lab.simulation.play import draw, play
from lab.virtual.cluster import MACHINES, TEAM

ACTS: Final = (
    *("submit", "scale", "edit", "suspend", "delete", "again", "plan", "autoscale", "train"),
    *("take-away", "squat", "end-pod", "delete-pod", "lose", "cordon"),
)
UNKNOWN: Final = ("trains", "queue", "mode", "cpu")
"""Fields of lines that name what a judge does not have: masters that train, Kueue, Brain, resizes."""
MOST: Final = 7
SHORTER: Final = 0.5
START: Final = 4.0
"""Seconds between the starts of clusters, which take all of a processor for a while."""
APART: Final = 3.0
"""Seconds between two lines: more than a pod needs to start, so that also on a busy machine it runs then."""
ENDS: Final = 8
LATER: Final = 0.037
"""Seconds between the lines of a history that are added, for as many ends of it."""
MORE: Final = 2
"""How often a history is played again that differs."""
DROPPED: Final = frozenset(
    {
        "uid",
        "resourceVersion",
        "managedFields",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "observedGeneration",
    }
)
TOKEN: Final = "elasticjob.dlrover/token"
WORDS: Final = (
    (re.compile(rf"uid-\d+|{UIDS.pattern}"), "UID"),
    (TIMES, "TIME"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+\b"), "ADDRESS"),
    (re.compile(r'(activeDeadlineSeconds \(\d+ s\)): [^"]*'), r"\1"),
    (re.compile(f'"({"|".join(MACHINES)})"'), '"MACHINE"'),
    (re.compile(r"\b(\w+-(master|worker)-\d+)-\d+\b"), r"\1"),
)
"""What differs from one run to another: the last is how often a pod was made anew, which deletions forget."""
GIVEN: Final = ("kube-root-ca.crt", "default")
"""What each namespace has."""
PASSING: Final = ("Restarting", "Scaling")
"""Conditions that are there once they were true: as they are in no pass that saw it."""
INJECTED: Final = "kube-api-access-"
"""The volume of the service account, which the server adds."""
SIZE: Final = "NODE_NUM"
"""The size of a job when a pod was made, which an agent asks its master for later."""
RESTARTS: Final = frozenset(
    {"restarts", "relaunches", *(f"elasticjob.dlrover/{each}" for each in ("restarts", "moves", "repeats"))}
)
"""What follows from the exit codes of pods that are deleted."""
Objects = Mapping[str, Manifest]
"""By kind and name."""
Stage = Callable[[History], AbstractAsyncContextManager[Cluster]]
Work = Callable[[Stage], Coroutine[Any, Any, "list[Verdict]"]]
"""Judges by playing on a stage."""


@dataclass(frozen=True)
class Verdict:
    """The verdict of a judge on a history: `difference` is a diff, "" where there is none."""

    history: History
    difference: str = ""
    unsteady: bool = False
    seconds: float = 0.0
    diary: tuple[str, ...] = ()
    objects: Objects = field(default_factory=dict)
    """What the judge has."""
    dropped: frozenset[str] = frozenset()

    @property
    def word(self) -> str:
        return "unsteady" if self.unsteady else "different" if self.difference else "equal"


# drawing


def drawn(seed: int, acts: Sequence[str] = ACTS) -> History:
    """Return the history of a seed with what judges know: acts of users and machines, kills, cuts."""
    chance, made = Random(f"judge {seed}"), draw(seed)
    lines = [_known(line) for line in made.lines if line.name in acts]
    at, spaced = 0.0, list[Line]()
    for line in lines[:MOST]:
        at = max(line.at * SHORTER, at + APART) if spaced else 0.0
        spaced.append(replace(line, at=round(at, 2)))
    for _ in range(chance.choice((0, 1, 1, 2))):
        spaced.append(Line(round(chance.uniform(0, at + 2), 2), *_fault(chance)))
    return History(seed, tuple(sorted(spaced, key=lambda line: line.at)))


def _known(line: Line) -> Line:
    return replace(line, given={name: value for name, value in line.given.items() if name not in UNKNOWN})


def _fault(chance: Random) -> tuple[str, dict[str, Value]]:
    write, back = chance.randint(1, 40), chance.choice((0.05, 1, 3))
    faults: dict[str, dict[str, Value]] = {
        "restart": {"back": back},
        "crash": {"write": write, "when": chance.choice(("before", "after")), "back": back},
        "cut": {"write": write, "done": chance.choice(("yes", "no"))},
    }
    name = chance.choice(sorted(faults))
    return name, faults[name]


# comparing


def seen(every: Callable[[Kind[Any]], list[Manifest]], namespace: str = TEAM) -> Objects:
    """Return the objects of a namespace without what differs from one cluster to another."""
    found = dict[str, Manifest]()
    for kind in KINDS:
        for each in sorted(every(kind), key=lambda each: str(each["metadata"]["name"])):
            made = _normal(kind, each, namespace)
            name = f"{kind.name} {made['metadata']['name']}"
            if made["metadata"]["name"] not in GIVEN:
                found[name if name not in found else f"{name} again"] = made
    return found


def _normal(kind: Kind[Any], found: Manifest, namespace: str) -> Manifest:
    text = json.dumps({name: value for name, value in found.items() if name not in ("apiVersion", "kind")})
    text = text.replace(namespace, TEAM)
    for pattern, word in WORDS:
        text = pattern.sub(word, text)
    made: Manifest = _without(json.loads(text))
    made["metadata"].get("labels", {}).pop(LABEL_RELAUNCH, None)
    if kind.resource == POD.resource:
        states = found.get("status", {}).get("containerStatuses") or ()
        codes = [each.get("state", {}).get("terminated", {}).get("exitCode") for each in states]
        made["status"] = {"phase": found["status"]["phase"], "codes": codes}
        made["spec"].pop("nodeName", None)
    made["metadata"].get("annotations", {}).pop(TOKEN, None)
    if kind.resource == SECRET.resource:
        made["data"] = sorted(made.get("data", ()))
    return made


def _without(found: Any, dropped: frozenset[str] = DROPPED) -> Any:
    if isinstance(found, dict):
        return {name: _without(value, dropped) for name, value in found.items() if name not in dropped}
    if isinstance(found, list):
        kept = (each for each in found if not (isinstance(each, dict) and _says_nothing(each)))
        return [_without(each, dropped) for each in kept]
    return found


def _says_nothing(found: Manifest) -> bool:
    passed = found.get("type") in PASSING and found.get("status") == "False"
    return passed or str(found.get("name", "")).startswith((INJECTED, SIZE))


def _like(model: Any, found: Any) -> Any:
    """The fields of a built-in object, without those that a server adds by default."""
    if isinstance(model, dict) and isinstance(found, dict):
        return {name: _like(model[name], found[name]) for name in model if name in found}
    if isinstance(model, list) and isinstance(found, list) and len(model) == len(found):
        return [_like(*pair) for pair in zip(model, found, strict=True)]
    return found


def difference(virtual: Objects, real: Objects, dropped: frozenset[str] = frozenset()) -> str:
    """Return a diff from what virtual time has to what a judge has, "" where they are the same."""
    virtual, real = _without(virtual, dropped), _without(real, dropped)
    ours = tuple(f"{kind.name} " for kind in KINDS if kind.group == ELASTICJOB.group)
    shown = {
        name: each if name.startswith(ours) else _like(virtual.get(name), each) for name, each in real.items()
    }
    if virtual == shown:
        return ""
    before, after = (yaml.safe_dump(dict(side), width=200).splitlines() for side in (virtual, shown))
    return "\n".join(unified_diff(before, after, "virtual", "judge", lineterm="", n=4))


# judging


async def _tried(virtual: Objects, history: History, stage: Stage) -> Verdict:
    began = time.monotonic()
    async with stage(history) as cluster:
        dropped = frozenset[str]() if cluster.plays else RESTARTS  # kwok's pods just go

        def found() -> Objects:
            return seen(cluster.every, cluster.namespace)

        await cluster.play(lambda: not difference(virtual, found(), dropped))
    objects = found()
    wrong = "\n".join((*cluster.broken, difference(virtual, objects, dropped))).strip()
    return Verdict(history, wrong, False, time.monotonic() - began, tuple(cluster.diary), objects, dropped)


async def judged(virtual: Objects, history: History, stage: Stage) -> Verdict:
    """Play a history on a cluster, and again where it differs."""
    first = await _tried(virtual, history, stage)
    for _ in range(MORE if first.difference else 0):
        again = await _tried(virtual, history, stage)
        if not again.difference:
            return replace(first, unsteady=True)
    return first


def judge(
    where: str, histories: int, seed: int, at_once: int = 8, report: Callable[[str], None] = print
) -> bool:
    """Have a judge play so many histories, one for each seed; return whether all ends are the same."""
    logging.disable(logging.CRITICAL)
    row, began = JUDGES[where], time.monotonic()
    ends = [expected(drawn(number, row.acts)) for number in range(seed, seed + histories)]
    report(f"{histories} histories in virtual time: {time.monotonic() - began:.0f} s")
    verdicts = [_weighed(each) for each in row.judge(partial(_judge, ends, at_once, report))]
    counts = Counter(each.word for each in verdicts)
    words = ", ".join(f"{counts[word]} {word}" for word in ("equal", "different", "unsteady"))
    report(f"{where}: {len(verdicts)} judged, {words}, {time.monotonic() - began:.0f} s")
    return not counts["different"]


def _weighed(verdict: Verdict) -> Verdict:
    """A difference is unsteady where virtual time has that end, too, if all happens a little later."""
    ends = (
        (expected(_later(verdict.history, LATER * n))[1] for n in range(1, ENDS))
        if verdict.difference
        else ()
    )
    same = any(not difference(each, verdict.objects, verdict.dropped) for each in ends)
    return replace(verdict, unsteady=verdict.unsteady or same)


def _later(history: History, seconds: float) -> History:
    lines = (replace(line, at=line.at + seconds * n) for n, line in enumerate(history.lines))
    return replace(history, lines=tuple(lines))


def expected(history: History) -> tuple[History, Objects]:
    """The objects at the end of a history in virtual time."""
    objects = play(history, (), ends=False).objects or {}
    return history, seen(lambda kind: objects.get(kind.resource, []))


async def _judge(
    ends: Sequence[tuple[History, Objects]], at_once: int, report: Callable[[str], None], stage: Stage
) -> list[Verdict]:
    """Judge so many histories at once."""
    left, verdicts = iter(ends), list[Verdict]()

    async def lane(number: int) -> None:
        await asyncio.sleep(number * START)
        for history, virtual in left:
            verdicts.append(verdict := await judged(virtual, history, stage))
            report(f"{history.seed}: {verdict.word}, {verdict.seconds:.0f} s")
            if verdict.word == "different":
                report("\n".join((str(history), verdict.difference, *verdict.diary, "")))

    async with asyncio.TaskGroup() as group:
        for number in range(at_once):
            group.create_task(lane(number))
    return verdicts


def _by_devcluster(work: Work) -> list[Verdict]:
    return asyncio.run(work(on_devcluster))


def _by_plane(work: Work) -> list[Verdict]:
    async def judged(config: Config) -> list[Verdict]:
        async with set_up(config):
            return await work(partial(on_plane, config))

    with TemporaryDirectory() as folder, ControlPlane(Path(folder), scheduler=True, kwok=True) as plane:
        return asyncio.run(judged(plane.config()))


@dataclass(frozen=True)
class Judge:
    """One row: how it judges, and which acts it knows."""

    judge: Callable[[Work], list[Verdict]]
    acts: Sequence[str] = ACTS


OF_ALL: Final = ("lose", "cordon")
"""What befalls machines, which all histories of a real control plane share."""
JUDGES: Final[Mapping[str, Judge]] = {
    "devcluster": Judge(_by_devcluster),
    "real": Judge(_by_plane, tuple(name for name in ACTS if name not in OF_ALL)),
}
