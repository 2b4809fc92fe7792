"""Objects of every cluster: the system namespaces, and the roles of administrators and clients."""

from __future__ import annotations

from collections.abc import Iterator

from elasticjob.devcluster.server.auth.access import GROUP, MASTERS
from elasticjob.devcluster.server.auth.tokens import AUTHENTICATED, UNAUTHENTICATED
from elasticjob.devcluster.server.model.asking import NAMESPACES
from elasticjob.devcluster.server.model.store import Manifest, Type
from elasticjob.devcluster.server.write.core import Core

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_HEALTH = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DOCUMENTS = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]
# name → its rules, the groups that hold it
_ROLES: dict[str, tuple[list[Manifest], list[str]]] = {
    "cluster-admin": (
        [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ],
        [MASTERS],
    ),
    "system:basic-user": (
        [
            {
                "verbs": ["create"],
                "apiGroups": ["authorization.k8s.io"],
                "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            },
            {
                "verbs": ["create"],
                "apiGroups": ["authentication.k8s.io"],
                "resources": ["selfsubjectreviews"],
            },
        ],
        [AUTHENTICATED],
    ),
    "system:discovery": ([{"verbs": ["get"], "nonResourceURLs": [*_DOCUMENTS, *_HEALTH]}], [AUTHENTICATED]),
    "system:public-info-viewer": (
        [{"verbs": ["get"], "nonResourceURLs": _HEALTH}],
        [AUTHENTICATED, UNAUTHENTICATED],
    ),
}


def publish_address(core: Core, host: str, port: int) -> None:
    """Make the Service `default/kubernetes` and its endpoints: this server, at its own address.

    Pods are processes of this machine and dial the server directly, so the Service is headless.
    """
    metadata: Manifest = {"name": "kubernetes", "namespace": "default"}
    of_service = metadata | {"labels": {"component": "apiserver", "provider": "kubernetes"}}
    spec: Manifest = {"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"]}
    ports: list[Manifest] = [{"name": "https", "protocol": "TCP", "port": port}]
    service: Manifest = {"apiVersion": "v1", "kind": "Service", "metadata": of_service}
    spec |= {"ports": [ports[0] | {"targetPort": port}], "sessionAffinity": "None"}
    endpoints: Manifest = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata}
    subsets = [{"addresses": [{"ip": host}], "ports": ports}]
    slice_: Manifest = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4"}
    slice_ |= {"metadata": metadata | {"labels": {"kubernetes.io/service-name": "kubernetes"}}}
    slice_ |= {"endpoints": [{"addresses": [host], "conditions": {"ready": True}}], "ports": ports}
    put, group = core.store.put, "discovery.k8s.io"
    put(Type("", "services"), _stamp(core, service | {"spec": spec, "status": {"loadBalancer": {}}}))
    put(Type("", "endpoints"), _stamp(core, endpoints | {"subsets": subsets}))
    put(Type(group, "endpointslices"), _stamp(core, slice_))


def bootstrap(core: Core) -> None:
    """Put the first objects into an empty store."""
    for type_, manifest in (*_namespaces(), *_roles()):
        core.store.put(type_, _stamp(core, manifest))


def _stamp(core: Core, manifest: Manifest) -> Manifest:
    stamps = {"uid": core.new_uid(), "creationTimestamp": core.stamp()}
    return manifest | {"metadata": manifest["metadata"] | stamps}


def _namespaces() -> Iterator[tuple[Type, Manifest]]:
    for name in _NAMESPACES:
        labels = {"kubernetes.io/metadata.name": name}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        rest = {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        yield NAMESPACES, namespace | rest


def _roles() -> Iterator[tuple[Type, Manifest]]:
    for name, (rules, groups) in _ROLES.items():
        metadata = {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
        common = {"apiVersion": f"{GROUP}/v1", "metadata": metadata}
        subjects = [{"kind": "Group", "apiGroup": GROUP, "name": group} for group in groups]
        reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
        yield Type(GROUP, "clusterroles"), {"kind": "ClusterRole", **common, "rules": rules}
        binding = {"kind": "ClusterRoleBinding", **common, "subjects": subjects, "roleRef": reference}
        yield Type(GROUP, "clusterrolebindings"), binding
