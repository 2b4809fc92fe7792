"""Admission of our kinds by the server in a dict: what becomes of a write before it is stored.

1. Unknown fields go, and defaults come, by the schema of the CRD.
2. Our mutating webhook is asked about writes of the object itself, then 1. again.
3. Metadata, schema and rules (CEL) refuse it; values that were there before may stay.
4. Our validating webhook refuses it; it may read, so the object may be another one by then.

Schemas and rules are devcluster's. What has been said of some bytes is remembered: most writes repeat most of
an object, and most histories repeat those before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from random import Random
from typing import Any, Final, Protocol, cast

import msgspec

from elasticjob.api.crds import manifests
from elasticjob.devcluster.server.crd import scaling
from elasticjob.devcluster.server.crd.crd import resources_of
from elasticjob.devcluster.server.model.errors import StatusError
from elasticjob.devcluster.server.model.names import metadata_problems, metadata_update_problems
from elasticjob.devcluster.server.model.registry import Resource
from elasticjob.devcluster.server.model.schemas import ANYTHING, Schema
from elasticjob.devcluster.server.schema.pruning import prune
from elasticjob.devcluster.server.write.core import Core
from elasticjob.devcluster.server.write.patches import json_patch, merge_patch
from elasticjob.devcluster.server.write.typed import untypable
from elasticjob.kube.errors import ApiError, NotFound, ServerError, api_error
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.webhook.handlers import FAILED
from elasticjob.kube.webhook.review import Answer, Reader, Request, UserInfo, Webhook, mutate, validate
from elasticjob.webhooks import WEBHOOKS, scale

REMEMBERED: Final = 1 << 14
"""How many results of each function are kept."""
UNREAD: Final = frozenset({"resourceVersion", "generation", "managedFields"})
"""Metadata that no webhook reads. Without it the bytes of an object repeat."""
NOBODY: Final[Any] = None
CORE: Final = Core(NOBODY, NOBODY, {}, NOBODY, NOBODY, lambda: datetime.now(UTC), Random(0))
"""Its checks of custom resources need no store."""

_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode


class Verbs(Protocol):
    """What webhooks ask of a client: one object, and for /scale a new ScalePlan."""

    async def find(self, kind: Kind[Any], name: str, namespace: str | None = None) -> Any: ...
    async def create(self, kind: Kind[Any], manifest: Manifest) -> Any: ...


class Remembered(Kind[Any]):
    """A kind that decodes the same bytes once. Its objects are never changed."""

    def decode(self, raw: bytes) -> Any:
        return decoded(self, raw)


class Admission:
    """Whether and how writes of our kinds are stored. `client` is whose program answers the webhooks."""

    def __init__(self, client: Verbs, webhooks: Sequence[Webhook[Any]] | None = None) -> None:
        self._client = client
        every = (*WEBHOOKS, scale.webhook(client)) if webhooks is None else webhooks
        self._webhooks = {each.kind.resource: remembering(each) for each in every}
        self.serving = True
        """Whether the webhooks can be reached."""

    async def admit(
        self, kind: Kind[Any], old: Manifest | None, new: Manifest, subresource: str = "", user: str = ""
    ) -> Manifest:
        """Return what is to be stored in the place of `old`. Raises ApiError."""
        resource = resources().get(kind.resource)
        if resource is None:
            return new
        below = f"/{subresource}" if subresource else ""
        webhook = self._webhooks.get(f"{kind.plural}{below}.{kind.group}")
        new = _shaped(resource, new, subresource)
        if webhook and webhook.mutate:
            answer = await self._ask("mutate", webhook, mutate, old, new, user)
            if answer.patch:
                new = _shaped(resource, json_patch(new, answer.patch), subresource)
        _check(resource, old, new, subresource)
        if webhook:
            shown = (old, new) if not subresource else (old and scale_of(kind, old), scale_of(kind, new))
            await self._ask("validate", webhook, self._validate, *shown, user)
        return new

    async def _validate(self, webhook: Webhook[Any], request: Request) -> Answer:
        return await validate(webhook, request, cast(Reader, self._client))

    async def _ask(
        self,
        verb: str,
        webhook: Webhook[Any],
        ask: Callable[[Webhook[Any], Request], Awaitable[Answer]],
        old: Manifest | None,
        new: Manifest,
        user: str,
    ) -> Answer:
        """Return an answer that lets the write pass."""
        name = ".".join((verb, webhook.kind.plural.replace("/", "-"), webhook.kind.group))
        lets_through = webhook.terms.failure_policy == "Ignore"
        if not self.serving and lets_through:
            return Answer(True)
        if not self.serving:
            raise ServerError(500, "InternalError", f'failed calling webhook "{name}": connection refused')
        answer = await ask(webhook, _request(old, new, user))
        if answer.allowed or (answer.code >= FAILED and lets_through):
            return answer
        raise _refusal(name, answer)


@cache
def resources() -> dict[str, Resource]:
    """Return the resources of our kinds, by their names."""
    return {f"{each.plural}.{each.group}": each for crd in manifests() for each in resources_of(crd)}


def schema_of(kind: Kind[Any]) -> Schema:
    """Return the schema of a kind of ours; any other may be anything."""
    resource = resources().get(kind.resource)
    return resource.schema if resource else ANYTHING


def scale_of(kind: Kind[Any], stored: Manifest) -> Manifest:
    """Return the scale of an object."""
    return scaling.scale_of(_resource(kind), stored, lenient=True)


def sized(kind: Kind[Any], old: Manifest, patch: Manifest) -> Manifest:
    """Return an object as a merge patch of its scale makes it."""
    asked, paths = merge_patch(scale_of(kind, old), patch), _resource(kind).scale
    assert paths is not None
    return scaling.with_size(old, paths.replicas, (asked.get("spec") or {}).get("replicas", 0))


def _resource(kind: Kind[Any]) -> Resource:
    resource = resources().get(kind.resource)
    if resource is None or resource.scale is None:
        raise NotFound(404, "NotFound", "the server could not find the requested resource")
    return resource


def check_configuration(kind: Kind[Any], manifest: Manifest) -> None:
    """Raise what keeps an object from being applied at all, such as a field that its schema lacks."""
    resource, about = resources().get(kind.resource), manifest["metadata"]
    if resource and (problem := _untypable(resource, _encode({**manifest, "metadata": {}}))):
        place = f"({about.get('namespace', '')}/{about['name']}; {kind.api_version}, Kind={kind.name})"
        raise ServerError(500, "500", f"failed to create typed patch object {place}: {problem}")


@lru_cache(REMEMBERED)
def _untypable(resource: Resource, raw: bytes) -> str:
    return next(untypable(_decode(raw), resource.schema), "")


def as_api_error(error: StatusError) -> ApiError:
    """Return devcluster's error as a client raises it."""
    return api_error(error.code, error.reason, error.message, error.details)


def remembering(webhook: Webhook[Any]) -> Webhook[Any]:
    """Return a webhook whose objects are decoded once."""
    kind = webhook.kind
    known = Remembered(kind.group, kind.version, kind.name, kind.plural, kind.model, kind.namespaced)
    return replace(webhook, kind=known)


@lru_cache(REMEMBERED)
def decoded(kind: Kind[Any], raw: bytes) -> Any:
    """Return the object in some bytes, which is the same each time. Raises ValueError."""
    return Kind.decode(kind, raw)


def _request(old: Manifest | None, new: Manifest, user: str) -> Request:
    about = new["metadata"]
    return Request(
        "",
        "CREATE" if old is None else "UPDATE",
        about["name"],
        about.get("namespace", ""),
        user_info=UserInfo(user),
        object=msgspec.Raw(_shown(new)),
        old_object=msgspec.Raw(b"null" if old is None else _shown(old)),
    )


def _shown(manifest: Manifest) -> bytes:
    about = {name: value for name, value in manifest["metadata"].items() if name not in UNREAD}
    return _encode({**manifest, "metadata": about})


def _refusal(name: str, answer: Answer) -> ApiError:
    status = answer.manifest("")["response"]["status"]
    why = f'admission webhook "{name}" denied the request: {status["message"]}'
    return api_error(status["code"], status["reason"], why, status["details"])


# schema and rules: of the status alone, or of all but metadata and status


def _part(manifest: Manifest, subresource: str) -> Manifest:
    if subresource == "status":
        return {name: manifest[name] for name in ("status",) if name in manifest}
    return {name: value for name, value in manifest.items() if name not in ("metadata", "status")}


def _shaped(resource: Resource, new: Manifest, subresource: str) -> Manifest:
    part = _part(new, subresource)
    rest = {name: value for name, value in new.items() if name not in part}
    return {**rest, **_shape(resource, _encode(part))}


@lru_cache(REMEMBERED)
def _shape(resource: Resource, raw: bytes) -> Manifest:
    """Return a part of an object without unknown fields and with defaults. It is never changed."""
    part: Manifest = _decode(raw)
    prune(part, resource.schema)
    CORE.default(resource, part)
    return part


def _check(resource: Resource, old: Manifest | None, new: Manifest, subresource: str) -> None:
    """Raise what is wrong with the metadata or a part of an object."""
    about, before = new["metadata"], (old or {}).get("metadata")
    if before is None:
        causes = [*metadata_problems(resource.group, resource.kind, about, custom=True)]
    else:
        causes = [*metadata_update_problems(resource.group, before, about, custom=True)]
    name = {"metadata": {"name": about["name"]}}
    raw = _encode({**_part(new, subresource), **name})
    former = b"null" if old is None else _encode({**_part(old, subresource), **name})
    if error := _problem(resource, raw, former, subresource, tuple(causes)):
        raise as_api_error(error)


@lru_cache(REMEMBERED)
def _problem(
    resource: Resource, new: bytes, old: bytes, subresource: str, causes: Sequence[Any]
) -> StatusError | None:
    try:
        CORE.check(resource, _decode(new), _decode(old), causes, subresource)
    except StatusError as error:
        return error
    return None
