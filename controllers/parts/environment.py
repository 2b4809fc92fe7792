"""The environment of a job's pods: their identity, the master's address, and the job's token."""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import basename, dirname
from typing import Final

from elasticjob.api.resources import Cores, MalformedQuantity
from elasticjob.api.rpc import environment as env
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, NodeCheck
from elasticjob.controllers.parts import names
from elasticjob.kube.objects.kinds import Manifest

TOKEN_VOLUME: Final = "elasticjob-token"
TERMINATION_LOG: Final = "/dev/termination-log"
LAST_LINES: Final[Mapping[str, str]] = {"terminationMessagePolicy": "FallbackToLogsOnError"}
"""Without a termination message, the last lines of the log take its place, so that the error is shown."""

GRACE_SECONDS: Final = 30
"""Kubernetes' default of `terminationGracePeriodSeconds`."""
UNREACHABLE: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints of machines whose kubelet does not report."""
UNREACHABLE_SECONDS: Final = 30
"""How long pods stay on such a machine, if their template does not say: the cluster's default is 300 s."""


def identity(
    job: ElasticJob, role: str, index: int, *, master: str = "", nodes: int | None = None
) -> list[Manifest]:
    """Return the variables that every pod of a job has; `master` is host:port, "" where there is none."""
    values = {
        env.JOB: job.metadata.name,
        "ELASTIC_JOB_NAME": job.metadata.name,
        env.NAMESPACE: job.metadata.namespace,
        env.JOB_UID: job.metadata.uid,
        "JOB_UID": job.metadata.uid,
        env.NODE: names.node(job.metadata.name, role, index),
        env.ROLE: role,
        "NODE_TYPE": role,
        env.INDEX: str(index),
        "NODE_RANK": str(index),
        "NODE_ID": str(index),
    }
    if nodes is not None:
        values["NODE_NUM"] = str(nodes)
    if master:
        values |= {env.MASTER: master, "DLROVER_MASTER_ADDR": master}
    if forgive := job.spec.run_policy.forgive_restarts_after_seconds:
        values[env.FORGIVE_AFTER] = str(forgive)
    if job.spec.needs_master:
        values[env.TOKEN_FILE] = env.TOKEN_PATH
    if job.spec.node_check is not NodeCheck.NONE and role in job.spec.training_roles:
        values[env.CHECK] = "1"
    plain: list[Manifest] = [{"name": name, "value": value} for name, value in values.items()]
    return [*plain, _field(env.POD_NAME, "metadata.name"), _field(env.POD_IP, "status.podIP")]


def allowance(pod: Manifest, resources: Manifest) -> list[Manifest]:
    """Return the variables with what the kubelet grants: the grace of the pod, the processor time of the
    container that trains, whose `resources` are those that it is made with.
    """
    grace = pod.get("terminationGracePeriodSeconds")
    found = [{"name": env.GRACE, "value": str(GRACE_SECONDS if grace is None else grace)}]
    cores = next((given for part in ("limits", "requests") if (given := _cores(resources, part))), None)
    return found if cores is None else [*found, {"name": env.CPUS, "value": f"{float(cores.value):g}"}]


def log_format(given: str) -> list[Manifest]:
    """Return the variable with the format of log lines, none where it is left to the pod."""
    return [{"name": env.LOG_FORMAT, "value": given}] if given else []


def _cores(resources: Manifest, part: str) -> Cores | None:
    """Return the cores in the limits or requests; what is no quantity is the API server's to refuse."""
    try:
        return Cores.parse((resources.get(part) or {}).get("cpu", 0))
    except MalformedQuantity:
        return None


def termination_log(container: Manifest) -> Manifest:
    """Return the variable with the path of a container's termination message."""
    path = container.get("terminationMessagePath") or TERMINATION_LOG
    return {"name": env.TERMINATION_LOG, "value": path}


def complete(identity: list[Manifest], *layers: list[Manifest]) -> list[Manifest]:
    """Return `identity` and the variables of the layers, where a later layer wins, and `identity` always.

    The order is kept, since a variable may refer to those before it as $(NAME).
    """
    found: dict[str, Manifest] = {}
    for variable in (variable for layer in layers for variable in layer):
        found.pop(variable["name"], None)
        found[variable["name"]] = variable
    ours = {variable["name"] for variable in identity}
    return [*identity, *(variable for name, variable in found.items() if name not in ours)]


def job_variables(job: ElasticJob) -> list[Manifest]:
    """Return the variables that the user sets for all containers of the job (`spec.envs`)."""
    return [
        {"name": name}
        | variable.model_dump(by_alias=True, include={"value", "value_from"}, exclude_none=True)
        for name, variable in job.spec.envs.items()
    ]


def tolerations(spec: Manifest) -> list[Manifest]:
    """Return the tolerations of a pod spec, and ours for a silent machine where it has none of its own."""
    given: list[Manifest] = spec.get("tolerations") or []
    own = {each.get("key") or "" for each in given if each.get("effect") in (None, "", "NoExecute")}
    ours: Manifest = {
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": UNREACHABLE_SECONDS,
    }
    return [*given, *({"key": key, **ours} for key in UNREACHABLE if own.isdisjoint(("", key)))]


def token_volume(job: ElasticJob, *, brain: bool = False) -> Manifest:
    """Return the volume with the job's token, readable by its pods alone; `brain`: with that for Brain."""
    token, name = basename(env.TOKEN_PATH), job.metadata.name
    if brain:
        both = ((names.token(name), token), (names.brain_token(name), env.BRAIN_TOKEN))
        sources = [{"secret": {"name": each, "items": [_item(key)]}} for each, key in both]
        return {"name": TOKEN_VOLUME, "projected": {"defaultMode": 0o444, "sources": sources}}
    secret = {"secretName": names.token(name), "defaultMode": 0o444, "items": [_item(token)]}
    return {"name": TOKEN_VOLUME, "secret": secret}


def token_mount() -> Manifest:
    """Return where the token is mounted."""
    return {"name": TOKEN_VOLUME, "mountPath": dirname(env.TOKEN_PATH), "readOnly": True}


def _item(key: str) -> Manifest:
    return {"key": key, "path": key}


def _field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
