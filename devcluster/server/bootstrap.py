"""What every cluster has from the start: its namespaces and the role `cluster-admin`."""

from __future__ import annotations

from typing import Any

from elasticjob.devcluster.server.asking import NAMESPACES
from elasticjob.devcluster.server.objects import Objects
from elasticjob.devcluster.server.store import Manifest, Type

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_CLUSTER_ROLES = Type("rbac.authorization.k8s.io", "clusterroles")


def bootstrap(objects: Objects) -> None:
    """Put the first objects into an empty store."""
    for name in _NAMESPACES:
        labels = {"labels": {"kubernetes.io/metadata.name": name}}
        namespace = {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        objects.store.put(NAMESPACES, _made(objects, "v1", "Namespace", name, labels) | namespace)
    every = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    role = _made(objects, "rbac.authorization.k8s.io/v1", "ClusterRole", "cluster-admin", {})
    objects.store.put(_CLUSTER_ROLES, role | {"rules": [every, {"nonResourceURLs": ["*"], "verbs": ["*"]}]})


def _made(objects: Objects, api_version: str, kind: str, name: str, metadata: dict[str, Any]) -> Manifest:
    stamped = {"name": name, "uid": objects.new_uid(), "creationTimestamp": objects.stamp()}
    return {"apiVersion": api_version, "kind": kind, "metadata": stamped | metadata}
