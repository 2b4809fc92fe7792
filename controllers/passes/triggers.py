"""Which changes of watched objects cause a pass, and of which jobs: predicates and maps to keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from datetime import timedelta
from operator import attrgetter
from typing import Any, Final, cast

import msgspec

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.placing import is_silent
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.controllers.nodes.drains import Notice, notices
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.owners import job_name
from elasticjob.controllers.passes.conclusions import ENDINGS
from elasticjob.controllers.passes.observe import MACHINE, Caches
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.store import Change
from elasticjob.kube.cache.wire import Item, Meta
from elasticjob.kube.controller.controller import MapToKeys
from elasticjob.kube.controller.predicates import Predicate
from elasticjob.kube.errors import Undecodable
from elasticjob.kube.json import JsonReader
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import Node, Object, Pod

_LOOKED_UP: Final = ("machine", "version", "start", "since", "needs", "addressed")
_DECIDED_BY: Final = attrgetter(*{field.name for field in fields(Life)}.difference(_LOOKED_UP))
"""The fields of a life that decisions rest on; read for every change of a pod, so nothing is copied."""


EACH_POD: Final = timedelta(microseconds=200)
"""What a pod adds to the time in which changes gather: a pass looks at all pods of its job."""


def settling_time(least: timedelta, caches: Caches) -> Callable[[Key], timedelta]:
    """Return how long a change of a job's pods waits for others, longer the more pods the job has."""
    return lambda key: least + EACH_POD * caches.pods_of(key)


def job_of(made: Object) -> list[Key]:
    """Return the job that an object belongs to, as a key."""
    job = job_name(made.metadata)
    return [Key(made.metadata.namespace, job)] if job else []


def job_of_plan(plan: ScalePlan) -> list[Key]:
    """Return the job that a plan is about, as a key."""
    return [Key(plan.metadata.namespace, plan.spec.owner_job)]


def request_of(plan: ScalePlan) -> list[Key]:
    """Return the JobResource of a user or tool that asked for a plan, as a key."""
    name = plan.metadata.annotations.get(names.REQUEST, "")
    return [Key(plan.metadata.namespace, name)] if name else []


def same_name(thing: ElasticJob | JobResource) -> list[Key]:
    """Return the object's own key: a job and its JobResource have one name."""
    return [thing.key]


def jobs_on(caches: Caches) -> Callable[[Node], Iterable[Key]]:
    """Return the map from a machine to the jobs that have pods on it."""

    def keys(machine: Node) -> Iterable[Key]:
        return [key for pod in caches.pods.by_index(MACHINE, machine.metadata.name) for key in job_of(pod)]

    return keys


def those_of(there: Callable[[Key], bool], keys: MapToKeys) -> MapToKeys:
    """Return `keys` without those for which `there` is false: their own objects will cause a pass."""
    return lambda thing: filter(there, keys(thing))


def machine_changed(caches: Caches) -> Predicate:
    """Return the predicate: a Node came, went, reports or not, or says anew that it leaves.

    Kubelets update their Node all the time.
    """

    def told(item: Item) -> tuple[bool, tuple[Notice, ...]]:
        machine = caches.machines.view(item)
        return is_silent(machine), notices(machine, caches.taints)

    return _differs(told)


def life_changed(caches: Caches) -> Predicate:
    """Return the predicate: a pod came or went, or changed in a way that decisions rest on.

    Being placed on a machine is not such a change, nor are most status updates of a kubelet.
    """

    def relevant(item: Item) -> tuple[str, object]:
        if (seen := caches.seen(item)) is None:
            raise Undecodable(f"Pod {item.key} does not fit its model")
        return seen.controller, seen.life and _DECIDED_BY(seen.life)

    return _differs(relevant)


def has_gone(change: Change) -> bool:
    """Whether an object is no longer there."""
    return change.new is None


def address_changed(pods: Cache[Pod]) -> Predicate:
    """Return the predicate: a pod came or went, or has an IP now."""
    return _differs(lambda item: bool(pods.view(item).status.pod_ip))


def _differs(aspect: Callable[[Item], object]) -> Predicate:
    """Return the predicate: an object came or went, or this aspect of it is another."""

    def changed(change: Change) -> bool:
        if change.old is None or change.new is None:
            return True
        try:
            return aspect(change.old) != aspect(change.new)
        except Undecodable:  # the pass reports it
            return True

    return changed


def more_than_reports(change: Change) -> bool:
    """Whether more changed about a job or JobResource than reports in its status.

    The status is written by these controllers, and every few seconds by a master: only the end of a job, its
    first step, a master's findings and the restarts of a JobResource are acted upon, so that no pass follows
    from a controller's own writes.
    """
    if change.old is None or change.new is None:
        return True
    try:
        return _without_reports(change.old) != _without_reports(change.new)
    except msgspec.DecodeError:  # the pass reports it
        return True


class _Ending(msgspec.Struct, frozen=True):
    """A condition, as far as it says that a job is over."""

    type: str = ""
    status: str = ""


class _Finding(msgspec.Struct, frozen=True):
    """A finding of the master, which becomes an event."""

    time: str = ""
    reason: str = ""
    message: str = ""
    count: int = 1


class _Training(msgspec.Struct, frozen=True):
    """The master's part of the status: the first step, restarts, released pods, and findings."""

    step: int | None = None
    restarts: int | None = None
    released: list[str] = []
    findings: list[_Finding] = []


class _Report(msgspec.Struct, rename="camel"):
    """The fields of a status that are acted upon: a job's end and first step, a JobResource's restarts."""

    conditions: list[_Ending] | None = None
    completion_time: str | None = None
    restarts: int | dict[str, dict[str, int]] | None = None
    training: _Training | None = None


_MEMBERS = JsonReader(dict[str, msgspec.Raw])
_STATUS: JsonReader[_Report | None] = JsonReader(cast(Any, _Report | None))


def _without_reports(item: Item) -> tuple[Meta, dict[str, msgspec.Raw], object]:
    members = _MEMBERS.decode(item.raw)
    status = _STATUS.decode(members.pop("status", b"null"))
    del members["metadata"]
    meta = msgspec.structs.replace(item.meta, resource_version="")
    return meta, members, _acted_upon(status or _Report())


def _acted_upon(status: _Report) -> object:
    endings = {each for each in status.conditions or () if each.type in ENDINGS and each.status == "True"}
    training = status.training or _Training()
    told = bool(training.step), training.restarts, training.released, training.findings
    return endings, status.completion_time, status.restarts or None, told
