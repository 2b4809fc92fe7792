"""A thin client of the API server; it never reads a cache.

Guarantees
- What is tried again, and how often, is said in transport.py. Repeated are get, list, replace, apply, merge
  patch and delete; a create or a JSON patch that was cut may have happened.
- An answer that no API server sends is `Unreachable`, never an object.
- A write that is answered is noted for the reconcile that made it (writes.py).
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from elasticjob.kube.client import writes
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.client.transport import TOTAL_TIMEOUT, Call, Transport
from elasticjob.kube.clock import Clock, SystemClock, deadline
from elasticjob.kube.errors import Conflict, Gone, Invalid, NotFound, Undecodable, Unreachable
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Key, Kind, Manifest

T = TypeVar("T")
H = TypeVar("H", "_Head", "_Answer")
JsonPatchOperation = dict[str, Any]
"""One operation of RFC 6902: `{"op": "test", "path": "/metadata/uid", "value": "…"}`."""

PAGE = 500

APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

log = logging.getLogger(__name__)


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None


class _Details(msgspec.Struct):
    uid: str = ""


class _Answer(msgspec.Struct):
    kind: str = ""
    details: _Details | None = None
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Name(msgspec.Struct):
    name: str = ""


class _Head(msgspec.Struct):
    """The least that an object is."""

    kind: str = ""
    metadata: _Name = msgspec.field(default_factory=_Name)


class _PageMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class Page(msgspec.Struct):
    """One page of a list; items are left as bytes."""

    metadata: _PageMeta = msgspec.field(default_factory=_PageMeta)
    items: list[msgspec.Raw] | None = None

    @property
    def version(self) -> str:
        """The resourceVersion of the list."""
        return self.metadata.resource_version

    @property
    def token(self) -> str:
        """The value for `continue`; "" on the last page."""
        return self.metadata.continue_ or ""


class Client:
    """A connection to one cluster as one user: `async with Client(config) as client`."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        user_agent: str = "elasticjob-kube",
        timeout: float = TOTAL_TIMEOUT,
        dry_run: bool = False,
    ) -> None:
        """With `dry_run`, the server checks each write, answers as it would, and stores nothing."""
        self.config = config
        self.dry_run = dry_run
        self.clock: Clock = clock or SystemClock()
        self._transport = Transport(config, self.clock, metrics, user_agent, timeout)
        self._limit = timeout

    async def __aenter__(self) -> Self:
        self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections, watches too."""
        await self._transport.close()

    def measure(self, metrics: Metrics) -> None:
        """Count requests in `metrics` from now on, unless they are counted elsewhere."""
        self._transport.measure(metrics)

    # reading

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T:
        """The object as the server has it now. Raises NotFound; Undecodable if it does not fit its model."""
        call = Call("GET", _path(kind, namespace, name))
        return _decode(kind, call, await self._transport.send(call))

    async def find(self, kind: Kind[T], name: str, namespace: str | None = None) -> T | None:
        """As `get`, with None for an object that does not exist."""
        try:
            return await self.get(kind, name, namespace)
        except NotFound:
            return None

    async def list(
        self, kind: Kind[T], namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> builtins.list[T]:
        """All objects that match the selectors, of one namespace or ("" or None) of all.

        An object that does not fit the model is left out, and logged.
        """
        found = []
        for raw in await self.list_raw(kind, namespace, labels=labels, fields=fields):
            try:
                found.append(kind.decode(bytes(raw)))
            except ValueError as error:
                log.warning(
                    "an object does not fit its model", extra={"kind": kind.name, "error": str(error)}
                )
        return found

    async def list_raw(
        self, kind: Kind[T], namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> builtins.list[msgspec.Raw]:
        """The undecoded items of a list, page by page; starts over once if the pages expire meanwhile."""
        try:
            return await self._list_pages(kind, namespace, labels, fields)
        except Gone:
            return await self._list_pages(kind, namespace, labels, fields)

    async def _list_pages(
        self, kind: Kind[T], namespace: str | None, labels: str, fields: str
    ) -> builtins.list[msgspec.Raw]:
        items: builtins.list[msgspec.Raw] = []
        token = ""
        while True:
            page = await self.page(kind, namespace, labels=labels, fields=fields, token=token)
            items += page.items or ()
            if not (token := page.token):
                return items

    async def page(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        token: str = "",
    ) -> Page:
        """One page of a consistent list. Raises Gone when `token` is too old."""
        params = selectors(labels, fields) | {"limit": str(PAGE)} | ({"continue": token} if token else {})
        call = Call("GET", _path(kind, namespace), params)
        return as_page(await self._transport.send(call), str(call))

    # writing

    async def create(
        self, kind: Kind[T], manifest: Manifest, namespace: str | None = None, *, dry_run: bool = False
    ) -> T:
        """The object as created. Raises AlreadyExists, Invalid, Forbidden."""
        path = _path(kind, namespace or _metadata(manifest).get("namespace"))
        call = Call("POST", path, _dry(dry_run), _encode(kind, manifest), repeatable=False)
        return await self._write(kind, call)

    async def post(
        self, kind: Kind[T], name: str, subresource: str, manifest: Manifest, namespace: str | None = None
    ) -> Manifest:
        """The answer to a POST to a subresource: `binding`, `eviction`, `token`."""
        call = Call(
            "POST",
            _path(kind, namespace, name, subresource),
            _dry(self.dry_run),
            msgspec.json.encode(manifest),
            repeatable=False,
        )
        return _as(Manifest, call, await self._transport.send(call))

    async def apply(
        self,
        kind: Kind[T],
        manifest: Manifest,
        *,
        manager: str,
        namespace: str | None = None,
        uid: str = "",
        force: bool = True,
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        """Server-side apply: `manager` owns exactly the fields of `manifest` from now on.

        Give the `uid` of an object that is known, here or in the manifest's metadata: then nothing is
        created, and an object that was deleted meanwhile, or replaced by a namesake, raises Conflict instead
        of rising from the dead. Without `force`, fields of other managers raise Conflict.
        """
        metadata = _metadata(manifest) | ({"uid": uid} if uid else {})
        manifest = manifest | {"metadata": metadata}
        path = _path(kind, namespace or metadata.get("namespace"), metadata["name"], subresource)
        params = {"fieldManager": manager, "force": "true" if force else "false"} | _dry(dry_run)
        try:
            return await self._write(kind, Call("PATCH", path, params, _encode(kind, manifest), APPLY))
        except Invalid as error:
            if not any(cause.get("field") == "metadata.uid" for cause in error.causes):
                raise
            message = f"{kind.name} {metadata['name']!r} is another object by now: {error.message}"
            raise Conflict(409, "Conflict", message, error.details) from error

    async def merge_patch(
        self,
        kind: Kind[T],
        name: str,
        patch: Manifest,
        namespace: str | None = None,
        *,
        subresource: str = "",
        strategic: bool = False,
    ) -> T:
        """RFC 7386: objects are merged, null deletes, lists are replaced.

        `strategic` merges lists by their keys (built-in types only). With `metadata.resourceVersion` in the
        patch, a write in between raises Conflict.
        """
        body, type_ = msgspec.json.encode(patch), STRATEGIC_MERGE_PATCH if strategic else MERGE_PATCH
        return await self._write(
            kind, Call("PATCH", _path(kind, namespace, name, subresource), {}, body, type_)
        )

    async def json_patch(
        self,
        kind: Kind[T],
        name: str,
        operations: Sequence[JsonPatchOperation],
        namespace: str | None = None,
        *,
        subresource: str = "",
    ) -> T:
        """RFC 6902, all or nothing. A failed `test` raises Invalid."""
        call = Call(
            "PATCH",
            _path(kind, namespace, name, subresource),
            body=msgspec.json.encode(list(operations)),
            content_type=JSON_PATCH,
            repeatable=False,
        )
        return await self._write(kind, call)

    async def replace(
        self, kind: Kind[T], manifest: Manifest, namespace: str | None = None, *, subresource: str = ""
    ) -> T:
        """PUT of the whole object. Raises Conflict when its resourceVersion is not the newest."""
        metadata = _metadata(manifest)
        path = _path(kind, namespace or metadata.get("namespace"), metadata["name"], subresource)
        return await self._write(kind, Call("PUT", path, {}, _encode(kind, manifest)))

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        version: str | None = None,
        grace: int | None = None,
        propagation: str = "Background",
    ) -> None:
        """Have the object deleted; one that is gone already is fine.

        Raises Conflict if its uid is not `uid`, or its resourceVersion not `version`.
        """
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        conditions = {"uid": uid, "resourceVersion": version}
        if held := {name: value for name, value in conditions.items() if value is not None}:
            options["preconditions"] = held
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if self.dry_run:
            options["dryRun"] = ["All"]
        call = Call("DELETE", _path(kind, namespace, name), {}, msgspec.json.encode(options))
        key = Key((namespace or "") if kind.namespaced else "", name)
        try:
            body = await self._transport.send(call)
        except NotFound:
            if uid is not None:
                writes.note(writes.Written(kind, key, gone=uid))
        else:
            if self.dry_run:
                return
            _note_deletion(kind, key, _as_object(_Answer, call, body))

    # streams

    async def logs(
        self,
        pod: str,
        namespace: str,
        *,
        container: str = "",
        follow: bool = False,
        tail: int | None = None,
        previous: bool = False,
        since: datetime | None = None,
        timestamps: bool = False,
    ) -> AsyncGenerator[bytes]:
        """A pod's log in chunks as they come; with `follow`, until the container ends.

        `since` is exact to the second; with `timestamps`, each line begins with its own (RFC 3339).

        Raises ApiError; Unreachable when it is cut or, without `follow`, when nothing comes for the time of a
        request.
        """
        params = {"follow": "true"} if follow else {}
        params |= {"container": container} if container else {}
        params |= {"tailLines": str(tail)} if tail is not None else {}
        params |= {"previous": "true"} if previous else {}
        params |= {"sinceTime": timestamp(since)} if since else {}
        params |= {"timestamps": "true"} if timestamps else {}
        call = Call("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log", params)
        patience = None if follow else self._limit
        async with self.stream(call, patience=patience) as chunks:
            while chunk := await self._piece(call, chunks, patience):
                yield chunk

    async def _piece(self, call: Call, chunks: AsyncIterator[bytes], patience: float | None) -> bytes:
        try:
            async with deadline(self.clock, patience):
                return await anext(chunks, b"")
        except TimeoutError as error:
            raise Unreachable(f"{call}: nothing came for {patience:.0f} s") from error

    def stream(
        self, call: Call, *, patience: float | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The chunks of an answer that may never end: the caller watches for silence.

        Raises ApiError or Unreachable when it is refused, or has not begun after `patience` seconds (None:
        a log that is followed begins with its first line); Unreachable from the iterator when it is cut.
        """
        return self._transport.stream(call, patience)

    # the rest

    async def raw(self, method: str, path: str, body: bytes | None = None, **params: str) -> bytes:
        """Any request: the bytes of the answer (`/version`, `/readyz`, a type without a Kind)."""
        return await self._transport.send(Call(method, path, params, body, repeatable=method != "POST"))

    async def _write(self, kind: Kind[T], call: Call) -> T:
        call = replace(call, params={**call.params, **_dry(self.dry_run)})
        body = await self._transport.send(call)
        answer = _as_object(_Answer, call, body)
        if "dryRun" not in call.params:
            _note(kind, answer)
        return _fitting(kind, answer.metadata.name, body)


def selectors(labels: str = "", fields: str = "") -> dict[str, str]:
    """The query parameters of a label and a field selector."""
    return ({"labelSelector": labels} if labels else {}) | ({"fieldSelector": fields} if fields else {})


def _path(kind: Kind[Any], namespace: str | None, name: str = "", subresource: str = "") -> str:
    return kind.path(namespace or "", name, subresource)


def _metadata(manifest: Manifest) -> dict[str, Any]:
    metadata: dict[str, Any] = manifest.get("metadata") or {}
    return metadata


def _encode(kind: Kind[Any], manifest: Manifest) -> bytes:
    return msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.name} | manifest)


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _note(kind: Kind[Any], answer: _Answer) -> None:
    meta = answer.metadata
    if answer.kind == kind.name and meta.resource_version.isdecimal():
        key = Key(meta.namespace, meta.name)
        writes.note(writes.Written(kind, key, int(meta.resource_version), meta.labels or {}))


def _note_deletion(kind: Kind[Any], key: Key, answer: _Answer) -> None:
    """Note a deletion: an object that still ends is in the answer, of one that is gone only its uid."""
    if answer.kind != "Status":
        _note(kind, answer)
    elif answer.details and answer.details.uid:
        writes.note(writes.Written(kind, key, gone=answer.details.uid))


def as_page(body: bytes, asked: str) -> Page:
    """The page in an answer. Raises Unreachable for what is none: an empty page would delete everything."""
    page = _as(Page, asked, body)
    if not page.version:
        raise _no_answer(asked, body)
    return page


def _as(type_: type[T], asked: object, body: bytes) -> T:
    try:
        return msgspec.json.decode(body, type=type_)
    except (ValueError, RecursionError) as error:
        raise _no_answer(asked, body) from error


def _as_object(type_: type[H], call: Call, body: bytes) -> H:
    found = _as(type_, call, body)
    if not found.kind:
        raise _no_answer(call, body)
    return found


def _no_answer(asked: object, body: bytes) -> Unreachable:
    return Unreachable(f"{asked}: 200 and not a Kubernetes answer: {body[:120].decode(errors='replace')}")


def _decode(kind: Kind[T], call: Call, body: bytes) -> T:
    """The object in an answer. Raises Unreachable for what is no object, Undecodable for another form."""
    return _fitting(kind, _as_object(_Head, call, body).metadata.name, body)


def _fitting(kind: Kind[T], name: str, body: bytes) -> T:
    try:
        return kind.decode(body)
    except ValueError as error:
        raise Undecodable(f"{kind.name} {name} does not fit its model: {error}") from error
