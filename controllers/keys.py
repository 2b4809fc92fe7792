"""The keys of an installation, drawn once and kept in a Secret of its own namespace that its replicas share.

The token of a job is derived from its uid: one that is made again is the same, and that of another job is not
its own. Jobs that have a Secret already keep what is in it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from elasticjob.api.v1alpha1.common import MANAGED_BY, OPERATOR
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import AlreadyExists, ApiError, Unreachable
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.owner import Owner, owned_by
from elasticjob.kube.objects.views import SECRET

log = logging.getLogger(__name__)

JOBS: Final = "jobs"
DI_SERVER: Final = "key"
"""Members of the Secret: of the tokens of ElasticJobs, and of those of DIJobs, which di-server reads."""
PURPOSE: Final = b"master of "
EVERY, SOON = 60.0, 2.0
"""Seconds between two looks, and after one that failed."""


@dataclass
class Keys:
    """See the module. `draw` returns random text; `namespace` "" is that of the client."""

    client: Client
    name: str
    namespace: str
    owner: Owner | None
    draw: Callable[[], str]
    _held: dict[str, bytes] = field(default_factory=dict, repr=False)
    _looked: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_started(self) -> None:
        """Return once the keys are known, or may not be."""
        await self._looked.wait()

    async def run(self) -> None:
        """Have the Secret, again if it is deleted."""
        while True:
            try:
                await self.look()
            except ApiError as error:  # such as rights that are older than the program
                if not self._looked.is_set():
                    why = "tokens are random, and DIJobs that need one wait: apply the roles of this version"
                    log.warning(why, extra={"error": str(error)})
                self._looked.set()
            except Unreachable as error:
                log.warning("the keys cannot be read yet", extra={"error": str(error)})
                await self.client.clock.sleep(SOON)
                continue
            await self.client.clock.sleep(EVERY)

    async def look(self) -> None:
        """Read the Secret, or make it: with what is known already, so that no token changes."""
        found = await self.client.find(SECRET, self.name, self._place)
        if found is None:
            new = self._held or {each: self.draw().encode() for each in (JOBS, DI_SERVER)}
            try:
                await self.client.create(SECRET, await self._manifest(new))
            except AlreadyExists:  # another replica was first
                return await self.look()
            self._held = new
        else:
            self._held = found.data
        self._looked.set()
        return None

    @property
    def _place(self) -> str:
        return self.namespace or self.client.config.namespace

    async def _manifest(self, data: dict[str, bytes]) -> Manifest:
        about = {
            "name": self.name,
            "namespace": self._place,
            "labels": {MANAGED_BY: OPERATOR},
            **await owned_by(self.owner, self.client),
        }
        written = {name: b64encode(value).decode() for name, value in data.items()}
        return {"metadata": about, "type": "Opaque", "immutable": True, "data": written}

    def token(self, uid: str) -> str:
        """Return the token of the ElasticJob with this uid; a random one where the keys may not be read."""
        key = self._held.get(JOBS)
        return hmac.new(key, PURPOSE + uid.encode(), hashlib.sha256).hexdigest() if key else self.draw()

    def of_di_server(self) -> bytes:
        """Return the key of di-server. Raises Unreachable while it is not known."""
        if key := self._held.get(DI_SERVER):
            return key
        raise Unreachable(f"Secret {self.name} has no {DI_SERVER}, by which di-server knows its callers")
