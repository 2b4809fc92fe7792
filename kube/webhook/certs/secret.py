"""The webhooks' certificate authority, in a Secret that replicas share, and the certificate it signs.

The Secret holds the newest authority (tls.crt, tls.key) and the one before it (previous.crt, previous.key).
All else follows from the Secret and the time, so replicas agree without knowing of each other:
- An absent Secret is created; a replica that loses the race reads the winner's.
- A new authority is made when two thirds of the newest one's life are over, or when the Secret was deleted.
- Every caBundle holds both. The previous one goes on signing for `settle`, until API servers heed the bundle;
  it is trusted until all that it signed has ended.
Without a Secret, each process has an authority of its own.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import Clock
from elasticjob.kube.errors import ConfigError, Conflict
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.owner import Owner, owned_by
from elasticjob.kube.objects.views import SECRET
from elasticjob.kube.webhook.certs.certificates import (
    Authority,
    Certificate,
    Leaf,
    Policy,
    issue,
    new_authority,
    read_authority,
)
from elasticjob.kube.webhook.registration import Notices

ATTEMPTS = 5
"""How often to start over because another replica wrote in between."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Authorities:
    """The authorities that replicas share."""

    newest: Authority
    previous: Authority | None = None

    def bundle(self, now: datetime, policy: Policy) -> tuple[Certificate, ...]:
        """The certificates that belong into every caBundle."""
        former = self.previous if self.is_rotating(now, policy) else None
        return tuple(each.certificate for each in (self.newest, former) if each)

    def signer(self, now: datetime, policy: Policy) -> Authority:
        """The authority to sign with."""
        waits = now < self.newest.begins + policy.backdating + policy.settle
        return self.previous if self.previous and waits and now < self.previous.expires else self.newest

    def is_rotating(self, now: datetime, policy: Policy) -> bool:
        """Whether certificates of the previous authority may still be served."""
        former = self.previous
        return former is not None and now < min(former.expires, self.newest.begins + policy.retention)


class CaSecret:
    """Keeps a certificate for `hosts` served that every caBundle verifies; `serve` gets each new one.

    `name` is that of new authorities. Without `secret`, the authority is this process's own.
    """

    def __init__(
        self,
        client: Client,
        secret: Key | None,
        notices: Notices,
        serve: Callable[[Leaf], None],
        *,
        name: str,
        hosts: Sequence[str],
        clock: Clock,
        policy: Policy,
        owner: Owner | None = None,
    ) -> None:
        self.leaf: Leaf | None = None
        self._client = client
        self._key = secret
        self._notices = notices
        self._serve = serve
        self._name = name
        self._hosts = hosts
        self._clock = clock
        self._policy = policy
        self._owner = owner
        self._held: Authorities | None = None

    async def look(self) -> str | None:
        """Bring Secret, caBundles and certificate up to date. Raises KubeError; what was reached stays."""
        for _ in range(ATTEMPTS - 1):
            with suppress(Conflict):
                return await self._look()
        return await self._look()

    async def _look(self) -> str | None:
        now = self._clock.now()
        before = await self._notices.read()  # before the Secret: a bundle newer than ours makes a Conflict
        held = self._held = await self._share(now)
        if self.leaf is None:  # served before the API server is told, or its first calls would fail
            self._sign(held, now)
        await self._notices.publish(b"".join(held.bundle(now, self._policy)), before)
        if self.leaf and (
            self.leaf.is_due(now) or self.leaf.issuer != held.signer(now, self._policy).certificate
        ):
            self._sign(held, now)
        return None

    async def _share(self, now: datetime) -> Authorities:
        """The authorities in the Secret, created or rotated if needed. Raises Conflict after a lost race."""
        try:
            kept, version = await self._read()
        except ValueError as error:
            why = (
                f"the Secret {self._key} holds no certificate authority: {error}; delete it to have one made"
            )
            if self._held is None:
                raise ConfigError(why) from error
            log.warning("the webhooks' authority is served from memory", extra={"why": why})
            return self._held
        known = kept or self._held
        if kept and not kept.newest.is_due(now):
            return kept
        if known and known.is_rotating(now, self._policy):
            made = known  # a third would end the trust in certificates that are still served
        else:
            made = Authorities(self._new_authority(now), known.newest if known else None)
        if made != kept:
            await self._write(made, version)
            log.info("the webhooks' authority is stored", extra={"until": str(made.newest.expires)})
        return made

    async def _read(self) -> tuple[Authorities | None, str]:
        """The authorities in the Secret, and its resourceVersion. Raises ValueError for unusable data."""
        if self._key is None:
            return self._held, ""
        secret = await self._client.find(SECRET, self._key.name, self._key.namespace)
        return (read_secret(secret.data), secret.metadata.resource_version) if secret else (None, "")

    async def _write(self, held: Authorities, version: str) -> None:
        if self._key is None:
            return
        namespace, name = self._key
        metadata: Manifest = {"name": name, "namespace": namespace}
        data = secret_data(held)
        if version:
            metadata["resourceVersion"] = version
            await self._client.merge_patch(SECRET, name, {"metadata": metadata, "data": data}, namespace)
        else:
            metadata |= await owned_by(self._owner, self._client)
            await self._client.create(SECRET, {"metadata": metadata, "type": "Opaque", "data": data})

    def _sign(self, held: Authorities, now: datetime) -> None:
        policy = self._policy
        signer = held.signer(now, self._policy)
        self.leaf = issue(signer, self._hosts, now, policy.leaf_lifetime, skew=policy.skew)
        self._serve(self.leaf)
        log.info("a serving certificate is issued", extra={"until": str(self.leaf.expires)})

    def _new_authority(self, now: datetime) -> Authority:
        return new_authority(self._name, now, self._policy.authority_lifetime, skew=self._policy.skew)


def read_secret(data: Mapping[str, bytes]) -> Authorities | None:
    """The authorities in a Secret's data, None in an empty one. Raises ValueError for unusable ones."""
    if not (data.get("tls.crt") or data.get("tls.key")):
        return None
    newest = read_authority(data.get("tls.crt", b""), data.get("tls.key", b""))
    former = data.get("previous.crt"), data.get("previous.key")
    return Authorities(newest, read_authority(former[0], former[1]) if former[0] and former[1] else None)


def secret_data(held: Authorities) -> dict[str, str]:
    """The data of a Secret that holds these."""
    pairs = {"tls": held.newest} | ({"previous": held.previous} if held.previous else {})
    data = {f"{name}.crt": pair.certificate for name, pair in pairs.items()}
    data |= {f"{name}.key": pair.key for name, pair in pairs.items()}
    return {name: base64.b64encode(value).decode() for name, value in data.items()}
