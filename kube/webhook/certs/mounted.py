"""Serving a certificate from a mounted folder, as cert-manager writes it: tls.crt and tls.key.

However the files are replaced (in place, by rename, by a volume's atomic symlink), a new pair is served
within `poll`; half of one never is. Whom the API server trusts is left to cert-manager's injector.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from elasticjob.kube.clock import Clock
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.webhook.certs.certificates import Leaf, read_leaf, verifies
from elasticjob.kube.webhook.registration import Notices, Registered

log = logging.getLogger(__name__)


class MountedPair:
    """The pair in `folder`, read again for ever by `run`; `serve` shows a new one from its return on.

    `host` is the name by which the API server calls us.
    """

    def __init__(
        self,
        folder: Path,
        notices: Notices,
        serve: Callable[[Leaf], None],
        *,
        host: str,
        clock: Clock,
        poll: timedelta,
        metrics: Metrics | None = None,
    ) -> None:
        self.leaf: Leaf | None = None
        self._folder = folder
        self._notices = notices
        self._serve = serve
        self._host = host
        self._clock = clock
        self._poll = poll
        self._metrics = metrics
        self._error = ""

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow the files until cancelled; `changed` is called after another pair is served."""
        while True:
            if await self._read():
                changed()
            await self._clock.sleep(self._poll.total_seconds())

    async def look(self) -> str | None:
        """Have the API server know where we are; why calls cannot reach us, or None where they can."""
        published = await self._notices.publish(None, await self._notices.read())
        if self.leaf is None:
            return f"there is no certificate to serve: {self._error or 'not read yet'}"
        return await asyncio.to_thread(_mistrust, published, self.leaf, self._host)

    async def _read(self) -> bool:
        """Whether another pair is served now."""
        if self._metrics:
            self._metrics.certificate_reads.inc()
        try:
            found = await asyncio.to_thread(_pair, self._folder, self.leaf)
        except (OSError, ValueError) as error:
            self._failed(f"{self._folder}: {error}")
            return False
        self._error = ""
        if found is None:
            return False
        self._serve(found)
        self.leaf = found
        log.info(
            "a serving certificate was read", extra={"folder": str(self._folder), "until": str(found.expires)}
        )
        return True

    def _failed(self, why: str) -> None:
        if self._metrics:
            self._metrics.certificate_errors.inc()
        if why != self._error:
            log.warning("the serving certificate cannot be read, the last one stays", extra={"error": why})
        self._error = why


def _pair(folder: Path, known: Leaf | None) -> Leaf | None:
    """The pair in `folder`; None where it is the known one. Raises OSError, ValueError for half of one."""
    chain, key = (folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes()
    if known and (chain, key) == (known.chain, known.key):
        return None
    return read_leaf(chain, key)


def _mistrust(published: Registered, leaf: Leaf, host: str) -> str | None:
    for bundle in set(published.bundles):
        if why := verifies(bundle, leaf, host):
            return f"the API server does not trust our certificate as {host}: {why}; is the CA injected?"
    return None
