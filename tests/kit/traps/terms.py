"""The webhook registration used by these tests."""

from __future__ import annotations

from typing import Any

from elasticjob.kube.webhook.server import Terms

CHOSEN = "!has(request.name) || request.name != 'kube-root-ca.crt'"


def within(namespace: str, timeout: int = 30, **terms: Any) -> Terms:
    """Terms for ConfigMaps of one namespace; the control plane's own are left alone.

    `timeout` is the longest there is: a server that waits for a core is not slow.
    """
    return Terms(
        namespaces={"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        timeout=timeout,
        conditions={"not-the-clusters-own": CHOSEN},
        **terms,
    )
