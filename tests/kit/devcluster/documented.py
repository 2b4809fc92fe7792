"""Objects of Kubernetes' own documentation, which the tests of client libraries make."""

from __future__ import annotations

from typing import Any

from tests.kit.crd.posting import crd_of

GROUP, PLURAL = "stable.example.com", "crontabs"

_SPEC = {
    "type": "object",
    "properties": {
        "cronSpec": {"type": "string"},
        "image": {"type": "string"},
        "replicas": {"type": "integer", "default": 1},
    },
}
_SCHEMA = {
    "type": "object",
    "properties": {"spec": _SPEC, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
}
_SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
_NAMES = {"plural": PLURAL, "singular": "crontab", "kind": "CronTab", "shortNames": ["ct"]}
CRONTABS = crd_of(_SCHEMA, GROUP, _NAMES, subresources={"status": {}, "scale": _SCALE})


def config_map(name: str) -> dict[str, Any]:
    """A ConfigMap of one key."""
    return _object("v1", "ConfigMap", name, data={"key": "value"})


def deployment(name: str) -> dict[str, Any]:
    """A Deployment of two replicas."""
    labels = {"app": name}
    pods = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "python:3.11"}]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": pods}
    return _object("apps/v1", "Deployment", name, spec=spec)


def crontab(name: str) -> dict[str, Any]:
    """A custom resource."""
    spec = {"cronSpec": "* * * * */5", "image": "my-awesome-cron-image"}
    return _object(f"{GROUP}/v1", "CronTab", name, spec=spec)


def pod(name: str, script: str, **container: Any) -> dict[str, Any]:
    """A pod that runs a shell script once."""
    main = {"name": "main", "image": "busybox", "command": ["sh", "-c", script], **container}
    spec = {"containers": [main], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    return _object("v1", "Pod", name, spec=spec)


def unscheduled_pod(name: str) -> dict[str, Any]:
    """A pod that no scheduler and no kubelet writes to."""
    made = pod(name, "true")
    made["spec"]["schedulerName"] = "none"
    return made


def _object(version: str, kind: str, name: str, **body: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}
