"""Where the webhooks' authority is kept: in a Secret that replicas share, or in this process alone.

data         tls.crt tls.key (current)   next.crt next.key   previous.crt (a bundle)
annotations  …/forget-after (when the previous ones are trusted no longer)   …/rotate (ask for a new one)
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime

from elasticjob.kube.authorities import Authorities, Authority, Certificate, Kept, Plan
from elasticjob.kube.certificates import certificates_in, read_authority
from elasticjob.kube.client import Client
from elasticjob.kube.kinds import Key, Manifest, without_nulls
from elasticjob.kube.objects import SECRET, Secret

DOMAIN = "certificates.elastic.iml.github.io"
ROTATE = f"{DOMAIN}/rotate"
"""Annotate the Secret with this (any value) to have the authority replaced; it goes when that begins."""
FORGET_AFTER = f"{DOMAIN}/forget-after"
ADOPT_UNTIL = f"{DOMAIN}/adopt-until"
"""Until when others that are in the bundles are trusted too: the Secret was made anew not long ago."""


class OwnVault:
    """The authority of one process: gone with it."""

    def __init__(self) -> None:
        self._kept = Kept(shared=False)

    async def kept(self) -> Kept:
        return self._kept

    async def keep(self, plan: Plan, before: Kept) -> None:
        self._kept = Kept(plan.authorities, shared=False)


class SecretVault:
    """The authority in the Secret `key`. Each write is refused (Conflict) where another came before it."""

    def __init__(self, client: Client, key: Key) -> None:
        self._client = client
        self._key = key

    async def kept(self) -> Kept:
        secret = await self._client.find(SECRET, self._key.name, self._key.namespace)
        return read_secret(secret) if secret else Kept()

    async def keep(self, plan: Plan, before: Kept) -> None:
        namespace, name = self._key
        body = written(plan)
        if not before.version:
            metadata = {"name": name, "namespace": namespace, "annotations": body["metadata"]["annotations"]}
            manifest = {"metadata": metadata, "type": "Opaque", "data": body["data"]}
            await self._client.create(SECRET, without_nulls(manifest))
            return
        body["metadata"]["resourceVersion"] = before.version
        await self._client.merge_patch(SECRET, name, body, namespace)


def read_secret(secret: Secret) -> Kept:
    """What a Secret holds: usable as a whole, or spoiled."""
    data, annotations, version = secret.data, secret.metadata.annotations, secret.metadata.resource_version
    rotate = ROTATE in annotations
    try:
        current = _pair(data, "tls")
        coming = _pair(data, "next") if data.get("next.crt") or data.get("next.key") else None
        previous = _former(data.get("previous.crt", b""))
    except ValueError as error:
        readable = tuple(each for value in data.values() for each in certificates_in(value))
        return Kept(spoiled=str(error), readable=readable, rotate=rotate, version=version)
    forget, adopt = (_moment(annotations.get(name, "")) for name in (FORGET_AFTER, ADOPT_UNTIL))
    held = Authorities(current, coming, previous, forget, adopt)
    return Kept(held, rotate=rotate, version=version)


def written(plan: Plan) -> Manifest:
    """The merge patch that makes a Secret hold `plan`; null takes away."""
    held, coming = plan.authorities, plan.authorities.next
    data = {
        "tls.crt": held.current.certificate,
        "tls.key": held.current.key,
        "next.crt": coming.certificate if coming else b"",
        "next.key": coming.key if coming else b"",
        "previous.crt": b"".join(held.previous),
    }
    dates = {FORGET_AFTER: held.forget_after, ADOPT_UNTIL: held.adopt_until}
    annotations: Manifest = {name: date.isoformat() if date else None for name, date in dates.items()}
    if not plan.rotate:
        annotations[ROTATE] = None
    return {
        "metadata": {"annotations": annotations},
        "data": {name: base64.b64encode(value).decode() or None for name, value in data.items()},
    }


def _pair(data: Mapping[str, bytes], name: str) -> Authority:
    try:
        return read_authority(data.get(f"{name}.crt", b""), data.get(f"{name}.key", b""))
    except ValueError as error:
        raise ValueError(f"{name}.crt and {name}.key are no authority: {error}") from error


def _former(bundle: bytes) -> tuple[Certificate, ...]:
    """Raises ValueError where nothing can be read of what was there: leaves of it may still be served."""
    found = certificates_in(bundle)
    if bundle.strip() and not found:
        raise ValueError("previous.crt holds no certificate")
    return found


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
