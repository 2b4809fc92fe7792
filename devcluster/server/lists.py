"""Lists: selectors, pages, and the three forms of an answer (objects, metadata only, Table)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from elasticjob.devcluster.server.errors import bad_request, expired, not_acceptable
from elasticjob.devcluster.server.registry import Resource
from elasticjob.devcluster.server.selectors import Predicate, field_clauses, label_requirements, predicate
from elasticjob.devcluster.server.store import Manifest, Store, Stored, encode
from elasticjob.devcluster.server.table import partial, table
from elasticjob.devcluster.server.target import Target


@dataclass(frozen=True)
class Form:
    """How the client wants objects: `as=Table`, `as=PartialObjectMetadata(List)`, or plain."""

    kind: str = ""
    include: str = "Metadata"


def form_of(accept: str, query: Mapping[str, str]) -> Form:
    """The first acceptable form in an Accept header."""
    for choice in accept.split(","):
        parts = [part.strip() for part in choice.split(";")]
        wanted = next((part[3:] for part in parts if part.startswith("as=")), "")
        if parts[0] in ("application/json", "*/*") and wanted in ("", "Table", *_PARTIAL):
            kind = "Partial" if wanted in _PARTIAL else wanted
            return Form(kind, query.get("includeObject") or "Metadata")
        if parts[0] in _ENCODED and not wanted:
            return Form()
    if accept.strip():
        raise not_acceptable()
    return Form()


_ENCODED = ("application/yaml", "application/vnd.kubernetes.protobuf", "application/*", "application/cbor")
_PARTIAL = ("PartialObjectMetadata", "PartialObjectMetadataList")


def served(resource: Resource, stored: Stored) -> Manifest:
    """An object in the version of the resource it is asked through. Shared: do not modify."""
    return resource.conversion.from_storage(stored.body) if resource.conversion else stored.body


def served_raw(resource: Resource, stored: Stored) -> bytes:
    return encode(resource.conversion.from_storage(stored.body)) if resource.conversion else stored.raw


def selection(target: Target, query: Mapping[str, str]) -> Predicate | None:
    """The label and field selectors of a request as one predicate over served objects; None = everything."""
    labels = label_requirements(query.get("labelSelector", ""))
    fields = field_clauses(query.get("fieldSelector", ""), target.resource.fields)
    return predicate(labels, fields)


@dataclass(frozen=True)
class Page:
    """A piece of a list, and where the next one begins."""

    items: list[Stored]
    version: int
    token: str = ""
    remaining: int = 0

    @property
    def metadata(self) -> dict[str, Any]:
        told = {"continue": self.token, "remainingItemCount": self.remaining}
        return {"resourceVersion": str(self.version)} | {name: value for name, value in told.items() if value}


def page(store: Store, target: Target, query: Mapping[str, str]) -> Page:
    """Select and cut. 410 for a token from before the last compaction, 504 for a version of the future."""
    limit, token = number(query, "limit"), query.get("continue", "")
    store.check_version(number(query, "resourceVersion"))
    start = _read_token(token, store) if token else None
    keep = selection(target, query)
    resource = target.resource
    found = [
        item for item in store.every(resource.type, target.namespace) if not start or _place(item) > start[1]
    ]
    if target.name:
        found = [item for item in found if item.metadata["name"] == target.name]
    if keep is not None:
        found = [item for item in found if keep(served(resource, item))]
    version = start[0] if start else store.version
    if not limit or len(found) <= limit:
        return Page(found, version)
    cut = found[:limit]
    remaining = len(found) - limit if keep is None else 0  # with a selector the real server does not count
    return Page(cut, version, _write_token(version, _place(cut[-1])), remaining)


def number(query: Mapping[str, str], name: str) -> int:
    """A parameter that counts something; 0 where it is absent."""
    text = query.get(name) or "0"
    if not text.isdecimal():
        raise bad_request(f"{name}: Invalid value: {text!r}: must be a number")
    return int(text)


def _place(item: Stored) -> tuple[str, str]:
    return (item.metadata.get("namespace", ""), item.metadata["name"])


def _write_token(version: int, place: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(encode([version, *place])).decode().rstrip("=")


def _read_token(token: str, store: Store) -> tuple[int, tuple[str, str]]:
    try:
        padded = token + "=" * (-len(token) % 4)
        version, namespace, name = msgspec.json.decode(
            base64.urlsafe_b64decode(padded), type=tuple[int, str, str]
        )
    except (binascii.Error, ValueError) as error:
        raise bad_request("continue key is not valid: it was not made by this server") from error
    if version < store.compacted:
        raise expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a "
            "new list without the continue parameter, or use the continue token in this response to retrieve "
            "the remainder of the results."
        )
    return version, (namespace, name)


def render_list(resource: Resource, found: Page, form: Form, now: datetime) -> bytes:
    """The body of a list answer."""
    if form.kind == "Table":
        objects = [served(resource, item) for item in found.items]
        return encode(table(resource, objects, found.metadata, now, include=form.include))
    if form.kind == "Partial":
        items = [partial(item.body) for item in found.items]
        return encode(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": found.metadata,
                "items": items,
            }
        )
    head = encode(
        {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": found.metadata}
    )
    body = b",".join(served_raw(resource, item) for item in found.items)
    return head[:-1] + b',"items":[' + body + b"]}"


def render_one(resource: Resource, stored: Stored, form: Form, now: datetime) -> bytes:
    """The body of an answer about one object."""
    if form.kind == "Table":
        item = served(resource, stored)
        metadata = {"resourceVersion": str(stored.version)}
        return encode(table(resource, [item], metadata, now, include=form.include))
    if form.kind == "Partial":
        return encode(partial(stored.body))
    return served_raw(resource, stored)
