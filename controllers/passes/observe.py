"""The caches that the controllers share, and what is read from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from elasticjob.api.resources import Bytes
from elasticjob.api.rpc.environment import MASTER, MASTER_PORT
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.order import by_age
from elasticjob.api.v1alpha1.placing import is_silent, requests
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.controllers.nodes.drains import Notice, notices
from elasticjob.controllers.nodes.machines import Largest, largest, stays
from elasticjob.controllers.nodes.out_of_memory import limit_of
from elasticjob.controllers.nodes.relaunch import Life, life_of
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.owners import controller_uid, job_name, kind_by_reference, owner_of
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.wire import Item, Meta
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import NotFound, Unreachable
from elasticjob.kube.objects.kinds import Key, Kind
from elasticjob.kube.objects.views import Node, Object, ObjectMeta, Pod, Service

MACHINE = "machine"
"""The index of pods by the machine that they are on."""
JOB = "job"
"""The index of plans by the job that they are about."""
MOST_LIVES = 4096
"""Lives that are remembered: pods of large jobs are looked at in pass after pass, and few of them change."""
NAMESAKES = "namesakes"
"""The index of pods by the name of their job, whichever uid its objects have."""
OWNER = "owner"
"""The index of objects by kind and name of their only owner, whichever uid it has."""


@dataclass(frozen=True)
class Machines:
    """The names of the Nodes in the cache."""

    cache: Cache[Node]

    def __contains__(self, name: object) -> bool:
        return self.cache.meta(Key("", str(name))) is not None


@dataclass(frozen=True)
class Silent:
    """The names of the Nodes in the cache that do not report."""

    cache: Cache[Node]

    def __contains__(self, name: object) -> bool:
        node = self.cache.get(Key("", str(name)))
        return node is not None and is_silent(node)


@dataclass(frozen=True)
class PodMemo:
    """A pod as a life, and the versions of pod and Node that it was read from."""

    life: Life | None
    controller: str
    machine: str
    versions: tuple[int, str, str | None]


def _keep(lives: dict[str, PodMemo], uid: str, found: PodMemo) -> None:
    lives.pop(uid, None)
    lives[uid] = found
    if len(lives) > MOST_LIVES:
        del lives[next(iter(lives))]


@dataclass(frozen=True)
class Caches:
    """The kinds that are listed and watched; Secrets and RBAC objects are only read one by one."""

    jobs: Cache[ElasticJob]
    resources: Cache[JobResource]
    plans: Cache[ScalePlan]
    pods: Cache[Pod]
    services: Cache[Service]
    machines: Cache[Node]
    taints: tuple[str, ...] = field(default=(), kw_only=True)  # more keys, of machines that end in minutes
    _lives: dict[str, PodMemo] = field(default_factory=dict, kw_only=True, repr=False)
    _before: dict[str, PodMemo] = field(default_factory=dict, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        self.pods.add_index(MACHINE, _machine)
        self.pods.add_index(NAMESAKES, _job)
        for cache in self._kinds:
            cache.add_index(OWNER, _owner)
        self.plans.add_index(JOB, lambda plan: (str(Key(plan.metadata.namespace, plan.spec.owner_job)),))

    def lives(self, uid: str, now: datetime) -> tuple[Life, ...]:
        """Return the pods of the controller with this uid, by name."""
        return self._lives_of(self.pods.items_owned_by(uid), now, uid)

    def by_labels(self, job: Key, now: datetime) -> tuple[Life, ...]:
        """Return the pods of a job and of its namesakes, by name."""
        return self._lives_of(self.pods.items_by_index(NAMESAKES, str(job)), now)

    def _lives_of(self, pods: Iterable[Item], now: datetime, controller: str = "") -> tuple[Life, ...]:
        known = filter(None, map(self.seen, pods))
        lives = (each.life for each in known if not controller or each.controller == controller)
        return tuple(sorted((life.as_of(now) for life in lives if life), key=lambda life: life.name))

    def seen(self, item: Item) -> PodMemo | None:
        """Return a pod as it is remembered, looked at anew only if the pod or its Node has changed.

        Of each pod two versions are remembered: a change of it is shown to several controllers.
        """
        for remembered in (self._lives, self._before):
            known = remembered.get(item.meta.uid)
            if known and known.versions == self._versions(item, known.machine):
                return known
        return self._look_at(item)

    def _look_at(self, item: Item) -> PodMemo | None:
        """Read a pod and remember it; None for one that does not fit its model."""
        if before := self._lives.pop(item.meta.uid, None):
            _keep(self._before, item.meta.uid, before)
        if (pod := self.pods.fitting(item)) is None:
            return None
        machine = pod.spec.node_name
        versions = self._versions(item, machine)
        found = PodMemo(self.life(pod), controller_uid(pod.metadata), machine, versions)
        _keep(self._lives, item.meta.uid, found)
        return found

    def _versions(self, item: Item, machine: str) -> tuple[int, str, str | None]:
        node = self.machines.meta(Key("", machine)) if machine else None
        return self.pods.eras, item.meta.resource_version, node.resource_version if node else None

    def pods_of(self, key: Key) -> int:
        """Return how many pods of nodes a job has, ended ones too."""
        resource = self.resources.meta(key)
        return self.pods.count_owned_by(resource.uid) if resource else 0

    def life(self, pod: Pod) -> Life | None:
        """Return a pod as a life, None without role and index labels."""
        machines = self.machines
        return life_of(pod, Machines(machines), Silent(machines), self.notices_of(pod.spec.node_name))

    def notices_of(self, machine: str) -> tuple[Notice, ...]:
        """Return what a machine's Node says about its end."""
        node = self.machines.get(Key("", machine)) if machine else None
        return notices(node, self.taints) if node else ()

    def largest(self, job: ElasticJob, lives: Iterable[Life]) -> Mapping[str, Largest]:
        """Return the largest machine for each role of which a node was out of memory."""
        roles = {life.role: job.spec.replica_specs.get(life.role) for life in lives if limit_of(life)}
        machines = [node for node in self.machines.list() if not is_silent(node)] if roles else []
        found = {role: largest(spec, machines, self._machine_memory) for role, spec in roles.items() if spec}
        return {role: machine for role, machine in found.items() if machine}

    def _machine_memory(self, machine: str) -> Bytes:
        """The memory that pods which belong to a machine ask for: those of DaemonSets, and static ones."""
        pods = (pod for pod in self.pods.by_index(MACHINE, machine) if stays(pod))
        amounts = (requests(pod).get("memory") for pod in pods)
        return Bytes(sum(amount.value for amount in amounts if amount))

    def made_for(self, kind: Kind[Any], key: Key) -> Iterator[tuple[Kind[Any], Meta]]:
        """The objects whose only owner has this kind and key, whichever uid; services come first.

        A change of a Service causes no pass: a restarted operator finds it by the objects that go later.
        """
        owner = _owner_key(kind.name, key)
        for made in self._kinds:
            for meta in made.metas(OWNER, owner):
                yield made.kind, meta

    def meta(self, kind: Kind[Any], key: Key) -> Meta | None:
        """Return the metadata of an object that is made for jobs; None where no cache shows it."""
        return next((cache.meta(key) for cache in self._kinds if cache.kind == kind), None)

    @property
    def _kinds(self) -> tuple[Cache[Any], ...]:
        """The kinds that are made for jobs, as far as they are cached."""
        return self.services, self.plans, self.resources, self.pods

    def plans_of(self, job: Key) -> tuple[ScalePlan, ...]:
        """Return the ScalePlans of a job, the oldest first; not those of an earlier job of its name."""
        life = self.jobs.meta(job)
        plans = (plan for plan in self.plans.by_index(JOB, str(job)) if not _is_of_another(plan, job, life))
        return by_age(plans)

    def master_address(self, job: ElasticJob) -> str:
        """Return host:port of the job's master, an IP; "" until its Service has one."""
        service = self._master_service(job)
        address = service.spec.cluster_ip if service else ""
        return f"{address}:{MASTER_PORT}" if address not in ("", "None") else ""

    def known_address(self, uid: str) -> str:
        """Return the IP of the master as a pod of the controller with this uid knows it, "" without one."""
        pods = (self.pods.fitting(item) for item in self.pods.items_owned_by(uid))
        known = (
            variable.value
            for pod in pods
            for container in (pod.spec.containers if pod else ())
            for variable in container.env
            if variable.name == MASTER and variable.value
        )
        return next(known, "").rpartition(":")[0]

    def idle_service(self, job: ElasticJob) -> str:
        """Return the uid of the Service of the job's master if it selects no pod, else ""."""
        service = self._master_service(job)
        return service.metadata.uid if service and not service.spec.selector else ""

    def _master_service(self, job: ElasticJob) -> Service | None:
        service = self.services.get(Key(job.metadata.namespace, names.master(job.metadata.name)))
        ours = service is not None and controller_uid(service.metadata) == job.metadata.uid
        return service if ours else None

    def names_from(self, job: Key) -> str | None:
        """Return the uid of the owner of the Service with a job's name: "" if it has none.

        None without such a Service.
        """
        service = self.services.get(job)
        return None if service is None else controller_uid(service.metadata)


async def read_metadata(client: Client, kind: Kind[Any], name: str, namespace: str) -> ObjectMeta:
    """Return the metadata of an object from the server; empty if there is no such object."""
    try:
        found: Object = await client.get(replace(kind, model=Object), name, namespace)
    except NotFound as error:
        if error.details.get("name") != name:  # the kind is not served: its objects may well be there
            raise Unreachable(f"{kind.name} {name}: the server does not know this kind now") from error
        return ObjectMeta()
    return found.metadata


def _machine(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _job(pod: Pod) -> Iterable[str]:
    job = job_name(pod.metadata)
    return (str(Key(pod.metadata.namespace, job)),) if job else ()


def _owner(made: Pod | Service | JobResource | ScalePlan) -> Iterable[str]:
    owner = owner_of(made.metadata)
    return (_owner_key(owner.kind, Key(made.metadata.namespace, owner.name)),) if owner else ()


def _is_of_another(plan: ScalePlan, job: Key, life: Meta | None) -> bool:
    """Whether an earlier job of this name owns a plan."""
    of_jobs = [owner for owner in plan.metadata.owner_references if kind_by_reference(owner) is ELASTICJOB]
    lives = {owner.uid for owner in of_jobs if owner.name == job.name}
    return life is not None and bool(lives) and life.uid not in lives


def _owner_key(kind: str, key: Key) -> str:
    return f"{kind} {key}"
