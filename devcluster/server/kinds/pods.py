"""Pods: defaults, checks, and the few fields that may change later."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from elasticjob.devcluster.quantity import parse
from elasticjob.devcluster.server.model.errors import Cause, forbidden
from elasticjob.devcluster.server.model.names import (
    label_problem,
    missing,
    path_problem,
    unsupported,
    wrong,
)
from elasticjob.devcluster.server.model.store import Manifest
from elasticjob.devcluster.server.model.strategy import Strategy, put

_RESTART = ["Always", "OnFailure", "Never"]
_PULL = ["Always", "IfNotPresent", "Never"]
_RESIZABLE = ("cpu", "memory")
_MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_TOLERATIONS = (
    {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    },
    {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    },
)
FORBIDDEN_UPDATE = (
    "Forbidden: pod updates may not change fields other than "
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations`"
    " (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to "
    "be set to 1 if it was previously negative)"
)


def default_pod(pod: Manifest) -> None:
    _default_status(pod.get("status") or {})
    default_pod_spec(pod["spec"])
    put(pod["spec"], enableServiceLinks=True)


def _default_status(status: dict[str, Any]) -> None:
    """Times that Go never leaves out, and the list of addresses that goes with the first."""
    for condition in status.get("conditions") or ():
        put(condition, lastProbeTime=None, lastTransitionTime=None)
    if status.get("podIP") and not status.get("podIPs"):
        status["podIPs"] = [{"ip": status["podIP"]}]


def default_template(item: Manifest) -> None:
    """Defaults of a workload that holds a pod template."""
    template = item.setdefault("spec", {}).setdefault("template", {})
    default_pod_spec(template.setdefault("spec", {}))


def default_pod_spec(spec: dict[str, Any]) -> None:
    put(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        schedulerName="default-scheduler",
        securityContext={},
    )
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        default_container(container)
    for volume in spec.get("volumes") or ():
        default_volume(volume)


def default_container(container: dict[str, Any]) -> None:
    image = container.get("image") or ""
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    put(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy="Always" if latest else "IfNotPresent",
        resources={},
    )
    for port in container.get("ports") or ():
        put(port, protocol="TCP")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name):
            _default_probe(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if hook.get("httpGet"):
            put(hook["httpGet"], path="/", scheme="HTTP")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            put(reference, apiVersion="v1")
    resources = container["resources"]
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _default_probe(probe: dict[str, Any]) -> None:
    put(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    if probe.get("httpGet"):
        put(probe["httpGet"], path="/", scheme="HTTP")


def default_volume(volume: dict[str, Any]) -> None:
    sources = [name for name in volume if name != "name"]
    if not sources:
        volume["emptyDir"] = {}
    for name in ("configMap", "secret", "projected", "downwardAPI"):
        if volume.get(name) is not None:
            put(volume[name], defaultMode=420)
    if volume.get("hostPath") is not None:
        put(volume["hostPath"], type="")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if source.get("serviceAccountToken") is not None:
            put(source["serviceAccountToken"], expirationSeconds=3600)
    for _, item in _items(volume, ""):
        if item.get("fieldRef") is not None:
            put(item["fieldRef"], apiVersion="v1")


def _items(volume: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The files that a volume names one by one, each with its place."""
    sources = [(path, volume)]
    for index, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
        sources.append((f"{path}.projected.sources[{index}]", source))
    for place, source in sources:
        for name in ("configMap", "secret", "downwardAPI"):
            for index, item in enumerate((source.get(name) or {}).get("items") or ()):
                yield f"{place}.{name}.items[{index}]", item


def start_pod(pod: Manifest) -> None:
    spec = pod["spec"]
    put(spec, preemptionPolicy="PreemptLowerPriority", priority=0)
    put(spec, serviceAccountName=spec.get("serviceAccount") or "default")
    spec["serviceAccount"] = spec["serviceAccountName"]
    missing_ones = [each for each in _TOLERATIONS if not _tolerates(spec, str(each["key"]))]
    if missing_ones:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *copy.deepcopy(missing_ones)]
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(pod["spec"])}


def _tolerates(spec: dict[str, Any], key: str) -> bool:
    return any(
        each.get("key", key) == key and each.get("effect", "NoExecute") == "NoExecute"
        for each in spec.get("tolerations") or ()
    )


def qos_class(spec: dict[str, Any]) -> str:
    """Guaranteed, Burstable or BestEffort, by cpu and memory of all containers."""
    resources = [
        each.get("resources") or {}
        for each in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    ]
    asked = [
        {name: value for name, value in (each.get(part) or {}).items() if name in ("cpu", "memory")}
        for each in resources
        for part in ("requests", "limits")
    ]
    if not any(asked):
        return "BestEffort"
    pairs = zip(asked[::2], asked[1::2], strict=True)
    whole = all(requests == limits and set(limits) == {"cpu", "memory"} for requests, limits in pairs)
    return "Guaranteed" if whole else "Burstable"


def check_pod(pod: Manifest) -> Iterator[Cause]:
    yield from check_pod_spec(pod["spec"], "spec")


def check_pod_spec(spec: dict[str, Any], path: str) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield missing(f"{path}.containers")
    if spec.get("restartPolicy") not in _RESTART:
        yield unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART)
    if not 0 < spec.get("activeDeadlineSeconds", 1) < 2**31:
        why = "must be between 1 and 2147483647, inclusive"
        yield wrong(f"{path}.activeDeadlineSeconds", spec["activeDeadlineSeconds"], why)
    volumes = [volume.get("name") for volume in spec.get("volumes") or ()]
    yield from _unique(volumes, f"{path}.volumes")
    for index, volume in enumerate(spec.get("volumes") or ()):
        yield from _check_volume(volume, f"{path}.volumes[{index}]")
    for part in ("initContainers", "containers"):
        found = spec.get(part) or ()
        for index, container in enumerate(found):
            yield from _check_container(container, volumes, f"{path}.{part}[{index}]")
        yield from _unique([container.get("name") for container in found], f"{path}.{part}")
    for name in ("hostname", "subdomain"):
        if spec.get(name) and (problem := label_problem(spec[name])):
            yield wrong(f"{path}.{name}", spec[name], problem)


def _check_volume(volume: dict[str, Any], path: str) -> Iterator[Cause]:
    name, host = volume.get("name") or "", (volume.get("hostPath") or {}).get("path") or ""
    if problem := label_problem(name):
        yield wrong(f"{path}.name", name, problem) if name else missing(f"{path}.name")
    if ".." in host.split("/"):
        yield wrong(f"{path}.hostPath.path", host, "must not contain '..'")
    for place, item in _items(volume, path):
        if problem := path_problem(item.get("path") or ""):
            yield wrong(f"{place}.path", item["path"], problem)


def _unique(names: list[Any], path: str) -> Iterator[Cause]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Cause(f"{path}[{index}].name", f'Duplicate value: "{name}"', "FieldValueDuplicate")


def _check_container(container: dict[str, Any], volumes: list[Any], path: str) -> Iterator[Cause]:
    name = container.get("name")
    if not name:
        yield missing(f"{path}.name")
    elif problem := label_problem(name):
        yield wrong(f"{path}.name", name, problem)
    if not container.get("image"):
        yield missing(f"{path}.image")
    if container.get("imagePullPolicy") not in _PULL:
        yield unsupported(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULL)
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            yield missing(f"{path}.env[{index}].name")
        if variable.get("value") and variable.get("valueFrom"):
            yield wrong(
                f"{path}.env[{index}].valueFrom", "", "may not be specified when `value` is not empty"
            )
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if not mount.get("mountPath"):
            yield missing(f"{path}.volumeMounts[{index}].mountPath")
        for field in ("subPath", "subPathExpr"):
            if problem := path_problem(mount.get(field) or ""):
                yield wrong(f"{path}.volumeMounts[{index}].{field}", mount[field], problem)
        if mount.get("name") not in volumes:
            yield Cause(
                f"{path}.volumeMounts[{index}].name",
                f'Not found: "{mount.get("name")}"',
                "FieldValueNotFound",
            )
    yield from _check_resources(container.get("resources") or {}, f"{path}.resources")
    for index, port in enumerate(container.get("ports") or ()):
        if not 0 < (port.get("containerPort") or 0) < 65536:
            yield wrong(
                f"{path}.ports[{index}].containerPort",
                port.get("containerPort", 0),
                "must be between 1 and 65535, inclusive",
            )


def _check_resources(resources: dict[str, Any], path: str) -> Iterator[Cause]:
    limits = resources.get("limits") or {}
    for part in ("limits", "requests"):
        for name, amount in (resources.get(part) or {}).items():
            if parse(amount) < 0:
                yield wrong(f"{path}.{part}[{name}]", amount, "must be greater than or equal to 0")
    for name, amount in (resources.get("requests") or {}).items():
        if name in limits and parse(amount) > parse(limits[name]):
            why = f"must be less than or equal to {name} limit of {limits[name]}"
            yield wrong(f"{path}.requests", amount, why)


def check_pod_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    yield from check_pod(new)
    yield from _check_deadline_update(new["spec"], old["spec"])
    kept = new["spec"].get("tolerations") or ()
    if any(
        _without_seconds(each) not in map(_without_seconds, kept)
        for each in old["spec"].get("tolerations") or ()
    ):
        why = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        yield Cause("spec.tolerations", why, "FieldValueForbidden")
    if _frozen(new["spec"]) != _frozen(old["spec"]):
        yield Cause("spec", FORBIDDEN_UPDATE, "FieldValueForbidden")


def _without_seconds(toleration: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _check_deadline_update(new: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    """A deadline may be set or come nearer."""
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if before is not None and after is None:
        yield wrong(path, None, "must not update from a positive integer to nil value")
    elif before is not None and after > before:
        yield wrong(path, after, "must be less than or equal to previous value")


def _frozen(spec: dict[str, Any]) -> dict[str, Any]:
    """The part of a pod spec that may not change."""
    kept = {name: value for name, value in spec.items() if name not in _MUTABLE}
    for part in ("containers", "initContainers"):
        if part in kept:
            kept[part] = [
                {name: value for name, value in each.items() if name != "image"} for each in kept[part]
            ]
    return kept


def resize_part(new: Manifest, old: Manifest) -> Manifest:
    """The part of a pod that `pods/resize` may change: the resources of its containers."""
    asked = {each["name"]: each for each in new["spec"].get("containers") or ()}
    answer = copy.deepcopy(old)
    for container in answer["spec"]["containers"]:
        update = asked.get(container["name"], {})
        if "resources" in update:
            container["resources"] = update["resources"]
        if "resizePolicy" in update:
            container["resizePolicy"] = update["resizePolicy"]
    return answer


def check_resize(new: Manifest, old: Manifest) -> Iterator[Cause]:
    """What `pods/resize` refuses: other resources than cpu and memory, and another class of service."""
    pairs = zip(new["spec"]["containers"], old["spec"]["containers"], strict=True)
    if any(_fixed_resources(after) != _fixed_resources(before) for after, before in pairs):
        yield Cause("spec", "Forbidden: only cpu and memory resources are mutable", "FieldValueForbidden")
    if (after := qos_class(new["spec"])) != qos_class(old["spec"]):
        yield wrong("spec", after, "Pod QOS Class may not change as a result of resizing")


def _fixed_resources(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    resources = container.get("resources") or {}
    return {
        part: {name: value for name, value in (resources.get(part) or {}).items() if name not in _RESIZABLE}
        for part in ("requests", "limits")
    }


def grace_period(pod: Manifest, asked: int | None) -> int:
    """Seconds between the deletion mark and the end of a pod; 0 = at once (unscheduled or ended pods)."""
    scheduled = bool(pod["spec"].get("nodeName"))
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    if not scheduled or ended:
        return 0
    own: int = pod["spec"].get("terminationGracePeriodSeconds", 30)
    return max(1 if own < 0 and asked is None else 0, own if asked is None else asked)


def bind(pod: Manifest, node: str, now: datetime) -> Manifest:
    """The pod on its node, with the PodScheduled condition."""
    answer = with_condition(pod, {"type": "PodScheduled", "status": "True"}, now)
    answer["spec"]["nodeName"] = node
    return answer


def with_condition(pod: Manifest, condition: dict[str, str], now: datetime) -> Manifest:
    """The pod with a condition that is new, or takes the place of the one of its type."""
    answer = copy.deepcopy(pod)
    status = answer.setdefault("status", {})
    others = [each for each in status.get("conditions") or () if each["type"] != condition["type"]]
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    status["conditions"] = [*others, condition | {"lastTransitionTime": stamp}]
    return answer


Lookup = Callable[[str, str, str], Manifest | None]  # (kind, namespace, name) → object


def pod_strategy(lookup: Lookup) -> Strategy:
    """`lookup` finds ServiceAccounts and PriorityClasses."""

    def start(pod: Manifest) -> None:
        start_pod(pod)
        _give_priority(pod, lookup)
        _give_account(pod, lookup)

    return Strategy(default_pod, start, check_pod, check_pod_update, generation=True)


def _give_priority(pod: Manifest, lookup: Lookup) -> None:
    name = pod["spec"].get("priorityClassName") or ""
    if not name or name in _SYSTEM_PRIORITIES:
        return
    found = lookup("PriorityClass", "", name)
    if found is None:
        raise forbidden(
            "", "pods", pod["metadata"].get("name", ""), f"no PriorityClass with name {name} was found"
        )
    pod["spec"]["priority"] = found.get("value", 0)
    pod["spec"]["preemptionPolicy"] = found.get("preemptionPolicy", "PreemptLowerPriority")


def _give_account(pod: Manifest, lookup: Lookup) -> None:
    """Mount the token of the pod's service account. A server without controllers has no `default`: then
    nothing.
    """
    spec, metadata = pod["spec"], pod["metadata"]
    namespace, name = metadata.get("namespace", ""), spec["serviceAccountName"]
    account = lookup("ServiceAccount", namespace, name)
    if account is None:
        if name == "default":
            return
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise forbidden("", "pods", metadata.get("name", ""), why)
    wanted = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    bare = [each for each in containers if not _has_account(each)]
    if not wanted or not bare:
        return
    volume = "kube-api-access-" + "".join(secrets.choice(_SUFFIX) for _ in range(5))
    for container in bare:
        mount = {"name": volume, "readOnly": True, "mountPath": _ACCOUNT_PATH}
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": volume, "projected": copy.deepcopy(_ACCOUNT)}]


def _has_account(container: dict[str, Any]) -> bool:
    return any(each.get("mountPath") == _ACCOUNT_PATH for each in container.get("volumeMounts") or ())


_SYSTEM_PRIORITIES = ("system-cluster-critical", "system-node-critical")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_ACCOUNT = {
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                ]
            }
        },
    ],
    "defaultMode": 420,
}
