"""Reading a kubeconfig, with tokens, certificates and exec plugins, by kubernetes_asyncio.

Keys are taken out before its loader sees them: it would leave each on the disk, and its file open.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import ssl
from asyncio.subprocess import Process
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import aiohttp
from kubernetes_asyncio.client.configuration import Configuration
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.exec_provider import ExecProvider
from kubernetes_asyncio.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger
from yaml import YAMLError

from elasticjob.kube.client.credentials import REREAD_AFTER, Config, LoopLock
from elasticjob.kube.client.keyfile import as_file
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.errors import ConfigError

NEVER = datetime.max.replace(tzinfo=UTC)
"""The end of what serves until it is refused."""
EXPIRES_SOON = timedelta(seconds=60)
TRY_AGAIN = 10.0
"""Seconds that a reading in vain is not repeated: the plugin fails, or the user has lost all rights."""
PLUGIN_TIMEOUT = 120.0
"""Seconds that an exec plugin has: some ask a person."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pem:
    """Certificates or a key."""

    text: bytes = field(repr=False)
    where: str
    """The file that holds them, or the field of the kubeconfig or of a plugin's answer."""


@dataclass(frozen=True)
class Trust:
    """The TLS side of a connection: the trusted authority, and our client certificate."""

    authority: Pem | None
    certificate: Pem | None
    key: Pem | None
    verifies: bool

    def context(self) -> ssl.SSLContext:
        """For TLS. Raises ConfigError."""
        context = ssl.create_default_context() if self.authority is None else _trusting(self.authority)
        if not self.verifies:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            _present(context, self.certificate, self.key)
        return context


@dataclass(frozen=True)
class Reading:
    """One reading of a kubeconfig."""

    server: str
    namespace: str
    header: str | None = field(repr=False)
    expires: datetime | None
    """When the answer of an exec plugin ends; one that does not say so serves until it is refused."""
    trust: Trust
    tls: ssl.SSLContext | None
    proxy: str | None = field(repr=False)
    tls_server_name: str | None


async def load(path: str, context: str | None = None, clock: Clock | None = None) -> Config:
    """The cluster and user of a kubeconfig's context. Raises ConfigError."""
    loaded = await asyncio.to_thread(_read, path, context)
    user = KubeconfigUser(path, context, loaded, clock or SystemClock())
    return Config(
        server=loaded.server,
        ssl=loaded.tls,
        credentials=user,
        namespace=loaded.namespace,
        proxy=loaded.proxy,
        tls_server_name=loaded.tls_server_name,
        renewed=lambda: user.tls,
    )


class KubeconfigUser:
    """The user of a context.

    Read again after a refusal, once a minute, and before an exec plugin's answer expires. While that fails,
    what was read last serves, unless it is refused or has expired; and what was read in vain is not read
    again within TRY_AGAIN, however many requests are refused. The reading, plugins included, happens in a
    thread, and goes on when the request that asked for it is given up: the next one needs it too. A new
    certificate comes with a new TLS context, for connections that are made from then on.
    """

    def __init__(self, path: str, context: str | None, loaded: Reading, clock: Clock) -> None:
        self._path = path
        self._context = context
        self._loaded = loaded
        self._clock = clock
        self._read_at = clock.monotonic()
        self._in_vain_until = self._read_at
        self._why_in_vain = ""
        self._lock = LoopLock()

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context with the present certificate; another one than before where that is another."""
        return self._loaded.tls

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
            loaded = await asyncio.to_thread(_read, self._path, self._context)
            same = loaded.trust == self._loaded.trust  # then the TLS context stays, and connections with it
            self._loaded = replace(loaded, tls=self._loaded.tls) if same else loaded
        except ConfigError as error:
            self._why_in_vain = str(error)
            self._in_vain_until = self._clock.monotonic() + TRY_AGAIN
            if self._has_ended(refused):
                raise
            log.warning("the credentials are not renewed", extra={"error": str(error)})
        self._read_at = self._clock.monotonic()
        if not self._is_fresh(refused):
            self._in_vain_until = self._read_at + TRY_AGAIN

    def _has_ended(self, refused: str | None) -> bool:
        """Whether what was read last is of no use any more."""
        expires = self._loaded.expires
        return self._is_refused(refused) or (expires is not None and expires <= self._clock.now())

    def _is_refused(self, refused: str | None) -> bool:
        return refused is not None and refused == (self._loaded.header or "")

    def _is_fresh(self, refused: str | None) -> bool:
        if self._is_refused(refused):
            return False
        if self._loaded.expires is not None:
            return self._clock.now() < self._loaded.expires - EXPIRES_SOON
        return self._clock.monotonic() - self._read_at < REREAD_AFTER


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


def _read(path: str, context: str | None) -> Reading:
    loop = _Loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            return runner.run(_load_in_time(path, context))
        finally:
            runner.run(loop.end_children())


async def _load_in_time(path: str, context: str | None) -> Reading:
    """A plugin that hangs would hold up every request of the process."""
    try:
        return await asyncio.wait_for(_load(path, context), PLUGIN_TIMEOUT)
    except TimeoutError as error:
        raise _unusable(
            path, f"its exec plugin gave no credentials within {PLUGIN_TIMEOUT:g} s; run it by hand"
        ) from error


async def _load(path: str, context: str | None) -> Reading:
    try:
        return await _read_all(path, context)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # the rest of its words may quote a password
        place = f": see line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise _unusable(path, f"it is no YAML{place}") from None
    except (ConfigException, aiohttp.ClientError, OSError, ValueError, AssertionError) as error:
        raise _unusable(path, str(error) or "incomplete context") from error
    except (LookupError, TypeError, AttributeError) as error:
        raise _unusable(path, f"it is not of the form of a kubeconfig ({error!r})") from error


def _unusable(path: str, why: str) -> ConfigError:
    return ConfigError(f"the kubeconfig {path} cannot be used: {why}")


async def _read_all(path: str, context: str | None) -> Reading:
    merged = _merge(path)
    loader = KubeConfigLoader(merged, context, config_base_path=None)
    chosen = (loader.current_context or {})["context"]
    cluster, user = _entry_of(merged, "cluster", chosen), _entry_of(merged, "user", chosen)
    authority = _take(cluster, "certificate-authority")
    certificate, key = _take(user, "client-certificate"), _take(user, "client-key")
    vars(loader).update(cert_file=None, key_file=None)  # or it looks for them, even where there is no user
    given = await _run_plugin(user) if user is not None and "exec" in user else None
    if given and given.certificate:
        certificate, key = given.certificate, given.key
    settings = Configuration()
    settings.host = ""
    await loader.load_and_set(settings)
    if not settings.host:
        raise ConfigException("it names no server for its context")
    token = (settings.api_key.get("BearerToken") or "").strip()  # a file's ends with the end of a line
    trust = Trust(authority, certificate, key, settings.verify_ssl)
    return Reading(
        server=settings.host,
        namespace=str(chosen.get("namespace") or "default"),
        header=token or None,
        expires=given.expires if given else None,
        trust=trust,
        tls=trust.context() if settings.host.startswith("https") else None,
        proxy=settings.proxy,
        tls_server_name=settings.tls_server_name,
    )


def _merge(path: str) -> ConfigNode:
    """The files of `path`. A node is called by all that it holds, keys too, and errors name nodes."""
    try:
        merged = KubeConfigMerger(path).config
    except ConfigException:
        raise ConfigException("one of its clusters, contexts or users has no name") from None
    if merged is None:
        raise ConfigException("there is no such file")
    for kind in ("clusters", "contexts", "users"):
        for node in merged.value[kind]:
            node.name = f"{kind} of {node.path}"
    return merged


def _entry_of(config: ConfigNode, kind: str, context: Mapping[str, Any]) -> ConfigNode | None:
    """The cluster or user that a context names; its dictionary is the one that the loader will read."""
    name, known = context.get(kind), config[f"{kind}s"]
    return cast(ConfigNode, known.get_with_name(name))[kind] if name else None


def _take(node: ConfigNode | None, field: str) -> Pem | None:
    """The value of a `-data` field, else of the file its sibling names, as in kubectl; both are removed."""
    if node is None:
        return None
    text, file = node.value.pop(f"{field}-data", None), node.value.pop(field, None)
    if text:
        try:
            return Pem(base64.b64decode("".join(text.split()), validate=True), f"in {field}-data")
        except ValueError as error:
            raise ConfigException(f"{field}-data is not base64: {error}") from error
    return Pem(_beside(node, file).read_bytes(), str(_beside(node, file))) if file else None


def _beside(node: ConfigNode, file: str) -> Path:
    """A file that a kubeconfig names: relative ones lie beside it."""
    return Path(os.path.abspath(node.path or "")).parent / file


@dataclass(frozen=True)
class _PluginResult:
    """The result of an exec plugin, besides a token."""

    certificate: Pem | None
    key: Pem | None
    expires: datetime


async def _run_plugin(user: ConfigNode) -> _PluginResult:
    """Run the user's exec plugin; its token replaces the plugin in the user's entry."""
    plugin = ConfigNode("exec", user.value.pop("exec"), user.path)
    if os.sep in (command := str(plugin["command"])):  # else it is on the PATH, as for kubectl
        plugin.value["command"] = str(_beside(user, command))
    try:
        status = await ExecProvider(plugin).run()
        token, until = status.get("token"), status.get("expirationTimestamp")
        certificate, key = _message(status, "clientCertificateData"), _message(status, "clientKeyData")
        expires = datetime.fromisoformat(until) if until else NEVER
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigException(f"its exec plugin's answer is none: {type(error).__name__}") from error
    if not (token or (certificate and key)):
        raise ConfigException("its exec plugin gave no token, and no client certificate with its key")
    if token:
        user.value["token"] = token
    expires = expires if expires.tzinfo else expires.replace(tzinfo=UTC)
    return _PluginResult(certificate, key, expires)


def _message(status: Mapping[str, Any], field: str) -> Pem | None:
    text = status.get(field)
    return Pem(text.encode(), f"in {field} of the exec plugin's answer") if text else None


def _trusting(authority: Pem) -> ssl.SSLContext:
    try:
        with as_file(authority.text) as path:
            return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise ConfigError(f"the certificate authority {authority.where} cannot be read: {error}") from error


def _present(context: ssl.SSLContext, certificate: Pem, key: Pem | None) -> None:
    try:
        with as_file(certificate.text) as chain, as_file((key or certificate).text) as private:
            context.load_cert_chain(chain, private, password=_no_password)
    except (OSError, ValueError) as error:
        where = certificate.where + (f" with {key.where}" if key else "")
        raise ConfigError(_unreadable(where, error)) from error


def _unreadable(where: str, error: Exception) -> str:
    return f"the client certificate {where} cannot be read: {error}"


def _no_password() -> str:
    """The password for OpenSSL, so that it does not prompt at the terminal."""
    raise ValueError("the key is encrypted: store it without a password")
