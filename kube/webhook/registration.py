"""The webhook configurations on the API server: webhooks, address and caBundle; written and read back.

A `Place` is one object on the API server that holds this: a webhook configuration.
An object is written only if it differs from the wanted one, and only at the resourceVersion that was read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import AlreadyExists
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.owner import Owner, owned_by
from elasticjob.kube.objects.views import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from elasticjob.kube.webhook.review import Webhook

INJECT_FROM = "cert-manager.io/inject-ca-from"


@dataclass(frozen=True)
class Registered:
    """The registered configurations: `places` as they were read, and the caBundle of each."""

    places: tuple[Manifest, ...]
    bundles: tuple[bytes, ...]


class Notices(Protocol):
    """Where the API server is told how to reach us, and which authorities to trust."""

    async def read(self) -> Registered:
        """The registered configurations."""

    async def publish(self, bundle: bytes | None, before: Registered) -> Registered:
        """Tell it; None leaves bundles to others. Raises Conflict if an object was written since `before`."""


@dataclass(frozen=True)
class ServiceRef:
    """The Service through which the API server reaches us."""

    namespace: str
    name: str
    port: int = 443

    @property
    def host(self) -> str:
        return f"{self.name}.{self.namespace}.svc"


@dataclass(frozen=True)
class Address:
    """How the API server reaches us: by Service, else by URL."""

    url: str
    service: ServiceRef | None = None

    def client_config(self, path: str, bundle: bytes | None) -> Manifest:
        """The clientConfig of one webhook; without a bundle, it is left for others to fill in."""
        where: Manifest = {"url": self.url + path}
        if self.service:
            service = {"namespace": self.service.namespace, "name": self.service.name}
            where = {"service": service | {"port": self.service.port, "path": path}}
        return where | ({"caBundle": base64.b64encode(bundle).decode()} if bundle is not None else {})


@dataclass(frozen=True)
class Place:
    """One object that tells the API server of us."""

    kind: Kind[Any]
    name: str
    wanted: Callable[[Address, bytes | None], Manifest]
    """Our part of it, without metadata."""
    clients: Callable[[Manifest], Iterator[Manifest]]
    """The clientConfigs in the object as the API server has it."""


class Registration:
    """The `Notices` of one webhook server, which writes as the field manager `manager`.

    `inject_from` (namespace/name of a Certificate) is put on each object for cert-manager's injector.
    With an `owner`, the garbage collector deletes the objects after it, and none is made while it is gone: a
    program that still runs while it is uninstalled would register itself for ever.
    `writes` counts how often an object had to be changed.
    """

    def __init__(
        self,
        client: Client,
        manager: str,
        places: Sequence[Place],
        address: Callable[[], Address],
        inject_from: str = "",
        owner: Owner | None = None,
    ) -> None:
        self._client = client
        self._manager = manager
        self._places = tuple(places)
        self._address = address
        self._annotations = {INJECT_FROM: inject_from} if inject_from else {}
        self._owner = owner
        self.writes = 0

    async def read(self) -> Registered:
        """The configurations on the API server; absent objects are created empty."""
        return self._published([await self._read(place) for place in self._places])

    async def publish(self, bundle: bytes | None, before: Registered) -> Registered:
        """Write our part into every object. Raises Conflict if one was written since `before`."""
        now, owned = [], await self._read_owner()
        for place, found in zip(self._places, before.places, strict=True):
            wanted = place.wanted(self._address(), bundle)
            metadata: Manifest = {"name": place.name, **owned}
            if self._annotations:
                metadata["annotations"] = self._annotations
            if not holds(found, wanted | {"metadata": metadata}):
                metadata = metadata | {"resourceVersion": found["metadata"]["resourceVersion"]}
                found = await self._apply(place, wanted | {"metadata": metadata})
            now.append(found)
        return self._published(now)

    async def _read(self, place: Place) -> Manifest:
        kind = place.kind.untyped()
        if found := await self._client.find(kind, place.name):
            return found
        metadata = {"name": place.name, **await self._read_owner()}
        with suppress(AlreadyExists):
            await self._client.create(kind, {"metadata": metadata})
        return await self._client.get(kind, place.name)

    async def _read_owner(self) -> Manifest:
        """The metadata that names the owner. Raises NotFound if it is gone."""
        return await owned_by(self._owner, self._client)

    async def _apply(self, place: Place, manifest: Manifest) -> Manifest:
        self.writes += 1
        return await self._client.apply(place.kind.untyped(), manifest, manager=self._manager)

    def _published(self, found: Sequence[Manifest]) -> Registered:
        bundles = tuple(
            _bundle(client)
            for place, manifest in zip(self._places, found, strict=True)
            for client in place.clients(manifest)
        )
        return Registered(tuple(found), bundles)


def admission_places(name: str, webhooks: Sequence[Webhook[Any]]) -> list[Place]:
    """The two webhook configurations called `name`, as far as they have anything to say."""
    places: list[Place] = []
    if not webhooks:
        return places
    for kind, verb, chosen in (
        (MUTATING_WEBHOOKS, "mutate", [each for each in webhooks if each.mutate]),
        (VALIDATING_WEBHOOKS, "validate", [each for each in webhooks if each.validate or each.warn]),
    ):
        places.append(Place(kind, name, _configuration(verb, chosen), _admission_clients))
    return places


def path_of(verb: str, kind: Kind[Any]) -> str:
    """The path under which a kind's reviews are answered."""
    return f"/{verb}/{kind.resource.replace('/', '-')}/{kind.version}"


def holds(found: Any, wanted: Any) -> bool:
    """Whether `found` says all that `wanted` says.

    Lists are to be equally long, their items told apart by `name` where they have one; what is wanted empty
    is to be empty or absent.
    """
    if isinstance(wanted, dict | list) and not wanted:
        return not found
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            holds(found.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(holds(*pair) for pair in zip(_sort(found), _sort(wanted), strict=True))
        )
    return bool(found == wanted)


def _sort(items: list[Any]) -> list[Any]:
    named = all(isinstance(item, dict) and "name" in item for item in items)
    return sorted(items, key=lambda item: str(item["name"])) if named else items


def _configuration(
    verb: str, webhooks: Sequence[Webhook[Any]]
) -> Callable[[Address, bytes | None], Manifest]:
    def wanted(address: Address, bundle: bytes | None) -> Manifest:
        return {"webhooks": [_entry(verb, webhook, address, bundle) for webhook in webhooks]}

    return wanted


def _entry(verb: str, webhook: Webhook[Any], address: Address, bundle: bytes | None) -> Manifest:
    kind, terms = webhook.kind, webhook.terms
    rule = {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "resources": [kind.plural],
        "operations": list(webhook.operations),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
    }
    entry: Manifest = {
        "name": ".".join((verb, kind.plural.replace("/", "-"), kind.group or "core")),  # three parts or more
        "clientConfig": address.client_config(path_of(verb, kind), bundle),
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "NoneOnDryRun" if terms.side_effects else "None",
        "failurePolicy": terms.failure_policy,
        "matchPolicy": "Equivalent",
        "timeoutSeconds": terms.timeout,
        "namespaceSelector": dict(terms.namespaces),
        "objectSelector": dict(terms.objects),
        "matchConditions": [{"name": name, "expression": text} for name, text in terms.conditions.items()],
    }
    if verb == "mutate":
        entry["reinvocationPolicy"] = terms.reinvocation
    return entry


def _admission_clients(configuration: Manifest) -> Iterator[Manifest]:
    for webhook in configuration.get("webhooks") or ():
        yield webhook.get("clientConfig") or {}


def _bundle(client: Manifest) -> bytes:
    try:
        return base64.b64decode(client.get("caBundle") or "")
    except binascii.Error:
        return b""
