"""What older manifests mean in today's fields. Models ask whenever they read a spec; nothing is rewritten.

    distributionStrategy: parameter_server        ParameterServerStrategy, and so on for every spelling
    no strategy, beside parameter servers         ParameterServerStrategy
    parameter_server, worker, evaluator (EasyDL)  the roles ps, worker and evaluator of one container each
    image, command (EasyDL)                       those of roles whose main container has none
    replicas: 0                                   absent: the optimizer decides
    replicas: 0, minReplicas: 0                   none
    <job>-edljob-<role>-<index> in a ScalePlan    <job>-<role>-<index>
    _ in a pod's name in a ScalePlan              -, as pod names have no _
    type: Worker of a pod in a ScalePlan          worker, as roles are in small letters
    replicaResourceSpec in a ScalePlan            replicaResourceSpecs

The same spec means the same whatever was there before. Only what can mean one thing is here; checks/ refuses
the rest. Words are read by their enums. Other types are left to the models, which say what is wrong.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from elasticjob.api.roles import EVALUATOR, PS, WORKER, is_master
from elasticjob.api.v1alpha1.common import PARAMETER_SERVERS
from elasticjob.kube.objects.kinds import Manifest

OLDER_ROLES: Final = (
    ("parameter_server", PS),
    ("parameterServer", PS),
    (WORKER, WORKER),
    (EVALUATOR, EVALUATOR),
)
"""The fields of the EasyDL form, and the roles that they describe."""


def todays_job(spec: Manifest) -> Manifest:
    """Return an ElasticJob's spec in today's form; it may be the same object."""
    given = spec.get("replicaSpecs") or {}
    if not isinstance(given, dict):
        return spec
    roles = {
        role: _leave_open(_fill_in(role, one, spec)) for role, one in _with_older_roles(given, spec).items()
    }
    read: Manifest = {**spec, "replicaSpecs": roles} if roles else spec
    if PS in roles and spec.get("distributionStrategy") is None:
        return {**read, "distributionStrategy": PARAMETER_SERVERS}
    return read


def todays_plan(spec: Manifest) -> Manifest:
    """Return a ScalePlan's spec in today's form."""
    job, read = spec.get("ownerJob"), dict(spec)
    for field in ("createPods", "removePods", "migratePods"):
        if isinstance(spec.get(field), list):
            read[field] = [_rename(job, pod) for pod in spec[field]]
    if not spec.get("replicaResourceSpecs") and spec.get("replicaResourceSpec"):
        read["replicaResourceSpecs"] = spec["replicaResourceSpec"]
    return read


def _with_older_roles(given: Manifest, spec: Manifest) -> Manifest:
    """The roles, and those of the EasyDL form; of a role with both, the older form is the template if it has
    none: `kubectl scale` writes a number of workers and nothing else."""
    roles = dict(given)
    for field, role in OLDER_ROLES:
        older, now = spec.get(field), roles.get(role) or {}
        if isinstance(older, dict) and isinstance(now, dict) and not now.get("template"):
            container = {"name": "main"} | older_container(older)
            roles[role] = {**now, "template": {"spec": {"containers": [container]}}}
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
    except (ValueError, AttributeError):
        return None


def _fill_in(role: str, one: Any, spec: Manifest) -> Any:
    """Give the main container of a role what the EasyDL form says for all roles."""
    if is_master(role) or not (spec.get("image") or spec.get("command")):
        return one
    template = one.get("template") if isinstance(one, dict) else None
    pod = template.get("spec") if isinstance(template, dict) else None
    containers = pod.get("containers") if isinstance(pod, dict) else None
    if not isinstance(containers, list) or not containers:
        return one
    if not all(isinstance(container, dict) for container in containers):
        return one
    names = [container.get("name") for container in containers]
    main = names.index("main") if "main" in names else 0
    filled = [_with_defaults(each, spec) if at == main else each for at, each in enumerate(containers)]
    return {**one, "template": {**template, "spec": {**pod, "containers": filled}}}  # type: ignore[dict-item]


def _with_defaults(container: Manifest, spec: Manifest) -> Manifest:
    missing = {
        field: value
        for field, value in older_container(spec).items()
        if not container.get(field) and not (field == "command" and container.get("args"))
    }
    return container | missing


def _leave_open(one: Any) -> Any:
    """Leave out `replicas: 0`, unless the role may have no nodes: where minReplicas or maxReplicas is 0."""
    if not isinstance(one, dict) or one.get("replicas") != 0 or isinstance(one["replicas"], bool):
        return one
    if 0 in (one.get("minReplicas"), one.get("maxReplicas")):
        return one
    return {field: value for field, value in one.items() if field != "replicas"}


def _rename(job: Any, pod: Any) -> Any:
    """Return a pod, or its name, without the word that the original system's names have."""
    if isinstance(pod, dict):
        role = {"type": pod["type"].lower()} if isinstance(pod.get("type"), str) else {}
        return pod | role | ({"name": _rename(job, pod["name"])} if "name" in pod else {})
    if not isinstance(pod, str):
        return pod
    name, marked = pod.replace("_", "-"), f"{job}-edljob-"
    return f"{job}-{name.removeprefix(marked)}" if name.startswith(marked) else name
