"""The API server's address and our credentials: from a kubeconfig, or from the pod's service account."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Protocol
from weakref import WeakKeyDictionary

from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOME_KUBECONFIG = Path("~/.kube/config")
REREAD_AFTER = 60.0
"""Seconds after which a token file is read again: the kubelet rotates them."""

log = logging.getLogger(__name__)


class Credentials(Protocol):
    """The source of the Authorization header; may be asked from the event loops of several threads."""

    async def header(self, refused: str | None = None) -> str | None:
        """The header to send now, if any. `refused` is one that was just answered with 401: get a newer one.
        "" where none was sent, because a client certificate speaks for us."""


@dataclass(frozen=True)
class Static:
    """A header that never changes; None for client certificates or no authentication."""

    value: str | None = None

    async def header(self, refused: str | None = None) -> str | None:
        """The header; a refusal changes nothing."""
        return self.value


class LoopLock:
    """A lock for the tasks of each event loop: work may be done twice by two of them, and neither waits for
    the other (the election must not wait for a main loop that is blocked)."""

    def __init__(self) -> None:
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def here(self) -> asyncio.Lock:
        """The lock of the running loop."""
        return self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())


class TokenFile:
    """A bearer token in a file that others rotate; read in a thread, at most once a minute.

    While the file cannot be read, the token that was read last serves, unless it is refused.
    """

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._value = ""
        self._read_at = -REREAD_AFTER
        self._lock = LoopLock()

    async def header(self, refused: str | None = None) -> str | None:
        """The header. Raises ConfigError where no token can be read, or the one that was read is refused."""
        async with self._lock.here():
            old = self._clock.monotonic() - self._read_at >= REREAD_AFTER
            if not self._value or old or refused == self._value:
                await self._renew(refused)
            return self._value

    async def _renew(self, refused: str | None) -> None:
        try:
            self._value = await asyncio.to_thread(self._read)
        except ConfigError as error:
            if not self._value or refused == self._value:
                raise
            log.warning("the token is not renewed", extra={"error": str(error)})
        self._read_at = self._clock.monotonic()

    def _read(self) -> str:
        try:
            token = self._path.read_text().strip()
        except OSError as error:
            raise ConfigError(f"cannot read the token file {self._path}: {error}") from error
        if not token:
            raise ConfigError(f"the token file {self._path} is empty")
        return f"Bearer {token}"


@dataclass(frozen=True)
class Config:
    """One cluster, seen by one user."""

    server: str
    ssl: SSLContext | None = None
    credentials: Credentials = field(default_factory=Static)
    namespace: str = "default"
    proxy: str | None = field(default=None, repr=False)
    tls_server_name: str | None = None
    renewed: Callable[[], SSLContext | None] | None = None
    """Gives what is to be used instead of `ssl`, where others renew the client certificate."""

    def tls(self) -> SSLContext | None:
        """For new connections. It is another one after a renewal: contexts in use are never changed."""
        return self.renewed() if self.renewed else self.ssl


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
