"""The API server's address and our credentials: from a kubeconfig, or from the pod's service account."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from elasticjob.kube.client.credentials import Config, TokenFile
from elasticjob.kube.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOME_KUBECONFIG = Path("~/.kube/config")


async def load(
    path: Path | str | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Config:
    """The cluster of `path`, else of $KUBECONFIG, else of ~/.kube/config, else the one this pod runs in.

    Raises ConfigError, naming what was looked for, when there is none.
    """
    if found := path or environ.get("KUBECONFIG") or _home_kubeconfig(environ):
        # kubernetes_asyncio takes 0.3 s and 40 MB to import: only programs that read a kubeconfig pay for it
        from elasticjob.kube.client import kubeconfig

        return await kubeconfig.load(str(found), context)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return await asyncio.to_thread(in_cluster, environ, service_account)
    raise ConfigError(
        "no cluster: set KUBECONFIG, write ~/.kube/config, or run in a pod with a service account"
    )


def in_cluster(environ: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> Config:
    """The cluster that this pod runs in, as its service account. Raises ConfigError."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        context = ssl.create_default_context(cafile=str(service_account / "ca.crt"))
        namespace = (service_account / "namespace").read_text().strip()
    except OSError as error:
        raise ConfigError(f"the service account in {service_account} cannot be read: {error}") from error
    return Config(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ssl=context,
        credentials=TokenFile(service_account / "token"),
        namespace=namespace or "default",
    )


def _home_kubeconfig(environ: Mapping[str, str]) -> Path | None:
    home = environ.get("HOME")
    path = Path(home, *HOME_KUBECONFIG.parts[1:]) if home else HOME_KUBECONFIG.expanduser()
    return path if path.is_file() else None
