"""Reading a kubeconfig, with tokens, certificates and exec plugins, by kubernetes_asyncio."""

from __future__ import annotations

import asyncio
import logging
import ssl
from asyncio.subprocess import Process
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kubernetes_asyncio.client.configuration import Configuration
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.kube_config import KubeConfigLoader, load_kube_config
from yaml import YAMLError

from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.config import REREAD_AFTER, Config, LoopLock
from elasticjob.kube.errors import ConfigError

EXPIRES_SOON = timedelta(seconds=60)
TRY_AGAIN = 10.0
"""Seconds that a reading in vain is not repeated: the plugin fails, or the user has lost all rights."""
PLUGIN_TIMEOUT = 120.0
"""Seconds that an exec plugin has: some ask a person."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loaded:
    """One reading of a kubeconfig."""

    settings: Configuration
    server: str
    namespace: str
    expires: datetime | None

    @property
    def header(self) -> str | None:
        token: str | None = self.settings.api_key.get("BearerToken")
        return token


async def load(path: str, context: str | None = None, clock: Clock | None = None) -> Config:
    """The cluster and user of a kubeconfig's context. Raises ConfigError."""
    loaded = await asyncio.to_thread(_read, path, context)
    tls = _tls(loaded.settings)
    return Config(
        server=loaded.server,
        ssl=tls,
        credentials=KubeconfigUser(path, context, loaded, tls, clock or SystemClock()),
        namespace=loaded.namespace,
        proxy=loaded.settings.proxy,
        tls_server_name=getattr(loaded.settings, "tls_server_name", None),
    )


class KubeconfigUser:
    """The user of a context.

    Read again after a refusal, once a minute, and before an exec plugin's answer expires. While that fails,
    what was read last serves, unless it is refused or has expired; and what was read in vain is not read
    again within TRY_AGAIN, however many requests are refused. The reading, plugins included, happens in a
    thread, and goes on when the request that asked for it is given up: the next one needs it too. New client
    certificates go into the live TLS context: they serve new connections.
    """

    def __init__(
        self, path: str, context: str | None, loaded: Loaded, tls: ssl.SSLContext | None, clock: Clock
    ) -> None:
        self._path = path
        self._context = context
        self._loaded = loaded
        self._tls = tls
        self._clock = clock
        self._read_at = clock.monotonic()
        self._in_vain_until = self._read_at
        self._why_in_vain = ""
        self._lock = LoopLock()

    async def header(self, refused: str | None = None) -> str | None:
        """The header; None for client certificates. Raises ConfigError where it cannot be read again."""
        if not self._is_fresh(refused):
            await asyncio.shield(self._refresh(refused))
        return self._loaded.header

    async def _refresh(self, refused: str | None) -> None:
        async with self._lock.here():
            if not self._is_fresh(refused) and self._clock.monotonic() >= self._in_vain_until:
                await self._renew(refused)
            elif self._why_in_vain and self._has_ended(refused):
                raise ConfigError(self._why_in_vain)

    async def _renew(self, refused: str | None) -> None:
        self._why_in_vain = ""
        try:
            self._loaded = await asyncio.to_thread(_read, self._path, self._context)
            if self._tls:
                _load_client_certificate(self._tls, self._loaded.settings)
        except ConfigError as error:
            self._why_in_vain = str(error)
            self._in_vain_until = self._clock.monotonic() + TRY_AGAIN
            if self._has_ended(refused):
                raise
            log.warning("the credentials are not renewed", extra={"error": str(error)})
        self._read_at = self._clock.monotonic()
        if refused is not None and refused == self._loaded.header:
            self._in_vain_until = self._read_at + TRY_AGAIN

    def _has_ended(self, refused: str | None) -> bool:
        """Whether what was read last is of no use any more."""
        expires = self._loaded.expires
        is_refused = refused is not None and refused == self._loaded.header
        return is_refused or (expires is not None and expires <= self._clock.now())

    def _is_fresh(self, refused: str | None) -> bool:
        if refused is not None and refused == self._loaded.header:
            return False
        if self._loaded.expires is not None:
            return self._clock.now() < self._loaded.expires - EXPIRES_SOON
        return self._loaded.header is None or self._clock.monotonic() - self._read_at < REREAD_AFTER


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that knows its processes: a plugin that is given up must not stay behind."""

    def __init__(self) -> None:
        super().__init__()
        self._children: list[Process] = []

    async def subprocess_exec(self, *args: Any, **options: Any) -> Any:
        transport, protocol = await super().subprocess_exec(*args, **options)
        self._children.append(Process(transport, protocol, self))
        return transport, protocol

    async def end_children(self) -> None:
        """Kill what still runs."""
        for child in self._children:
            if child.returncode is None:
                child.kill()
            await child.wait()


def _read(path: str, context: str | None) -> Loaded:
    loop = _Loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            return runner.run(_load_in_time(path, context))
        finally:
            runner.run(loop.end_children())


async def _load_in_time(path: str, context: str | None) -> Loaded:
    """A plugin that hangs would hold up every request of the process."""
    try:
        return await asyncio.wait_for(_load(path, context), PLUGIN_TIMEOUT)
    except TimeoutError as error:
        reason = f"its exec plugin gave no credentials within {PLUGIN_TIMEOUT:g} s; run it by hand"
        raise ConfigError(f"the kubeconfig {path} cannot be used: {reason}") from error


async def _load(path: str, context: str | None) -> Loaded:
    settings = Configuration()
    settings.host = ""
    try:
        loader = await load_kube_config(path, context, settings, persist_config=False)
    except (ConfigException, YAMLError, OSError, ValueError, AssertionError) as error:
        raise ConfigError(
            f"the kubeconfig {path} cannot be used: {str(error) or 'incomplete context'}"
        ) from error
    if not settings.host:
        raise ConfigError(f"the kubeconfig {path} names no server for its context")
    return Loaded(settings, settings.host, _namespace(loader, context), _expiry(loader))


def _namespace(loader: KubeConfigLoader, context: str | None) -> str:
    chosen = (
        loader.current_context
        if context is None
        else next((found for found in loader.list_contexts() if found["name"] == context), None)
    )
    return str(((chosen or {}).get("context") or {}).get("namespace") or "default")


def _expiry(loader: KubeConfigLoader) -> datetime | None:
    expires: datetime | None = getattr(loader, "exec_plugin_expiry", None)
    return expires.replace(tzinfo=UTC) if expires and expires.tzinfo is None else expires


def _tls(settings: Configuration) -> ssl.SSLContext | None:
    if not (settings.host or "").startswith("https"):
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificate authority {settings.ssl_ca_cert} cannot be read: {error}"
        ) from error
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_client_certificate(context, settings)
    return context


def _load_client_certificate(context: ssl.SSLContext, settings: Configuration) -> None:
    if not settings.cert_file:
        return
    try:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the client certificate {settings.cert_file} cannot be read: {error}") from error
