"""Bodies that probes send."""

from __future__ import annotations

import copy
from typing import Any

from tests.conformance.probe import CRDS, THINGS, Step, get, post
from tests.kit.crd.posting import crd_of
from tests.kit.devcluster.api import FIELDS, SCALE

Body = dict[str, Any]


def config_map(name: str, data: Body | None = None, **metadata: Any) -> Body:
    body: Body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return body | ({"data": data} if data is not None else {})


def pod(name: str, **spec: Any) -> Body:
    containers = [{"name": "main", "image": "busybox"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, **spec},
    }


def deployment(name: str, **spec: Any) -> Body:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    selector = {"matchLabels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        # paused: no controller touches it while it is looked at
        "spec": {"replicas": 1, "paused": True, "selector": selector, "template": template, **spec},
    }


def service(name: str, **spec: Any) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}], **spec},
    }


def thing(name: str = "one", spec: Body | None = None, **more: Any) -> Body:
    body: Body = {"apiVersion": "{group}/v1", "kind": "Thing", "metadata": {"name": name}}
    return body | ({"spec": spec} if spec is not None else {}) | more


def owned_by(body: Body, owner: Body, *, block: bool = False, controller: bool = False) -> Body:
    """A copy of `body`, owned by an object whose uid was taken as `{uid}`."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": "{uid}",
    }
    flags = {"blockOwnerDeletion": True} if block else {}
    flags |= {"controller": True} if controller else {}
    answer = copy.deepcopy(body)
    answer["metadata"]["ownerReferences"] = [reference | flags]
    return answer


SPEC: Body = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer", "minimum": 0, "maximum": 99},
        "note": {"type": "string", "nullable": True, "maxLength": 10},
        **FIELDS,
        "plain": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "size": {"type": "integer"},
                    "color": {"type": "string", "default": "red"},
                },
            },
        },
    },
}
STATUS: Body = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer"},
        "selector": {"type": "string"},
        "phase": {"type": "string"},
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type", "status"],
                "properties": {
                    "type": {"type": "string"},
                    "status": {"type": "string"},
                    "reason": {"type": "string"},
                },
            },
        },
    },
}


def definition(
    spec: Body | None = None, *, schema: Body | None = None, subresources: Body | None = None, **version: Any
) -> Body:
    """A CustomResourceDefinition of `Thing` in the probe's own group."""
    root = schema or {"type": "object", "properties": {"spec": spec or SPEC, "status": STATUS}}
    chosen = {"status": {}, "scale": SCALE} if subresources is None else subresources
    return crd_of(root, "{group}", subresources=chosen, **version)


def defined(spec: Body | None = None, **more: Any) -> tuple[Step, ...]:
    """Steps after which `things` are served."""
    established = {"status.conditions.1.status": "True", "status.conditions.1.type": "Established"}
    return (
        post(CRDS, definition(spec, **more), show=()),
        get(f"{CRDS}/things.{{group}}", until=established, show=()),
        get(THINGS, until=200, show=()),
    )
