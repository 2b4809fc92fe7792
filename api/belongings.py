"""The account, tokens and snapshot that were made for one job belong to it alone. Templates of other jobs may
not name them, and not carry the label by which the pods of another kind of job are found.

1. Only names of the form that the operator gives are looked up; whoever made the object decides then, so that
   a Secret hf-token that a user made can be named.
2. An absent one is let through at admission, and waited for before pods are made: a pod that waits for a
   Secret would get the token of a job that is made later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import singledispatch
from typing import Any, Final, NamedTuple

from elasticjob.api.diengine import names
from elasticjob.api.diengine.aggregatorconfig import AggregatorConfig
from elasticjob.api.diengine.dijob import DIJOB, DIJob
from elasticjob.api.paddle.trainingjob import TrainingJob
from elasticjob.api.v1alpha1.common import (
    GROUP,
    KEYS_SUFFIX,
    LABEL_JOB,
    MANAGED_BY,
    MASTER_SUFFIX,
    OPERATOR,
    STATE_SUFFIX,
    TOKEN_SUFFIX,
)
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.kube.objects.kinds import Kind
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.objects.views import CONFIG_MAP, SECRET, SERVICE_ACCOUNT, ObjectMeta

SUFFIXES: Final[Mapping[Kind[Any], str]] = {
    SERVICE_ACCOUNT: MASTER_SUFFIX,
    SECRET: TOKEN_SUFFIX,
    CONFIG_MAP: STATE_SUFFIX,
}
FIELDS: Final[Mapping[str, Kind[Any]]] = {
    "serviceAccount": SERVICE_ACCOUNT,
    "serviceAccountName": SERVICE_ACCOUNT,
    "imagePullSecrets": SECRET,
    "nodePublishSecretRef": SECRET,
    "secret": SECRET,
    "secretKeyRef": SECRET,
    "secretName": SECRET,
    "secretRef": SECRET,
    "configMap": CONFIG_MAP,
    "configMapKeyRef": CONFIG_MAP,
    "configMapRef": CONFIG_MAP,
}
"""Fields of pods and volumes that name such an object: as text, or as `name` in an object or in a list."""
GROUPS: Final = (GROUP, names.GROUP)

Find = Callable[[Kind[Any], str], Awaitable[ObjectMeta]]
"""Reads the metadata of an object of the job's namespace; empty for one that is absent."""


class Reference(NamedTuple):
    """A field that names an object."""

    path: str
    kind: Kind[Any]
    name: str


@singledispatch
def parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """Find the parts of an object of ours from which pods are made, by their paths."""
    return iter(())


@parts.register
def _(job: ElasticJob) -> Iterator[tuple[str, Any]]:
    for role, spec in job.spec.replica_specs.items():
        yield f"spec.replicaSpecs[{role}].template", spec.template
    for name, variable in job.spec.envs.items():
        yield f"spec.envs[{name}]", variable.manifest()


@parts.register
def _(job: DIJob) -> Iterator[tuple[str, Any]]:
    for role in (names.Role.COORDINATOR, names.Role.COLLECTOR, names.Role.LEARNER):
        if (one := job.spec.template(role)) is not None:
            yield f"spec.{role}.template", one.template
    yield "spec.volumes", job.spec.volumes


@parts.register
def _(job: TrainingJob) -> Iterator[tuple[str, Any]]:
    yield "spec", {"volumes": job.spec.volumes, "imagePullSecrets": job.spec.image_pull_secrets}


@parts.register
def _(config: AggregatorConfig) -> Iterator[tuple[str, Any]]:
    yield "spec.aggregator.template", config.spec.aggregator.template


def named(
    path: str, value: Any, fields: Mapping[str, Kind[Any]], *, optional: bool = True
) -> Iterator[Reference]:
    """Find the fields below `value` that name an object; not those that are `optional`, if so asked."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from named(f"{path}[{index}]", item, fields, optional=optional)
    elif isinstance(value, Mapping):
        for field, item in value.items():
            here = f"{path}.{field}"
            if not optional and isinstance(item, Mapping) and item.get("optional") is True:
                continue
            if kind := fields.get(field):
                for place, name in _names(here, item):
                    yield Reference(place, kind, name)
            yield from named(here, item, fields, optional=optional)


def references(path: str, value: Any) -> Iterator[Reference]:
    """Find the fields below `value` that name an object as the operator names those of a job."""
    for each in named(path, value, FIELDS):
        if each.name.endswith((SUFFIXES[each.kind], KEYS_SUFFIX)):
            yield each


def _names(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping) and isinstance(value.get("name"), str):
        yield f"{path}.name", value["name"]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, Mapping):
                yield from _names(f"{path}[{index}]", item)


def claims(thing: Any, old: Any = None) -> Iterator[Problem]:
    """Find labels of new templates by which Services and controllers find the pods of another kind of job."""
    kind, label = (DIJOB, names.LABEL_JOB) if isinstance(thing, ElasticJob) else (ELASTICJOB, LABEL_JOB)
    before = dict(parts(old)) if old is not None else {}
    for path, template in parts(thing):
        about = template.get("metadata") if isinstance(template, Mapping) else None
        if about and label in (about.get("labels") or ()) and template != before.get(path):
            what = f"pods of {kind.name}s are found by it: leave it out"
            yield Problem(f"{path}.metadata.labels[{label}]", what)


def names_of_ours(thing: Any, old: Any = None) -> list[Reference]:
    """Return what an object of ours names that `old` does not."""
    before = {(each.kind, each.name) for each in names_of_ours(old)} if old is not None else set()
    found = (each for path, value in parts(thing) for each in references(path, value))
    return [each for each in found if (each.kind, each.name) not in before]


def of_others(thing: Any, job: Any = None) -> list[Problem]:
    """Return what can be told without reading any object: labels, and tokens of other DIJobs than `job`."""
    ours, end = names.token((job or thing).metadata.name), f"-di{TOKEN_SUFFIX}"
    found = (each for each in names_of_ours(thing) if each.name.endswith(end) and each.name != ours)
    return [*claims(thing), *(Problem(each.path, f"{each.name} is another job's token") for each in found)]


def own(thing: Any) -> frozenset[tuple[Kind[Any], str]]:
    """Return what is made for a job before its pods are."""
    job = thing.metadata.name
    match thing:
        case ElasticJob() if thing.spec.needs_master:
            return frozenset((kind, job + suffix) for kind, suffix in SUFFIXES.items())
        case DIJob():
            return frozenset({(SECRET, names.token(job))})
        case _:
            return frozenset()


def _kind(thing: Any) -> Kind[Any]:
    """Return the kind of job of which an object of ours is; a TrainingJob has an ElasticJob of its name."""
    return DIJOB if isinstance(thing, DIJob) else ELASTICJOB


async def foreign(thing: Any, find: Find, *, old: Any = None, absent: bool = False) -> list[Problem]:
    """Return a problem for each field that names what was made for another job than `thing`.

    `absent`: also for one that names what is not there, and may be made for another job later.
    """
    found, asked = list(claims(thing, old)), names_of_ours(thing, old)
    known = {each: await find(*each) for each in dict.fromkeys((kind, name) for _, kind, name in asked)}
    for path, kind, name in asked:
        if why := _why(kind, name, known[kind, name], thing, absent):
            found.append(Problem(path, why))
    return found


def _why(kind: Kind[Any], name: str, about: ObjectMeta, thing: Any, absent: bool) -> str:
    """Return why a job may not use an object of this name; "" if it may."""
    if not about.uid:
        if not absent or (kind, name) in own(thing) or not name.endswith(SUFFIXES[kind]):
            return ""
        return f"{kind.name} {name} is not there, and its name is one that jobs get: make it first, or rename"
    owner = next((each for each in about.owner_references if each.controller), None)
    if about.labels.get(MANAGED_BY) == OPERATOR and LABEL_JOB not in about.labels:
        return f"{kind.name} {name} is the operator's own: leave it out"
    if owner is None or owner.api_version.partition("/")[0] not in GROUPS:
        return ""
    if (owner.kind, owner.name) == (_kind(thing).name, thing.metadata.name):
        return ""
    return f"{kind.name} {name} belongs to {owner.kind} {owner.name}: name one that you made, or leave it out"
