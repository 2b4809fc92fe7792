"""What every cluster has from the start: the namespaces, and the service of the API server itself is left out."""

from __future__ import annotations

from uuid import uuid4

from elasticjob.devcluster.server.objects import NAMESPACES, Objects

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def bootstrap(objects: Objects) -> None:
    """Put the first namespaces into an empty store."""
    for name in _NAMESPACES:
        if objects.store.get(NAMESPACES, "", name) is None:
            objects.store.put(
                NAMESPACES,
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {
                        "name": name,
                        "uid": str(uuid4()),
                        "creationTimestamp": objects.stamp(),
                        "labels": {"kubernetes.io/metadata.name": name},
                    },
                    "spec": {"finalizers": ["kubernetes"]},
                    "status": {"phase": "Active"},
                },
            )
