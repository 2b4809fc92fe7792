"""What every cluster has from the start: its namespaces, and the roles of people and plain clients."""

from __future__ import annotations

from elasticjob.devcluster.server.aggregation import gather
from elasticjob.devcluster.server.asking import NAMESPACES
from elasticjob.devcluster.server.defaultroles import GROUP, cluster_role_bindings, cluster_roles
from elasticjob.devcluster.server.objects import Objects
from elasticjob.devcluster.server.store import Manifest, Type

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def bootstrap(objects: Objects) -> None:
    """Put the first objects into an empty store."""
    for name in _NAMESPACES:
        labels = {"kubernetes.io/metadata.name": name}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        rest = {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        objects.store.put(NAMESPACES, _stamped(objects, namespace | rest))
    roles: list[Manifest] = []
    for role in cluster_roles():
        roles.append(role | ({"rules": gather(role, roles)} if "aggregationRule" in role else {}))
        objects.store.put(Type(GROUP, "clusterroles"), _stamped(objects, roles[-1]))
    for binding in cluster_role_bindings():
        objects.store.put(Type(GROUP, "clusterrolebindings"), _stamped(objects, binding))


def _stamped(objects: Objects, manifest: Manifest) -> Manifest:
    stamps = {"uid": objects.new_uid(), "creationTimestamp": objects.stamp()}
    return manifest | {"metadata": manifest["metadata"] | stamps}
