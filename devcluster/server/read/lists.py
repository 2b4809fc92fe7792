"""Lists: selectors, pages, and the three forms of an answer (objects, metadata only, Table)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from elasticjob.devcluster.server.model.errors import (
    Cause,
    bad_request,
    bad_version,
    expired,
    invalid,
    not_a_number,
    not_acceptable,
)
from elasticjob.devcluster.server.model.names import unsupported
from elasticjob.devcluster.server.model.registry import Resource
from elasticjob.devcluster.server.model.selectors import (
    Predicate,
    field_clauses,
    label_requirements,
    predicate,
)
from elasticjob.devcluster.server.model.store import Entry, Manifest, Store, Type, encode
from elasticjob.devcluster.server.model.target import Target
from elasticjob.devcluster.server.read.table import partial, table


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


def in_version(resource: Resource, stored: Entry) -> Manifest:
    """An object in the version of the resource it is asked through. Shared: do not modify."""
    return resource.conversion.from_storage(stored.body) if resource.conversion else stored.body


def served_raw(resource: Resource, stored: Entry) -> bytes:
    return encode(resource.conversion.from_storage(stored.body)) if resource.conversion else stored.raw


def selection(target: Target, query: Mapping[str, str]) -> Predicate | None:
    """The label and field selectors of a request as one predicate over served objects; None = everything."""
    labels = label_requirements(query.get("labelSelector", ""))
    fields = field_clauses(
        query.get("fieldSelector", ""), target.resource.fields, plain=not target.resource.custom
    )
    return predicate(labels, fields)


@dataclass(frozen=True)
class Page:
    """A piece of a list, and where the next one begins."""

    items: list[Entry]
    version: int
    token: str = ""
    remaining: int = 0

    @property
    def metadata(self) -> dict[str, Any]:
        metadata = {"continue": self.token, "remainingItemCount": self.remaining}
        return {"resourceVersion": str(self.version)} | {
            name: value for name, value in metadata.items() if value
        }


def page(store: Store, target: Target, query: Mapping[str, str]) -> Page:
    """Select and cut. 410 for a token from before the last compaction, 504 for a version of the future."""
    limit, token = max(0, number(query, "limit")), query.get("continue", "")
    asked = _list_version(query)
    store.check_version(asked)
    start = _read_token(token, store) if token else None
    keep = selection(target, query)
    resource = target.resource
    exactly = asked if query.get("resourceVersionMatch") == "Exact" else 0
    version = start[0] if start else exactly or store.version
    every = _every(store, resource.type, target.namespace, version)
    if start:
        every = [item for item in every if _place(item) > start[1]]
    if target.name:
        every = [item for item in every if item.metadata["name"] == target.name]
    found = every if keep is None else [item for item in every if keep(in_version(resource, item))]
    # what is beyond the last found is not looked at: with a selector another page may be promised, and be
    # empty
    if not limit or len(found) < limit or _place(found[limit - 1]) == _place(every[-1]):
        return Page(found, version)
    cut = found[:limit]
    remaining = len(found) - limit if keep is None else 0  # with a selector the real server does not count
    return Page(cut, version, _write_token(version, _place(cut[-1])), remaining)


def _every(store: Store, type_: Type, namespace: str, version: int) -> list[Entry]:
    return (
        store.every(type_, namespace)
        if version >= store.version
        else store.every_at(type_, namespace, version)
    )


def _list_version(query: Mapping[str, str]) -> int:
    """The resourceVersion of a list, and whether all that is said of it fits together."""
    text, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    if query.get("continue") and text not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    if text and not (text.isascii() and text.isdecimal()):
        why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f"invalid resource version: {why}")
    problems = list(_match_problems(text, match, "sendInitialEvents" in query))
    if problems:
        raise invalid("meta.k8s.io", "ListOptions", "", problems)
    return int(text or 0)


def _match_problems(version: str, match: str, initial: bool) -> Iterator[Cause]:
    forbidden = "FieldValueForbidden"
    if initial:
        yield Cause("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list", forbidden)
    if match and not version:
        why = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        yield Cause("resourceVersionMatch", why, forbidden)
    if match not in ("", "Exact", "NotOlderThan"):
        yield unsupported("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""])
    elif match == "Exact" and version == "0":
        why = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        yield Cause("resourceVersionMatch", why, forbidden)


def flag(query: Mapping[str, str], name: str) -> bool | None:
    """A parameter that is true unless it says `0` or `false`, as the real server reads it; None if absent."""
    return query[name].lower() not in ("0", "false") if name in query else None


def number(query: Mapping[str, str], name: str) -> int:
    """A parameter that counts something; 0 where it is absent."""
    text = query.get(name) or "0"
    if not re.fullmatch(r"-?[0-9]+", text):
        raise bad_request(not_a_number(text))
    return int(text)


def version_of(query: Mapping[str, str]) -> int:
    """The resourceVersion of a request; 0 where it is absent."""
    text = query.get("resourceVersion") or "0"
    if not (text.isascii() and text.isdecimal()):
        raise bad_version(text)
    return int(text)


def _place(item: Entry) -> tuple[str, str]:
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
        why = "invalid continue token: continue key is not valid: it was not made by this server"
        raise bad_request(why) from error
    if version < store.compacted:
        gone = expired(_TOO_OLD)
        gone.metadata = {"continue": _write_token(store.version, (namespace, name))}
        raise gone
    return version, (namespace, name)


_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)


def render_list(resource: Resource, found: Page, form: Form, now: datetime) -> bytes:
    """The body of a list answer."""
    if form.kind == "Table":
        objects = [in_version(resource, item) for item in found.items]
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
    head_of_item = (
        b"" if resource.custom else encode({"kind": resource.kind, "apiVersion": resource.api_version})[:-1]
    )
    body = b",".join(_bare(served_raw(resource, item), head_of_item) for item in found.items)
    return head[:-1] + b',"items":[' + body + b"]}"


def _bare(raw: bytes, head: bytes) -> bytes:
    """An element of a list of a built-in kind, without the kind and apiVersion that the list gives."""
    return b"{" + raw[len(head) + 1 :] if head and raw.startswith(head + b",") else raw


def render_one(resource: Resource, stored: Entry, form: Form, now: datetime) -> bytes:
    """The body of an answer about one object."""
    if form.kind == "Table":
        item = in_version(resource, stored)
        metadata = {"resourceVersion": str(stored.version)}
        return encode(table(resource, [item], metadata, now, include=form.include))
    if form.kind == "Partial":
        return encode(partial(stored.body))
    return served_raw(resource, stored)
