"""Installing CustomResourceDefinitions: their size limits, and the breaking changes they would make.

Definitions are applied by the server (`client.apply`, `kubectl apply --server-side`): a client-side apply
keeps a copy in an annotation, which may not be larger than 262,144 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import deadline
from elasticjob.kube.crd.compatibility import Change, changes
from elasticjob.kube.errors import NotFound, Unreachable
from elasticjob.kube.json import JsonReader
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import CRD

CLIENT_SIDE_BYTES: Final = 262_144
MOST_BYTES: Final = 1024 * 1024
"""The largest definition: etcd accepts 1.5 MiB, and the server adds managedFields."""

PAUSE_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 60.0
"""A server that is busy, or has just begun, takes seconds."""

_CRD: Final[Kind[Manifest]] = CRD.untyped()


class _Resource(msgspec.Struct):
    name: str


class _Discovery(msgspec.Struct):
    """The discovery document of a group version."""

    resources: list[_Resource]


_SERVED = JsonReader(_Discovery)


@dataclass(frozen=True)
class Upgrade:
    """The breaking changes of applying one definition; none if the cluster does not have it yet."""

    name: str
    exists: bool
    changes: tuple[Change, ...]


def size_of(manifest: Manifest) -> int:
    """Return how many bytes a definition has, as it is sent."""
    return len(msgspec.json.encode(manifest))


def size_problem(manifest: Manifest) -> str:
    """Return what follows from a definition's size, "" for nothing.

    Raises ValueError where it is too large to be stored.
    """
    size, name = size_of(manifest), manifest["metadata"]["name"]
    if size > MOST_BYTES:
        raise ValueError(
            f"CRD {name} has {size:,} bytes, more than {MOST_BYTES:,}: leave descriptions out, make embedded "
            "types typed or opaque, or hold several of them in a map"
        )
    if size > CLIENT_SIDE_BYTES:
        return f"{size:,} bytes: too large for a client-side apply, use kubectl apply --server-side"
    return ""


async def upgrades(client: Client, manifests: Sequence[Manifest]) -> list[Upgrade]:
    """Return what applying the definitions would change in the cluster. Nothing is written."""
    found = []
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        old = await client.find(_CRD, name)
        found.append(Upgrade(name, old is not None, tuple(changes(old, manifest)) if old else ()))
    return found


async def install(client: Client, manifests: Sequence[Manifest], manager: str) -> None:
    """Apply definitions, and return when all their kinds are served: they can be created and read then.

    Raises Unreachable where that takes longer than PATIENCE_SECONDS; ApiError where the server refuses one.
    """
    for manifest in manifests:
        size_problem(manifest)
        await client.apply(_CRD, manifest, manager=manager)
    for manifest in () if client.dry_run else manifests:
        await _wait_for_discovery(client, manifest)


async def _wait_for_discovery(client: Client, manifest: Manifest) -> None:
    name = manifest["metadata"]["name"]
    try:
        async with deadline(client.clock, PATIENCE_SECONDS):
            while not (await _is_established(client, name) and await _is_discovered(client, manifest)):
                await client.clock.sleep(PAUSE_SECONDS)
    except TimeoutError:
        raise Unreachable(
            f"CRD {name} is not served after {PATIENCE_SECONDS:.0f} s: look at its conditions"
        ) from None


async def _is_established(client: Client, name: str) -> bool:
    found = await client.get(_CRD, name)
    conditions = found.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


async def _is_discovered(client: Client, manifest: Manifest) -> bool:
    """Whether the server lists the kind in all its versions, as it does last, some moments after that.

    Something else's answer, such as a proxy's page, lists nothing.
    """
    spec = manifest["spec"]
    for version in spec["versions"]:
        if version["served"]:
            try:
                answer = await client.raw("GET", f"/apis/{spec['group']}/{version['name']}")
                found = _SERVED.decode(answer)
            except (NotFound, msgspec.DecodeError):
                return False
            if spec["names"]["plural"] not in {each.name for each in found.resources}:
                return False
    return True
