"""Reading what the operator knows: caches shared by its controllers, and the pods of an owner as lives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Final, cast

import msgspec

from elasticjob.api.rpc.environment import MASTER_PORT
from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.controllers import names
from elasticjob.controllers.conclusions import ENDINGS
from elasticjob.controllers.lives import Life, life_of
from elasticjob.controllers.owners import controller_name, controller_uid, kind_named, owner_of
from elasticjob.kube.cache import Cache
from elasticjob.kube.client import Client
from elasticjob.kube.controller import MapToKeys
from elasticjob.kube.errors import NotFound, Undecodable, Unreachable
from elasticjob.kube.kinds import Key, Kind
from elasticjob.kube.objects import Node, ObjectMeta, Pod, Service
from elasticjob.kube.reading import JsonReader
from elasticjob.kube.store import Change
from elasticjob.kube.wire import Item, Meta

_MEMBERS = JsonReader(dict[str, msgspec.Raw])


class _Ending(msgspec.Struct, frozen=True):
    """A condition, as far as it says that a job is over."""

    type: str = ""
    status: str = ""


class _Reported(msgspec.Struct, rename="camel"):
    """What of a status is acted upon: the end of a job, the restarts of a JobResource."""

    conditions: list[_Ending] | None = None
    completion_time: str | None = None
    restarts: int | dict[str, dict[str, int]] | None = None


_STATUS: JsonReader[_Reported | None] = JsonReader(cast(Any, _Reported | None))

MACHINE = "machine"
"""The index of pods by the machine that they are on."""


JOB = "job"
"""The index of plans by the job that they are about."""
OWNER = "owner"
"""The index of what is made for jobs by which of our objects it goes with, whichever life of that."""


_TOLD: Final = attrgetter(*{field.name for field in fields(Life)}.difference(("machine", "version")))
"""All that a life is but for where and which version: of every pod on every change, so no copies."""


@dataclass(frozen=True)
class Machines:
    """The machines of the cluster, by name, as the cache has them now."""

    cache: Cache[Node]

    def __contains__(self, name: object) -> bool:
        return self.cache.meta(Key("", str(name))) is not None


@dataclass(frozen=True)
class Caches:
    """What the operator follows. Secrets and rights are made, and looked at one by one, never listed."""

    jobs: Cache[ElasticJob]
    resources: Cache[JobResource]
    plans: Cache[ScalePlan]
    pods: Cache[Pod]
    services: Cache[Service]
    machines: Cache[Node]

    def __post_init__(self) -> None:
        self.pods.add_index(MACHINE, _machine)
        for cache in self._made:
            cache.add_index(OWNER, _owner)
        self.plans.add_index(JOB, lambda plan: map(str, job_of_plan(plan)))

    def lives(self, uid: str) -> tuple[Life, ...]:
        """Return the pods of the controller with this uid, by name."""
        machines = Machines(self.machines)
        found = (
            life_of(pod, machines) for pod in self.pods.owned_by(uid) if controller_uid(pod.metadata) == uid
        )
        return tuple(sorted((life for life in found if life is not None), key=lambda life: life.name))

    def made_for(self, kind: Kind[Any], key: Key) -> Iterator[tuple[Kind[Any], Meta]]:
        """The objects whose only owner has this kind and key, whichever uid; services come first.

        A change of a Service causes no pass: a restarted operator finds it by the objects that go later.
        """
        for made in self._made:
            for meta in made.metas(OWNER, _owner_key(kind.name, key)):
                yield made.kind, meta

    @property
    def _made(self) -> tuple[Cache[Any], ...]:
        """The kinds that are made for jobs, as far as they are cached."""
        return self.services, self.plans, self.resources, self.pods

    def lives_otherwise(self, change: Change) -> bool:
        """Whether a pod came or went, or changed in a way that decisions rest on: what its life tells.

        A place on a machine alone is none; a kubelet's many small reports are none.
        """
        if change.old is None or change.new is None:
            return True
        try:
            return self._told(change.old) != self._told(change.new)
        except Undecodable:  # whoever reads it says so
            return True

    def _told(self, item: Item) -> tuple[str, object]:
        pod = self.pods.view(item)
        life = life_of(pod, Machines(self.machines))
        return controller_uid(pod.metadata), life and _TOLD(life)

    def jobs_on(self, machine: Node) -> Iterable[Key]:
        """Return the jobs with pods on a machine, as keys."""
        pods = self.pods.by_index(MACHINE, machine.metadata.name)
        return [key for pod in pods for key in job_of(pod)]

    def plans_of(self, job: Key) -> tuple[ScalePlan, ...]:
        """Return the ScalePlans of a job, the oldest first; none of an earlier job of its name."""
        life = self.jobs.meta(job)
        plans = (plan for plan in self.plans.by_index(JOB, str(job)) if not _is_of_another(plan, job, life))
        return tuple(sorted(plans, key=age))

    def master_address(self, job: ElasticJob) -> str:
        """Return host:port of the job's master, an IP; "" until its Service has one."""
        key = Key(job.metadata.namespace, names.master(job.metadata.name))
        service = self.services.get(key)
        if service is None or controller_uid(service.metadata) != job.metadata.uid:
            return ""
        address = service.spec.cluster_ip
        return f"{address}:{MASTER_PORT}" if address not in ("", "None") else ""


class _Bare(msgspec.Struct, frozen=True):
    """An object whose other fields need not fit a model."""

    metadata: ObjectMeta


async def read_metadata(client: Client, kind: Kind[Any], name: str, namespace: str) -> ObjectMeta:
    """Return the metadata of an object from the server; empty if there is no such object."""
    try:
        found: _Bare = await client.get(replace(kind, model=_Bare), name, namespace)
    except NotFound as error:
        if error.details.get("name") != name:  # the kind is not served: its objects may well be there
            raise Unreachable(f"{kind.name} {name}: the server does not know this kind now") from error
        return ObjectMeta()
    return found.metadata


def age(plan: ScalePlan) -> tuple[float, str]:
    """Sort key of plans: the oldest first, by name within a second."""
    created = plan.metadata.creation_timestamp
    return (created.timestamp() if created else 0.0, plan.metadata.name)


def job_of(labelled: Pod | Service) -> list[Key]:
    """Return the job whose label an object bears, or else whose object controls it, as a key."""
    job = labelled.metadata.labels.get(LABEL_JOB, "") or controller_name(labelled.metadata)
    return [Key(labelled.metadata.namespace, job)] if job else []


def job_of_plan(plan: ScalePlan) -> list[Key]:
    """Return the job that a plan is about, as a key."""
    return [Key(plan.metadata.namespace, plan.spec.owner_job)]


def came_or_went(change: Change) -> bool:
    """Whether an object came or went: all that matters of a machine, whose kubelet reports all the time."""
    return change.old is None or change.new is None


def those_of(there: Callable[[Key], bool], keys: MapToKeys) -> MapToKeys:
    """Return `keys` without those for which there is nothing to do yet: what they lack brings them a pass."""
    return lambda thing: filter(there, keys(thing))


def more_than_reports(change: Change) -> bool:
    """Whether more changed about a job or JobResource than what is merely told of it.

    A status is what these controllers (and each second a master) say: of it only the end of a job and the
    restarts of a JobResource are acted upon. Nobody's pass follows from their own words.
    """
    if change.old is None or change.new is None:
        return True
    try:
        return _but_reports(change.old) != _but_reports(change.new)
    except msgspec.DecodeError:  # whoever reads it says so
        return True


def _but_reports(item: Item) -> tuple[Meta, dict[str, msgspec.Raw], object]:
    members = _MEMBERS.decode(item.raw)
    status = _STATUS.decode(members.pop("status", b"null"))
    del members["metadata"]
    return (
        msgspec.structs.replace(item.meta, resource_version=""),
        members,
        _acted_upon(status or _Reported()),
    )


def _acted_upon(status: _Reported) -> object:
    endings = {said for said in status.conditions or () if said.type in ENDINGS and said.status == "True"}
    return endings, status.completion_time, status.restarts or None


def _machine(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _owner(made: Pod | Service | JobResource | ScalePlan) -> Iterable[str]:
    owner = owner_of(made.metadata)
    return (_owner_key(owner.kind, Key(made.metadata.namespace, owner.name)),) if owner else ()


def _is_of_another(plan: ScalePlan, job: Key, life: Meta | None) -> bool:
    """Whether a plan belongs to an earlier job of a name, whoever else owns it."""
    of_jobs = [owner for owner in plan.metadata.owner_references if kind_named(owner) is ELASTICJOB]
    lives = {owner.uid for owner in of_jobs if owner.name == job.name}
    return life is not None and bool(lives) and life.uid not in lives


def _owner_key(kind: str, key: Key) -> str:
    return f"{kind} {key}"


def same_name(thing: ElasticJob | JobResource) -> list[Key]:
    """Return the key of an object's namesakes: a job and its JobResource bear one name."""
    return [thing.key]
