"""What older manifests mean in today's fields. The mutating webhook asks, before the server checks schemas.

    distributionStrategy: parameter_server        ParameterServerStrategy, and so on for every spelling
    no strategy, beside parameter servers         ParameterServerStrategy
    parameter_server, worker, evaluator (EasyDL)  the roles ps, worker and evaluator of one container each
    image, command (EasyDL)                       those of roles whose main container has none
    replicas: 0, in a role without a number       absent: the optimizer decides
    replicas: 0, minReplicas: 1 or more           the same, also when it is applied again
    <job>-edljob-<role>-<index> in a ScalePlan    <job>-<role>-<index>
    _ in a pod's name in a ScalePlan              -, as pod names have no _
    type: Worker of a pod in a ScalePlan          worker, as roles are in small letters
    replicaResourceSpec in a ScalePlan            replicaResourceSpecs

Only what can mean one thing is here; checks/ refuses the rest. The older fields stay beside what is made of
them, so a manifest that is applied again changes nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Container, Mapping
from typing import Any, Final

from elasticjob.api.v1alpha1.common import EVALUATOR, PS, WORKER
from elasticjob.api.v1alpha1.elasticjob import DistributionStrategy, OptimizeMode, is_master
from elasticjob.kube.objects.kinds import Manifest

OLDER_ROLES: Final = (
    ("parameter_server", PS),
    ("parameterServer", PS),
    (WORKER, WORKER),
    (EVALUATOR, EVALUATOR),
)
"""The fields of the EasyDL form, and the roles that they describe."""


def job_changes(spec: Manifest, numbered: Container[str] = ()) -> Manifest:
    """Return the fields of an ElasticJob's spec that differ once older forms are read.

    `numbered` are the roles that had a number of nodes before this write: there, `replicas: 0` means none,
    unless minReplicas forbids it.
    """
    given = spec.get("replicaSpecs") or {}
    roles = {**_older_roles(spec), **{role: _filled(role, one, spec) for role, one in given.items()}}
    roles = {role: _undecided(one, numbered=role in numbered) for role, one in roles.items()}
    read = {
        "replicaSpecs": roles,
        "distributionStrategy": _strategy(spec.get("distributionStrategy"), roles),
        "optimizeMode": str(OptimizeMode(spec["optimizeMode"])) if spec.get("optimizeMode") else None,
    }
    return {field: value for field, value in read.items() if value and value != spec.get(field)}


def plan_changes(spec: Manifest) -> Manifest:
    """Return the fields of a ScalePlan's spec that differ once older forms are read."""
    job = spec["ownerJob"]
    read: Manifest = {
        field: [_renamed(job, pod) for pod in spec.get(field) or ()]
        for field in ("createPods", "removePods", "migratePods")
    }
    read["replicaResourceSpecs"] = spec.get("replicaResourceSpecs") or spec.get("replicaResourceSpec")
    return {field: value for field, value in read.items() if value and value != spec.get(field)}


def _older_roles(spec: Manifest) -> Manifest:
    roles: Manifest = {}
    for field, role in OLDER_ROLES:
        older = spec.get(field)
        if older is not None and role not in roles:
            container = _with_defaults({"name": "main"} | older_container(older), spec)
            roles[role] = {"template": {"spec": {"containers": [container]}}}
    return roles


def older_container(older: Mapping[str, Any]) -> Manifest:
    """Return the image and the command of a role or a job in the EasyDL form, as far as they are given."""
    found: Manifest = {}
    if older.get("image"):
        found["image"] = older["image"]
    if words := command_words(older.get("command")):
        found["command"] = words
    return found


def command_words(line: str | None) -> list[str] | None:
    """Split a command line as a shell does; None if its quotation marks do not match."""
    try:
        return shlex.split(line or "")
    except ValueError:
        return None


def _filled(role: str, one: Manifest, spec: Manifest) -> Manifest:
    """Give the main container of a role what the EasyDL form says for all roles."""
    template = one.get("template") or {}
    pod = template.get("spec") or {}
    containers = pod.get("containers") if isinstance(pod, dict) else None
    if is_master(role) or not isinstance(containers, list) or not containers:
        return one
    if not all(isinstance(container, dict) for container in containers):
        return one
    names = [container.get("name") for container in containers]
    main = names.index("main") if "main" in names else 0
    filled = [_with_defaults(each, spec) if at == main else each for at, each in enumerate(containers)]
    return {**one, "template": {**template, "spec": {**pod, "containers": filled}}}


def _with_defaults(container: Manifest, spec: Manifest) -> Manifest:
    missing = {
        field: value
        for field, value in older_container(spec).items()
        if not container.get(field) and not (field == "command" and container.get("args"))
    }
    return container | missing


def _undecided(one: Manifest, *, numbered: bool) -> Manifest:
    """Leave out `replicas: 0`, unless it may mean none: where minReplicas or maxReplicas is 0 as well.

    In a role that had a number it means none also without minReplicas; with one, it would never be allowed.
    """
    if one.get("replicas") != 0 or 0 in (one.get("minReplicas"), one.get("maxReplicas")):
        return one
    if numbered and not one.get("minReplicas"):
        return one
    return {field: value for field, value in one.items() if field != "replicas"}


def _strategy(word: str | None, roles: Container[str]) -> str | None:
    if word is not None:
        return str(DistributionStrategy(word))
    return str(DistributionStrategy.PARAMETER_SERVER) if PS in roles else None


def _renamed(job: str, pod: Any) -> Any:
    """Return a pod, or its name, without the word that the original system's names have."""
    if isinstance(pod, dict):
        role = {"type": str(pod["type"]).lower()} if pod.get("type") else {}
        return pod | {"name": _renamed(job, pod["name"])} | role
    name, marked = pod.replace("_", "-"), f"{job}-edljob-"
    return f"{job}-{name.removeprefix(marked)}" if name.startswith(marked) else name
