"""Acto's law: after any edits the state is that of a fresh object with the last spec, for every field.

One story creates an object, lets all come to rest, edits a field, and lets all come to rest again; the other
creates the object as it was edited. What is refused is tried once more while the object is suspended. What
differs in the end is in edits.toml, with the page that says so, or it is wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from random import Random
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from elasticjob.api.diengine import names as di
from elasticjob.api.diengine import pods
from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_RELAUNCH, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.parts import names
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import POD
from lab.build import manifests
from lab.simulation.fields import ROWS, TEMPLATE, Edit, edits_of
from lab.simulation.history import History
from lab.simulation.play import Wrong, at_rest, crashes
from lab.simulation.world import World
from lab.virtual.cluster import TEAM, dijob, job, training
from lab.virtual.loop import run

DEEP: Final = 0.1
"""The share of the fields deep in pod templates that is edited."""
OF_ONE_STORY: Final = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "observedGeneration", "restarts", "token"}
    | {"lastTransitionTime", "lastUpdateTime", "startTime", "clusterIP", "nodeName", "lastScalePlan"}
    | {LABEL_RELAUNCH, names.ASKED_AT, names.TOKEN, names.FOLDED, names.CHANGES, names.RESTARTS, names.MOVES}
    | {names.REPEATS, names.WANTED, "relaunches"}
)
"""What two objects with the same spec do not share."""
MARKS: Final = re.compile(
    rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|10\.\d+\.\d+\.\d+|2026-01-01T[0-9:.]+Z"
)
STAYS: Final = (None, "Running", "Ready")
"""Types of conditions that tell something also where they are false."""
OUTCOMES: Final = ("refused", "equal", "expected", "different")
REFUSED, EQUAL, EXPECTED, DIFFERENT = OUTCOMES


@dataclass(frozen=True)
class Subject:
    """An object whose fields are edited."""

    kind: Kind[Any]
    made: Manifest
    beside: tuple[tuple[Kind[Any], Manifest], ...] = ()
    """What is there before it."""
    suspends: bool = False
    is_made_for: bool = False
    """Whether the operator makes it: a fresh one is edited as soon as it is there."""
    used: Callable[[World], None] = lambda _: None
    """What happens in both stories when all is at rest: something new is made of it."""
    variant: str = ""
    """How it differs from another subject of its kind; its templates are not edited."""

    @property
    def title(self) -> str:
        return f"{self.kind.name} {self.variant}".strip()

    @property
    def name(self) -> str:
        found: str = self.made["metadata"]["name"]
        return found

    def stored(self, world: World) -> Manifest:
        """Return it as it is stored. Raises Wrong."""
        if found := world.there(self.kind, self.name):
            return found
        raise Wrong(f"{self.kind.name} {self.name} is gone")

    async def create(self, world: World, made: Manifest) -> None:
        for kind, each in self.beside:
            await world.user.create(kind, each)
        if self.is_made_for:
            await world.until(lambda: world.there(self.kind, self.name) is not None)
        else:
            await world.user.create(self.kind, made)

    async def change(self, world: World, edit: Edit) -> str:
        """A user edits a field; return why that is refused, "" if it is not."""
        old = self.stored(world)
        patch = {"spec": merge_patch(old["spec"], edit.of(self.kind.resource, old)["spec"])}
        try:
            await world.user.merge_patch(self.kind, self.name, patch, TEAM)
        except KubeError as error:
            return str(error)
        return ""


@dataclass(frozen=True)
class Ending:
    """The objects at the end of a story, and the edits that were accepted."""

    objects: Manifest = field(default_factory=dict)
    accepted: tuple[Edit, ...] = ()
    refused: str = ""
    suspended: bool = False
    wrong: str = ""


@dataclass(frozen=True)
class Finding:
    """The outcome of edits, and the reason."""

    kind: str
    edits: tuple[Edit, ...]
    suspended: bool
    outcome: str
    why: str = ""

    def __str__(self) -> str:
        told, how = "; ".join(map(str, self.edits)), " while suspended" if self.suspended else ""
        return f"{self.kind} {told}{how}: {self.outcome}: {self.why}"


# stories


def edited(subject: Subject, edits: Sequence[Edit], seed: int) -> Ending:
    """Return how it ends when an object is edited, at rest before each edit."""

    async def story(world: World) -> Ending:
        await subject.create(world, subject.made)
        accepted, refused, suspended = list[Edit](), "", False
        for edit in edits:
            await at_rest(world)
            why = await subject.change(world, edit)
            runs = subject.suspends and not subject.stored(world)["spec"].get("suspend")
            if why and runs and not await subject.change(world, Edit(("suspend",), True)):
                await at_rest(world)
                why = await subject.change(world, edit)
                suspended |= not why
                await subject.change(world, Edit(("suspend",), False))
            accepted += [] if why else [edit]
            refused = why or refused
        found = await end(world, subject)
        return replace(found, accepted=tuple(accepted), refused=refused, suspended=suspended)

    return play(story, seed)


def fresh(subject: Subject, edits: Sequence[Edit], seed: int) -> Ending:
    """Return how it ends when an object is made as these edits would make it."""

    async def story(world: World) -> Ending:
        def after(made: Manifest) -> Manifest:
            return reduce(lambda found, edit: edit.of(subject.kind.resource, found), edits, made)

        await subject.create(world, after(subject.made))
        if subject.is_made_for:
            old = subject.stored(world)
            patch = {"spec": merge_patch(old["spec"], after(old)["spec"])}
            await world.user.merge_patch(subject.kind, subject.name, patch, TEAM)
        return await end(world, subject)

    return play(story, seed)


def play(story: Callable[[World], Coroutine[Any, Any, Ending]], seed: int) -> Ending:
    """Play a story in a world without faults."""

    async def played() -> Ending:
        world = World.of(History(seed), ())
        with crashes(world):
            world.start()
            try:
                return await story(world)
            except KubeError as error:
                return Ending(wrong=f"a fresh object is refused: {error}")
            except Wrong as error:
                return Ending(wrong=str(error))
            finally:
                world.close()

    return run(played())


async def end(world: World, subject: Subject) -> Ending:
    await at_rest(world)
    subject.used(world)
    await at_rest(world)
    return Ending(normal(world))


def merge_patch(old: Any, new: Any) -> Any:
    """Return the merge patch that makes the one of the other."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    changes = {name: merge_patch(old.get(name), new[name]) for name in new if new[name] != old.get(name)}
    return {**dict.fromkeys(old.keys() - new.keys()), **changes}


# comparing


def normal(world: World) -> Manifest:
    """Return all objects but machines, queues and plans, without what tells of one story alone."""
    left_out = {*world.standing, SCALEPLAN.resource}
    kept = {name: [*each.values()] for name, each in world.server.objects.items() if name not in left_out}
    text = MARKS.sub(b"?", msgspec.json.encode(kept))
    for name, place in sorted(_places(world.server.every(POD)), reverse=True):
        text = text.replace(name.encode(), place.encode())
    found = msgspec.json.decode(text)
    return {
        f"{resource.partition('.')[0]}/{each['metadata']['name']}": _kept(each)
        for resource, objects in found.items()
        for each in objects
    }


def _places(every: Iterable[Manifest]) -> Iterator[tuple[str, str]]:
    """Names of pods, and what they are called by their places alone."""
    for number, pod in enumerate(every):
        name, labels = pod["metadata"]["name"], pod["metadata"].get("labels", {})
        if LABEL_INDEX in labels:
            yield name, names.node(labels[LABEL_JOB], labels[LABEL_ROLE], int(labels[LABEL_INDEX]))
        else:
            yield name, f"{labels.get(di.LABEL_ROLE)}-{number}"


def _kept(found: Any) -> Any:
    """Lists of named things become objects; a condition that is false is as one that is not there."""
    if isinstance(found, list):
        named = {each.get("name", each.get("type")): each for each in found if isinstance(each, dict)}
        if None in named or len(named) < len(found):
            return [_kept(each) for each in found]
        past = [n for n, each in named.items() if each.get("status") == "False" and n not in STAYS]
        return {name: _kept(each) for name, each in named.items() if name not in past}
    if not isinstance(found, dict):
        return found
    kept = {name: _kept(each) for name, each in found.items() if name not in OF_ONE_STORY}
    return {name: each for name, each in kept.items() if each not in ({}, [], None)}


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield what differs: `path: one → other`."""
    if path.count("/") == 2 and None in (one, other):
        yield f"{path}: only of {'the edited object' if other is None else 'a fresh object'}"
    elif isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            yield from differences(one.get(name), other.get(name), f"{path}/{name}")
    elif one != other:
        yield f"{path}: {one!r:.200} → {other!r:.200}"


# the law


def judge(subject: Subject, edits: Sequence[Edit], seed: int) -> Finding:
    """Return what became of edits of an object, and why."""
    first = edited(subject, edits, seed)
    said = partial(Finding, subject.title, tuple(edits), first.suspended)
    if not first.accepted and not first.wrong:
        return said(REFUSED, first.refused)
    other = fresh(subject, first.accepted, seed)
    found = [each.wrong for each in (first, other) if each.wrong]
    found = found or [*differences(first.objects, other.objects)]
    whys = {each: why_right(subject, first.accepted, each) for each in found}
    if wrong := [each for each, why in whys.items() if not why]:
        return said(DIFFERENT, "; ".join(wrong))
    return said(EXPECTED, "; ".join(sorted({*whys.values()}))) if whys else said(EQUAL)


def why_right(subject: Subject, edits: Iterable[Edit], difference: str) -> str:
    """Return why a difference is right, "" if it is not."""
    fields = [".".join(edit.path) for edit in edits]
    for row in ROWS["expected"]:
        told = re.fullmatch(row["kind"], subject.kind.name) and re.match(row["difference"], difference)
        if told and any(re.fullmatch(row["field"], each) for each in fields):
            return str(row["why"])
    return ""


def drawn(every: Sequence[Edit], seed: int, number: int) -> tuple[Edit, ...]:
    """Return two to five edits: templates have most of the fields, and a third of the edits."""
    chance = Random(f"{seed} {number}")
    near = [each for each in every if TEMPLATE not in each.path] or every
    return tuple(chance.choice(chance.choice((near, near, every))) for _ in range(chance.randint(2, 5)))


def findings(subject: Subject, seed: int, sequences: int, share: float = 1.0) -> Iterator[Finding]:
    """Judge the edits of all fields, or a share of them, and drawn sequences."""
    every = [*edits_of(subject.kind.resource, subject.made, seed, DEEP)]
    every = [each for each in every if not subject.variant or TEMPLATE not in each.path]
    for edit in every:
        if Random(f"{seed} {edit}").random() < share:
            yield judge(subject, (edit,), seed)
    for number in range(sequences):
        yield judge(subject, drawn(every, seed, number), seed)


def edits(kinds: Iterable[str], seed: int, sequences: int, report: Console, share: float = 1.0) -> int:
    """Judge the edits of kinds, all unless named; print what differs, and a table; return 1 for that."""
    table = Table("kind", "fields", "edits", "accepted", *OUTCOMES, box=None, header_style="dim")
    chosen, wrong = {*kinds} or {each.kind.name for each in SUBJECTS}, 0
    for subject in (each for each in SUBJECTS if each.kind.name in chosen):
        found = [*findings(subject, seed, sequences, share)]
        for each in (each for each in found if each.outcome == DIFFERENT):
            report.print(str(each), markup=False, highlight=False, soft_wrap=True)
        counts = Counter(each.outcome for each in found)
        fields = {edit.path for each in found for edit in each.edits}
        totals = (len(fields), len(found), len(found) - counts[REFUSED])
        table.add_row(subject.title, *map(str, totals), *(str(counts[each]) for each in OUTCOMES))
        wrong += counts[DIFFERENT]
    report.print(table)
    return int(wrong > 0)


def _asks_for_a_collector(world: World) -> None:
    found = world.there(DIJOB, "d")
    if found and "collector" in found["spec"]:
        world.add_players("d", 1)


def _asks_for_an_aggregator(world: World) -> None:
    """Make the pod that di-server makes when a coordinator asks for one."""
    job, config = world.there(DIJOB, "d"), world.there(AGGREGATORCONFIG, "aggregator-config")
    if job and config:
        read, template = DIJOB.decode(msgspec.json.encode(job)), config["spec"]["aggregator"]["template"]
        world.server.put(POD, pods.pod(read, di.Role.AGGREGATOR, "d-aggregator", pods.Server(), template))


def _with_all_roles() -> Manifest:
    worker = JOB["spec"]["replicaSpecs"]["worker"]
    roles = {"ps": {**worker, "replicas": 1, "maxReplicas": 2}, "worker": worker}
    roles |= {role: {"template": worker["template"]} for role in ("chief", "evaluator", "dlrover-master")}
    changes = {"spec/distributionStrategy": "ParameterServerStrategy", "spec/replicaSpecs": roles}
    return manifests.changed(JOB, changes)


JOB: Final = manifests.changed(job("a", "", 2, 1, 4, master=True), {"spec/distributionStrategy": "Allreduce"})
OF_JOB: Final = {"metadata/name": "a", "spec/selector/name": "a"}
PLAN: Final = {"metadata/namespace": TEAM, "spec/ownerJob": "a", "spec/manualScaling": True}
SERVERS: Final = {"spec/pserver": {"min-instance": 1, "max-instance": 1}}
TRAINING, PLAYERS = training("t", 2, 4), dijob("d", "")
CONFIG: Final = manifests.changed(manifests.AGGREGATORCONFIG, {"metadata/namespace": TEAM})
SUBJECTS: Final = (
    Subject(ELASTICJOB, JOB, suspends=True),
    Subject(ELASTICJOB, _with_all_roles(), suspends=True, variant="of all roles"),
    Subject(ELASTICJOB, job("a", "a", 2, 1, 4), suspends=True, variant="in a queue"),
    Subject(
        JOBRESOURCE, manifests.changed(manifests.RESOURCE, OF_JOB), ((ELASTICJOB, JOB),), is_made_for=True
    ),
    Subject(SCALEPLAN, manifests.changed(manifests.PLAN, PLAN), ((ELASTICJOB, JOB),)),
    Subject(TRAININGJOB, TRAINING),
    Subject(TRAININGJOB, manifests.changed(TRAINING, SERVERS), variant="with pserver"),
    Subject(DIJOB, PLAYERS, used=_asks_for_a_collector),
    Subject(AGGREGATORCONFIG, CONFIG, ((DIJOB, PLAYERS),), used=_asks_for_an_aggregator),
)
