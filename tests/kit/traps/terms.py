"""The webhook registration used by these tests."""

from __future__ import annotations

from typing import Any

from elasticjob.kube.webhook.server import Terms

CHOSEN = "!has(request.name) || request.name != 'kube-root-ca.crt'"


def within(namespace: str, **terms: Any) -> Terms:
    """Terms for ConfigMaps of one namespace; the control plane's own are left alone."""
    return Terms(
        namespaces={"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        conditions={"not-the-clusters-own": CHOSEN},
        **terms,
    )
