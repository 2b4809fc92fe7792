"""The command, environment and working directory of a container, from the pod and the objects it refers to.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from elasticjob.devcluster.node.container.mounts import Mount, rewrite, rewrite_all
from elasticjob.devcluster.node.images import Image
from elasticjob.devcluster.node.pod.record import every_container
from elasticjob.devcluster.quantity import parse
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import ConfigMap, Container, Pod, Quantity, Secret


class Unready(Exception):
    """The container cannot be made yet. `reason` is shown in its status; creation is retried."""

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Sources:
    """The objects that a pod refers to, as last read from the server; None for one that does not exist."""

    config_maps: dict[str, ConfigMap | None] = field(default_factory=dict)
    secrets: dict[str, Secret | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Surroundings:
    """Environment that the node adds to every container of a pod."""

    ip: str
    host: str
    allocatable: Mapping[str, Fraction]
    env: Mapping[str, str]
    """Before everything else: PATH, HOME, KUBECONFIG, KUBERNETES_SERVICE_HOST, …"""


def references(pod: Pod) -> tuple[set[str], set[str]]:
    """The names of the ConfigMaps and of the Secrets that the pod's containers and volumes refer to."""
    config_maps, secrets = set[str](), set[str]()
    for container in every_container(pod):
        for entry in (*container.env_from, *(variable.value_from or {} for variable in container.env)):
            config_maps |= _by_name(entry, "configMapRef", "name") | _by_name(
                entry, "configMapKeyRef", "name"
            )
            secrets |= _by_name(entry, "secretRef", "name") | _by_name(entry, "secretKeyRef", "name")
    for volume in pod.spec.volumes:
        for source in (volume, *(volume.get("projected", {}).get("sources") or ())):
            config_maps |= _by_name(source, "configMap", "name")
            secrets |= _by_name(source, "secret", "name") | _by_name(source, "secret", "secretName")
    return config_maps, secrets


def _by_name(entry: Manifest, member: str, name: str) -> set[str]:
    found = (entry.get(member) or {}).get(name)
    return {found} if found else set()


def environment(
    pod: Pod, container: Container, image: Image, sources: Sources, around: Surroundings
) -> dict[str, str]:
    """The container's environment, before mount paths are rewritten. Raises Unready."""
    env = {**around.env, **image.env, "HOSTNAME": pod.spec.hostname or pod.metadata.name}
    for entry in container.env_from:
        env |= _all_of(pod, entry, sources)
    for variable in container.env:
        if variable.value_from is None:
            env[variable.name] = expand(variable.value, env)
        elif (value := _value_from(pod, container, variable.value_from, sources, around)) is not None:
            env[variable.name] = value
    return env


def argv(
    container: Container, image: Image, env: Mapping[str, str], mounts: Sequence[Mount]
) -> tuple[str, ...]:
    """The command: `command` replaces the image's ENTRYPOINT and CMD, `args` its CMD. Raises Unready."""
    program = container.command or image.entrypoint
    words = container.args or (() if container.command else image.command)
    found = [expand(word, env) for word in (*program, *words)]
    if not found:
        raise Unready(f'no command specified for image "{container.image}"', "CreateContainerError")
    return rewrite_all(found, mounts)


def rewritten(env: Mapping[str, str], given: Mapping[str, str], mounts: Sequence[Mount]) -> dict[str, str]:
    """The environment with mount paths replaced, except in what the node has `given`: those are paths of this
    machine.
    """
    return {
        name: value if given.get(name) == value else rewrite(value, mounts) for name, value in env.items()
    }


_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` replaced by its value; `$$` is `$`; a name that is not set stays as written."""

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        return "$" if name is None else env.get(name, found.group())

    return _REFERENCE.sub(value, text)


def field_of(pod: Pod, path: str, around: Surroundings) -> str:
    """The value of a downward API field. Raises Unready for one that does not exist."""
    if keyed := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        given = pod.metadata.labels if keyed[1] == "labels" else pod.metadata.annotations
        return given.get(keyed[2], "")
    if path not in _FIELDS:
        raise Unready(f"fieldRef {path!r} is not a field that a pod can refer to")
    return _FIELDS[path](pod, around)


def _list(values: Mapping[str, str]) -> str:
    return "\n".join(f'{name}="{value}"' for name, value in sorted(values.items()))


_FIELDS: Mapping[str, Callable[[Pod, Surroundings], str]] = {
    "metadata.name": lambda pod, _: pod.metadata.name,
    "metadata.namespace": lambda pod, _: pod.metadata.namespace,
    "metadata.uid": lambda pod, _: pod.metadata.uid,
    "metadata.labels": lambda pod, _: _list(pod.metadata.labels),
    "metadata.annotations": lambda pod, _: _list(pod.metadata.annotations),
    "spec.nodeName": lambda pod, _: pod.spec.node_name,
    "spec.serviceAccountName": lambda pod, _: pod.spec.service_account_name or "default",
    "status.podIP": lambda _, around: around.ip,
    "status.podIPs": lambda _, around: around.ip,
    "status.hostIP": lambda _, around: around.host,
    "status.hostIPs": lambda _, around: around.host,
}


def resource_of(pod: Pod, container: Container, reference: Manifest, around: Surroundings) -> str:
    """The value of a resourceFieldRef, rounded up to its divisor; without a limit, the node's allocatable
    amount.
    """
    name = reference.get("containerName") or container.name
    owner = next((other for other in every_container(pod) if other.name == name), None)
    which, _, resource = str(reference.get("resource", "")).partition(".")
    if owner is None or which not in ("limits", "requests"):
        raise Unready(f"resourceFieldRef {reference} names no container and resource of this pod")
    limits, requests = owner.resources.limits, owner.resources.requests
    given: Quantity | None = (
        limits.get(resource) if which == "limits" else requests.get(resource, limits.get(resource))
    )
    amount = around.allocatable.get(resource, Fraction(0)) if which == "limits" else Fraction(0)
    amount = parse(given) if given is not None else amount
    divisor = parse(reference.get("divisor") or 1) or Fraction(1)
    return str(-(-amount // divisor))


def _value_from(
    pod: Pod, container: Container, source: Manifest, sources: Sources, around: Surroundings
) -> str | None:
    """The referenced value; None if the reference is optional and its object or key is missing."""
    if reference := source.get("fieldRef"):
        return field_of(pod, reference.get("fieldPath", ""), around)
    if reference := source.get("resourceFieldRef"):
        return resource_of(pod, container, reference, around)
    if reference := source.get("configMapKeyRef"):
        return _key(pod, "ConfigMap", reference, _config_map(reference, sources))
    if reference := source.get("secretKeyRef"):
        return _key(pod, "Secret", reference, _secret(reference, sources))
    raise Unready(f"env source {sorted(source)} is not supported by devcluster")


def _key(pod: Pod, kind: str, reference: Manifest, values: Mapping[str, str] | None) -> str | None:
    optional, key, name = (
        reference.get("optional", False),
        reference.get("key", ""),
        reference.get("name", ""),
    )
    if values is None:
        return None if optional else _missing(kind, name)
    if key not in values and not optional:
        raise Unready(f"couldn't find key {key} in {kind} {pod.metadata.namespace}/{name}")
    return values.get(key)


def _all_of(pod: Pod, entry: Manifest, sources: Sources) -> dict[str, str]:
    kind, reference, values = ("ConfigMap", entry.get("configMapRef"), _config_map)
    if reference is None:
        kind, reference, values = ("Secret", entry.get("secretRef") or {}, _secret)
    found = values(reference, sources)
    if found is None:
        if not reference.get("optional"):
            _missing(kind, reference.get("name", ""))
        return {}
    return {entry.get("prefix", "") + key: value for key, value in found.items()}


def _missing(kind: str, name: str) -> Any:
    raise Unready(f'{kind.lower()} "{name}" not found')


def _config_map(reference: Manifest, sources: Sources) -> Mapping[str, str] | None:
    found = sources.config_maps.get(reference.get("name", ""))
    return None if found is None else found.data


def _secret(reference: Manifest, sources: Sources) -> Mapping[str, str] | None:
    found = sources.secrets.get(reference.get("name", ""))
    return (
        None
        if found is None
        else {key: value.decode("utf-8", "replace") for key, value in found.data.items()}
    )
