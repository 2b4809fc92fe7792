"""A pod's credentials for the API server: its service account's token, and a kubeconfig that carries it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from elasticjob.devcluster.node.container import files
from elasticjob.devcluster.node.container.environment import Unready
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import NotFound
from elasticjob.kube.objects.views import SERVICE_ACCOUNT, Pod

LIFETIME_SECONDS = 365 * 24 * 3600
"""Tokens are not renewed: one outlives any cluster on a laptop."""


@dataclass(frozen=True)
class Server:
    """Where pods find the API server, and the PEM of the authority that signed its certificate."""

    url: str
    ca: str

    def env(self) -> Mapping[str, str]:
        """In the format of a real kubelet."""
        parts = urlsplit(self.url)
        return {
            "KUBERNETES_SERVICE_HOST": parts.hostname or "",
            "KUBERNETES_SERVICE_PORT": str(parts.port or 443),
        }


def account(pod: Pod) -> str:
    return pod.spec.service_account_name or "default"


async def request_token(client: Client, pod: Pod) -> str:
    """A token of the pod's service account, bound to the pod. Raises Unready when there is no such
    account.
    """
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
    spec = {"expirationSeconds": LIFETIME_SECONDS, "boundObjectRef": bound}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    name, namespace = account(pod), pod.metadata.namespace
    try:
        answer = await client.post(SERVICE_ACCOUNT, name, "token", request, namespace)
    except NotFound as error:
        raise Unready(
            f'serviceaccount "{name}" in namespace "{namespace}" not found', "ContainerCreating"
        ) from error
    token: str = answer["status"]["token"]
    return token


def write(folder: Path, server: Server, namespace: str, token: str) -> Path:
    """Write the files of /var/run/secrets/kubernetes.io/serviceaccount and a kubeconfig; its path.
    Blocking.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, text in (("token", token), ("ca.crt", server.ca), ("namespace", namespace)):
        write_private(folder / name, text)
    return write_private(folder / "kubeconfig", kubeconfig(server, token, namespace))


def write_private(path: Path, text: str) -> Path:
    """A file that only this user may read; it appears whole or not at all."""
    return files.replace(path, text.encode(), 0o600)


def kubeconfig(server: Server, token: str, namespace: str = "default", name: str = "devcluster") -> str:
    """A kubeconfig as JSON, which is YAML too: written and read faster."""
    ca = base64.b64encode(server.ca.encode()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server.url, "certificate-authority-data": ca}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "current-context": name,
    }
    return msgspec.json.format(msgspec.json.encode(config)).decode() + "\n"
