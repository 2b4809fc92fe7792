"""The manifests of a job's objects other than pods: token, rights, services, JobResource."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from elasticjob.api.roles import WORKER
from elasticjob.api.rpc.brain import job_token
from elasticjob.api.rpc.environment import BRAIN_TOKEN, MASTER_PORT
from elasticjob.api.v1alpha1.common import GROUP, LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.kueue.grant import Grant
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.gangs import gang as gangs
from elasticjob.controllers.parts.gangs.gang import Gang
from elasticjob.controllers.parts.owners import controlled_by, manifest_of
from elasticjob.controllers.passes.plan import Create, Patch
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import (
    CONFIG_MAP,
    NETWORK_POLICY,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)

RBAC = "rbac.authorization.k8s.io"


def address(job: ElasticJob, ip: str = "") -> Create:
    """Return the Service that gives the master its address, which is `ip` if given; it selects no pod yet."""
    made = _make(job, SERVICE, names.master(job.metadata.name), _master_service(job))
    made.manifest["spec"] |= {"clusterIP": ip} if ip else {}
    return made


def aim(job: ElasticJob, uid: str) -> Patch:
    """Return the patch by which the Service with this uid selects the master."""
    selector = {LABEL_JOB: job.metadata.name, LABEL_ROLE: names.MASTER}
    return Patch(SERVICE, names.master(job.metadata.name), uid, {"spec": {"selector": selector}})


def pod_names(job: ElasticJob) -> Create:
    """Return the headless Service that gives each pod its DNS name, also before it is ready."""
    return _make(job, SERVICE, job.metadata.name, _pods_service(job))


def foundation(
    job: ElasticJob, token: str, scrapers: Sequence[Mapping[str, str]], brain_key: bytes = b""
) -> tuple[Create, ...]:
    """Return the objects that the first pod needs beside `address`; `token` is used if the job has none yet.

    Each of `scrapers` has the labels of namespaces that may read the master's metrics; `brain_key` is the key
    of the tokens with which masters ask Brain.
    """
    found = [network_policy(job, scrapers)] if job.spec.network_policy else []
    if job.spec.needs_master:
        master = names.master(job.metadata.name)
        found += [
            _secret(job, names.token(job.metadata.name), {"token": token}),
            replace(_make(job, CONFIG_MAP, names.master_state(job.metadata.name), {}), handed_on=True),
            _make(job, SERVICE_ACCOUNT, master, {"automountServiceAccountToken": True}),
            _make(job, ROLE, master, {"rules": rights(job.metadata.name)}),
            _make(job, ROLE_BINDING, master, _binding(job)),
        ]
        if brain_key:
            own = {BRAIN_TOKEN: job_token(brain_key, job.metadata.uid)}
            found.append(_secret(job, names.brain_token(job.metadata.name), own))
    return tuple(found)


def network_policy(job: ElasticJob, scrapers: Sequence[Mapping[str, str]]) -> Create:
    """Return the NetworkPolicy of a job."""
    return _make(job, NETWORK_POLICY, job.metadata.name, _network_policy(job, scrapers))


def job_resource(
    job: ElasticJob, gang: Gang | None = None, grant: Grant | None = None, token: str = ""
) -> Create:
    """Return the JobResource with the sizes that the user asks for; roles without one wait for a plan.

    A job in a queue begins with what that gives. `token` is that of the job's pods.
    """
    sizes = {role: job.spec.range_of(role).clamp(count) for role, count in sizes_of_user(job).items()}
    workers = {"replicas": sizes[WORKER]} if WORKER in sizes else {}
    if grant:
        sizes = {role: min(size, grant.most(job, role)) for role, size in sizes.items()}
    spec = {
        "selector": {"name": job.metadata.name},
        "suspend": job.spec.suspend,
        **workers,
        "replicaResourceSpecs": {role: {"replicas": size} for role, size in sizes.items()},
    }
    made = _make(job, JOBRESOURCE, job.metadata.name, {"spec": spec})
    made.manifest["metadata"]["annotations"] = {
        names.ASKED: names.written(sizes_of_user(job)),
        names.ASKED_AT: str(job.metadata.generation),
        names.TEMPLATES: written_amounts(template_amounts(job)),
        names.MADE_FROM: made_from(job),
        names.TOKEN: fingerprint(token),
        names.NETWORK: written_flag(job.spec.network_policy),
        names.SIZES: names.written(sizes),
        **remembered_gang(gang),
    }
    return made


def sizes_of_user(job: ElasticJob) -> dict[str, int]:
    """Return the sizes that the user asks for, by role."""
    return {role: spec.replicas for role, spec in sorted(job.spec.roles.items()) if spec.replicas is not None}


def template_amounts(job: ElasticJob) -> dict[str, dict[str, str]]:
    """Return the amounts of the main container in each template: the limit, but the request of cpu."""
    found = dict[str, dict[str, str]]()
    for role, spec in sorted(job.spec.roles.items()):
        given: Manifest = (spec.main_container or {}).get("resources") or {}
        requests, limits = given.get("requests") or {}, given.get("limits") or {}
        amounts = {**requests, **limits} | {name: requests[name] for name in ("cpu",) if name in requests}
        found |= {role: {name: str(amount) for name, amount in sorted(amounts.items())}} if amounts else {}
    return found


def made_from(job: ElasticJob) -> str:
    """Return the hash of all that nodes are made from, which only changes while a job is suspended.

    A hash of the same spec that differs in another release would restart running jobs.
    """
    spec = job.spec
    fields = {
        "templates": {role: each.template for role, each in spec.replica_specs.items()},
        "envs": {name: each.model_dump(by_alias=True, exclude_none=True) for name, each in spec.envs.items()},
        "nodeUnit": spec.node_unit,
        "gang": spec.run_policy.scheduling.gang.value,
    }
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def fingerprint(token: str) -> str:
    """Return what tells a token from another one, and does not tell it."""
    return sha256(token.encode()).hexdigest()[:16]


def written_flag(flag: bool) -> str:
    """Return a field of a job as it is kept in an annotation."""
    return str(flag).lower()


def written_amounts(amounts: Mapping[str, Mapping[str, str]]) -> str:
    """Return amounts of templates as they are kept in an annotation."""
    return json.dumps(amounts, sort_keys=True)


def remembered_gang(gang: Gang | None) -> dict[str, str]:
    """Return the annotation from which pods take their place in a gang."""
    return {names.GANG: gangs.written(gang)} if gang else {}


def rights(job: str) -> list[Manifest]:
    """Return the RBAC rules of a master: watch pods, report progress, plan, keep its snapshot.

    The ConfigMap of the snapshot is made for it: RBAC cannot allow to create one name only.
    """
    state = names.master_state(job)
    return [
        _allow(GROUP, ELASTICJOB.plural, "get", "list", "watch", only=job),
        _allow(GROUP, f"{ELASTICJOB.plural}/status", "get", "patch", only=job),
        _allow(GROUP, JOBRESOURCE.plural, "get", "list", "watch", only=job),
        _allow(GROUP, SCALEPLAN.plural, "create", "get", "list", "watch"),
        _allow("", "pods", "get", "list", "watch"),
        _allow("", "configmaps", "get", "patch", "update", only=state),
    ]


def _allow(group: str, resource: str, *verbs: str, only: str = "") -> Manifest:
    rule: Manifest = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    return {**rule, "resourceNames": [only]} if only else rule


def _make(job: ElasticJob, kind: Kind[Any], name: str, body: Manifest) -> Create:
    metadata = {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": names.job_labels(job.metadata.name, "job"),
        "ownerReferences": [controlled_by(job)],
    }
    return Create(kind, manifest_of(kind, metadata, **body))


def _secret(job: ElasticJob, name: str, tokens: Mapping[str, str]) -> Create:
    data = {name: b64encode(token.encode()).decode() for name, token in tokens.items()}
    return _make(job, SECRET, name, {"type": "Opaque", "immutable": True, "data": data})


def _binding(job: ElasticJob) -> Manifest:
    name = names.master(job.metadata.name)
    return {
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": job.metadata.namespace}],
    }


def _pods_service(job: ElasticJob) -> Manifest:
    selector = {LABEL_JOB: job.metadata.name}
    return {"spec": {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": True}}


def _master_service(job: ElasticJob) -> Manifest:
    """The master's address, the same for every relaunch of it."""
    return {
        "spec": {
            "ports": [{"name": "http", "port": MASTER_PORT, "targetPort": MASTER_PORT, "protocol": "TCP"}],
            "publishNotReadyAddresses": True,
        }
    }


def _network_policy(job: ElasticJob, scrapers: Sequence[Mapping[str, str]]) -> Manifest:
    """Only the job's pods reach the job's pods, and scrapers the port of its master."""
    pods = {"podSelector": {"matchLabels": {LABEL_JOB: job.metadata.name}}}
    allowed: list[Manifest] = [{"from": [pods]}]
    if scrapers:
        ports = [{"port": MASTER_PORT, "protocol": "TCP"}]
        readers = [{"namespaceSelector": {"matchLabels": dict(labels)}} for labels in scrapers]
        allowed.append({"from": readers, "ports": ports})
    return {"spec": {**pods, "policyTypes": ["Ingress"], "ingress": allowed}}
