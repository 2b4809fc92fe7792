"""Converts one document, checks the result as admission would, and reports on each field. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.checks import elasticjob, jobresource, scaleplan
from elasticjob.api.v1alpha1.checks.advice import advice
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.cli.convert.references import follow, strays
from elasticjob.cli.convert.system import (
    EACH,
    NO_MARKS,
    Conversion,
    Marks,
    Note,
    Source,
    System,
    Unconvertible,
    Verdict,
)
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.problem import Problem


@dataclass(frozen=True)
class Outcome:
    """The result of one document: converted, refused, or of no known system."""

    source: Source
    system: str = ""
    """The name of the system that recognises it; "" if there is none."""
    marks: Marks = NO_MARKS
    """What that system's operator puts into pods."""
    converted: Conversion | None = None
    refusal: str = ""
    """The reason why it cannot be converted; "" if it can."""
    problems: tuple[Problem, ...] = ()
    """The errors with which admission would refuse the result: each names a field of it."""
    warnings: tuple[str, ...] = field(default=())

    @property
    def lossy(self) -> bool:
        """Whether the job may behave differently: a field was changed, or dropped with a loss."""
        return self.converted is not None and any(note.lossy for note in self.converted.notes)

    @property
    def is_refusal(self) -> bool:
        """Whether a system recognises the document, but no valid object can be made of it."""
        return bool(self.refusal or self.problems)


def outcome(source: Source, systems: Iterable[System]) -> Outcome:
    """Convert a document by the first system that knows it."""
    system = next((one for one in systems if one.recognises(source)), None)
    if system is None:
        return Outcome(source)
    try:
        found = follow(system.convert(source), source, system.marks)
    except Unconvertible as error:
        return Outcome(source, system.name, refusal=str(error))
    found = replace(found, notes=tuple(note_on_sizes(note, found.job) for note in found.notes))
    return Outcome(
        source, system.name, system.marks, found, problems=problems(found.job), warnings=warnings(found.job)
    )


def note_on_sizes(note: Note, job: Manifest) -> Note:
    """Return a note on sizes of a role as they came out: another field of the document may give them, too."""
    spec = job.get("spec")
    roles = spec.get("replicaSpecs") if isinstance(spec, dict) else None
    found = [_sizes(role) for role in roles.values()] if isinstance(roles, dict) else []
    if not note.sizes or not found or any(dict(note.sizes).items() <= sizes.items() for sizes in found):
        return note
    worker = _sizes(roles[WORKER]) if isinstance(roles, dict) and WORKER in roles else found[0]
    now = ", ".join(f"{name} is {worker[name]} now" for name, size in note.sizes if worker[name] != size)
    why = now if "absent" in now else f"{now}: another field says so"
    return replace(note, verdict=Verdict.CHANGED, why=why)


def _sizes(role: Any) -> dict[str, Any]:
    """Return the sizes of a role, bounds that it does not have as well."""
    given = role if isinstance(role, dict) else {}
    count = given.get("replicas", 1)
    text = str(given.get("template"))
    told = re.search(rf"{EACH}[', ]+(\d+)", text)
    each = int(told[1]) if told else 1 if "elasticjob" in text else "absent"
    bounds = {name: given.get(name, count) for name in ("minReplicas", "maxReplicas")}
    return {"replicas": count, EACH: each, **bounds}


def problems(manifest: Manifest) -> tuple[Problem, ...]:
    """Return why admission would refuse an object of ours."""
    try:
        match manifest.get("kind"):
            case "ScalePlan":
                plan = SCALEPLAN.convert(manifest)
                return tuple(problem for check in scaleplan.CHECKS for problem in check(plan))
            case "JobResource":
                return tuple(jobresource.problems(JOBRESOURCE.convert(manifest)))
            case _:
                return tuple(elasticjob.problems(ELASTICJOB.convert(manifest)))
    except ValidationError as error:
        return tuple(_problem(each) for each in error.errors())


def warnings(manifest: Manifest) -> tuple[str, ...]:
    """Return the warnings of admission."""
    if manifest.get("kind") != ELASTICJOB.name or problems(manifest):
        return ()
    return tuple(str(each) for each in advice(ELASTICJOB.convert(manifest)))


def _problem(error: object) -> Problem:
    found = error if isinstance(error, dict) else {}
    path = ".".join(str(step) for step in found.get("loc", ()))
    return Problem(path, f"{found.get('msg', 'does not fit')}: {found.get('input')!r:.60}")


def lines(outcomes: Sequence[Outcome], *, quiet: bool = False) -> Iterator[str]:
    """Yield a line for each field and for each error of a result; `quiet`: only for losses and errors."""
    for outcome in outcomes:
        about = _about(outcome.source)
        file = "stdin" if outcome.source.file == "-" else outcome.source.file
        start = f"{file}:{outcome.source.first}"
        if not outcome.system:
            yield f"{start} {about}: no system that is known here: {_step(outcome.source)}"
            for label, ours in _strays(outcome.source, outcomes).items():
                yield f"{start} {about}: {label} is on no pod of the ElasticJob: write {ours}"
        if outcome.refusal:
            yield f"{start} error: {outcome.refusal}"
        for note in outcome.converted.notes if outcome.converted else ():
            if note.lossy or not quiet:
                yield f"{file}:{note.line or outcome.source.first} {note}"
        for problem in outcome.problems:
            yield f"{start} error: the result would be refused: {problem}"
        for warning in outcome.warnings:
            yield f"{start} warning: {warning}"


def _about(source: Source) -> str:
    if not source.manifest:
        return "this text"
    return f"{source.manifest.get('kind') or 'this object'} {source.name}".rstrip()


def _step(source: Source) -> str:
    """Return what to do with a document that no system knows."""
    whole = all(isinstance(source.manifest.get(field), str) for field in ("apiVersion", "kind"))
    if whole:
        return "apply it as it is"
    return "write apiVersion and kind" if source.manifest else "it starts no training: keep it"


def _strays(source: Source, outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Return the labels of other operators that a Service, say, still selects by, and ours."""
    found = (strays(source.manifest, each.marks) for each in outcomes if each.converted)
    return {label: ours for each in found for label, ours in each.items()}
