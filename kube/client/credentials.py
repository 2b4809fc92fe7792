"""A cluster as one user sees it, and where the Authorization header of its requests comes from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Protocol
from weakref import WeakKeyDictionary

from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.errors import ConfigError

log = logging.getLogger(__name__)

REREAD_AFTER = 60.0
"""Seconds after which a token file is read again: the kubelet rotates them."""


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
