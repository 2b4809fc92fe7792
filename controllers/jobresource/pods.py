"""The pod of a node: the user's template, with a name, a place in the job, an environment and resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from elasticjob.api.v1alpha1.common import AGENT_IMAGE, MAIN_CONTAINER
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, ReplicaSpec
from elasticjob.api.v1alpha1.gangs import class_of
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.placing import resources_of
from elasticjob.controllers.parts import agent, environment, names, placing
from elasticjob.controllers.parts.frameworks import framework_of
from elasticjob.controllers.parts.gangs.apis import PodFields, api_of, gang_from
from elasticjob.controllers.parts.owners import controlled_by, manifest_of
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD

Resource = Mapping[str, str]

IMPLIED: Final[Mapping[str, Any]] = {"automountServiceAccountToken": False, "enableServiceLinks": False}
"""Defaults of the template: no credentials for the API server, and no variables of the namespace's Services,
which grow with every job of the namespace."""


@dataclass(frozen=True)
class Birth:
    """A pod to create: which node, which relaunch, and what earlier pods of the node leave to it."""

    role: str
    index: int
    relaunch: int = 0
    restarts: int = 0
    resource: Resource = field(default_factory=dict)
    avoid: tuple[str, ...] = ()
    forgiven: int = 0
    stands_in: int | None = None
    moves: int = 0
    leave: tuple[str, ...] = ()
    repeats: int = 0


def pod_manifest(
    job: ElasticJob, owner: JobResource, birth: Birth, *, master: str, nodes: int, log_format: str = ""
) -> Manifest:
    """Return the pod of `birth`; `master` is its address, "" where the job has none."""
    replicas = job.spec.replica_specs[birth.role]
    name = names.pod(job.metadata.name, birth.role, birth.index, birth.relaunch)
    labels = names.pod_labels(job.metadata.name, birth.role, birth.index, birth.relaunch)
    carried = _gang_fields(owner, birth.role)
    metadata = {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": replicas.labels | dict(carried.labels) | labels,
        "annotations": replicas.annotations | dict(carried.annotations) | _annotations(replicas, birth),
        "ownerReferences": [controlled_by(owner)],
    }
    ours = environment.log_format(log_format)
    spec = _spec(job, replicas, birth, ours, name=name, master=master, nodes=nodes)
    scheduler = (
        {} if "schedulerName" in spec or not carried.scheduler else {"schedulerName": carried.scheduler}
    )
    return manifest_of(POD, metadata, spec={**spec, **scheduler, **carried.spec})


def _gang_fields(owner: JobResource, role: str) -> PodFields:
    """Return what the pod carries of the gang that was made for it."""
    gang = gang_from(owner.metadata.annotations)
    return api_of(gang).carried(gang, role) if gang else PodFields()


def _annotations(replicas: ReplicaSpec, birth: Birth) -> Manifest:
    """Return what the pod remembers: which container is the main one, and the failures before it."""
    main = {MAIN_CONTAINER: found["name"]} if (found := replicas.main_container) else {}
    forgiven = {names.FORGIVEN: str(birth.forgiven)} if birth.forgiven else {}
    stands_in = {} if birth.stands_in is None else {names.STANDS_IN: str(birth.stands_in)}
    moves = {names.MOVES: str(birth.moves)} if birth.moves else {}
    repeats = {names.REPEATS: str(birth.repeats)} if birth.repeats else {}
    resource = {names.RESOURCE: names.written(birth.resource)} if birth.resource else {}
    history = {**forgiven, **stands_in, **moves, **repeats, **resource}
    return {**main, names.RESTARTS: str(birth.restarts), **history}


def _spec(
    job: ElasticJob,
    replicas: ReplicaSpec,
    birth: Birth,
    ours: list[Manifest],
    *,
    name: str,
    master: str,
    nodes: int,
) -> Manifest:
    given = replicas.pod
    main = replicas.main_container or {}
    identity = environment.identity(job, birth.role, birth.index, master=master, nodes=nodes)
    resources = resources_of(main, birth.resource)
    extra = [
        *ours,
        *environment.allowance(given, resources),
        *environment.job_variables(job),
        *_framework_variables(job, birth),
    ]

    def furnished(container: Manifest) -> Manifest:
        known = [*identity, environment.termination_log(container)]
        variables = environment.complete(known, extra, container.get("env") or [])
        found = {**environment.LAST_LINES, **container, "env": variables}
        if job.spec.needs_master:
            found["volumeMounts"] = [*(container.get("volumeMounts") or []), environment.token_mount()]
        if container is main and birth.resource:
            found["resources"] = resources
        return found

    changed: dict[str, Any] = {
        "containers": [furnished(container) for container in given.get("containers") or []],
        "restartPolicy": "Never",
        "hostname": names.hostname(job.metadata.name, birth.role, birth.index, birth.relaunch),
        "subdomain": job.metadata.name,
    }
    if given.get("initContainers"):
        changed["initContainers"] = [furnished(container) for container in given["initContainers"]]
    if job.spec.needs_master:
        changed["volumes"] = [*(given.get("volumes") or []), environment.token_volume(job)]
    if job.spec.needs_master and birth.role in job.spec.training_roles:
        changed["tolerations"] = environment.tolerations(given)
    if birth.avoid or birth.leave:
        changed["affinity"] = placing.away_from(given.get("affinity") or {}, birth.avoid, birth.leave)
    if priority := class_of(job, birth.role, birth.index, nodes):
        changed["priorityClassName"] = priority
    spec = {**IMPLIED, **given, **changed}
    image = replicas.annotations.get(AGENT_IMAGE)
    return agent.with_agent(image, spec, main.get("name", "")) if image else spec


def _framework_variables(job: ElasticJob, birth: Birth) -> list[Manifest]:
    framework = framework_of(job)
    values = framework.environment(job, birth.role, birth.index) if framework else {}
    return [{"name": name, "value": value} for name, value in values.items()]
