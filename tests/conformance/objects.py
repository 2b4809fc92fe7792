"""Bodies that probes send."""

from __future__ import annotations

import copy
from typing import Any

from tests.conformance.probe import CRDS, TAKE, THINGS, Step, get, given, post
from tests.kit.crd.posting import crd_of
from tests.kit.devcluster.api import FIELDS, SCALE

Body = dict[str, Any]


def body(kind: str, name: str, version: str = "v1", **more: Any) -> Body:
    """An object of this name and these parts."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}


def config_map(name: str, data: Body | None = None, **metadata: Any) -> Body:
    made = body("ConfigMap", name, metadata={"name": name, **metadata})
    return made | ({"data": data} if data is not None else {})


def held(body: Body, *finalizers: str) -> Body:
    """A copy of `body` with finalizers."""
    return body | {"metadata": body["metadata"] | {"finalizers": list(finalizers)}}


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def applied(body: Body, last: str) -> Body:
    """A body as a client-side apply sends it first."""
    return body | {"metadata": body["metadata"] | {"annotations": {LAST_APPLIED: last}}}


def container(**more: Any) -> Body:
    return {"name": "main", "image": "busybox", **more}


def conditions(**states: str) -> Body:
    """A status of these conditions."""
    return {"conditions": [{"type": name, "status": state} for name, state in states.items()]}


def pod(name: str, **spec: Any) -> Body:
    return body("Pod", name, spec={"containers": [container()], **spec})


def deployment(name: str, **spec: Any) -> Body:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container()]}}
    selector = {"matchLabels": {"app": name}}
    # paused: no controller touches it while it is looked at
    usual = {"replicas": 1, "paused": True, "selector": selector, "template": template}
    return body("Deployment", name, "apps/v1", spec=usual | spec)


def template(**spec: Any) -> Body:
    """The change of a pod template."""
    return {"spec": {"template": {"spec": spec}}}


def scale(name: str, replicas: int, **metadata: Any) -> Body:
    about = {"name": name, **metadata}
    return body("Scale", name, "autoscaling/v1", metadata=about, spec={"replicas": replicas})


def review(group: str, kind: str, **spec: Any) -> Body:
    """A question to the server, or a request for a token."""
    return {"apiVersion": f"{group}.k8s.io/v1", "kind": kind} | ({"spec": spec} if spec else {})


def service(name: str, **spec: Any) -> Body:
    return body("Service", name, spec={"ports": [{"port": 80}], **spec})


def thing(name: str = "one", spec: Body | None = None, **more: Any) -> Body:
    return body("Thing", name, "{group}/v1", **({"spec": spec} if spec is not None else {}), **more)


def owned_by(body: Body, owner: Body, *, block: bool = False, controller: bool = False) -> Body:
    """A copy of `body`, owned by an object whose uid was taken as `{uid}`."""
    reference = {"name": owner["metadata"]["name"], "uid": "{uid}"}
    reference |= {name: owner[name] for name in ("apiVersion", "kind")}
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


def of_fields(*names: str) -> Body:
    """The schema of a spec that has these fields alone."""
    return {"type": "object", "properties": {name: SPEC["properties"][name] for name in names}}


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


ESTABLISHED = {"status.conditions.1.status": "True", "status.conditions.1.type": "Established"}


def defined(spec: Body | None = None, **more: Any) -> tuple[Step, ...]:
    """Steps after which `things` are served."""
    return (
        post(CRDS, definition(spec, **more), show=()),
        get(f"{CRDS}/things.{{group}}", until=ESTABLISHED, show=()),
        get(THINGS, until=200, show=()),
    )


def stored(spec: Body) -> tuple[Step, ...]:
    """Steps after which there is a thing of this spec, whose version and uid were taken."""
    return (*defined(), *given(post(THINGS, thing("one", spec), take=TAKE)))
