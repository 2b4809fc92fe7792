"""Asking the API server: a thin client on aiohttp. It never reads a cache.

Guarantees
- Every request passes `_transmit`. 429 is always tried again (the server did not act on it); 5xx answers,
  refused and cut connections only for calls that may be repeated (get, list, replace, apply, merge patch,
  delete). Retry-After is honoured.
- 401 makes the credentials be read again, once.
- An answer that no API server sends is `Unreachable`, never an object.
- A write that is answered with an object is noted for the reconcile that made it (running.py).
"""

from __future__ import annotations

import asyncio
import builtins
import io
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from elasticjob.kube import running
from elasticjob.kube.backoff import REQUEST
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.config import Config
from elasticjob.kube.errors import (
    ApiError,
    Gone,
    KubeError,
    NotFound,
    Unauthorized,
    Unreachable,
    error_of,
    is_too_large_resource_version,
)
from elasticjob.kube.kinds import Key, Kind, Manifest
from elasticjob.kube.metrics import Metrics

T = TypeVar("T")
Params = Mapping[str, str]
JsonPatchOperation = dict[str, Any]
"""One operation of RFC 6902: `{"op": "test", "path": "/metadata/uid", "value": "…"}`."""

PAGE = 500
ATTEMPTS = 5
TOTAL_TIMEOUT = 60.0
CONNECT_TIMEOUT = 10.0
LONGEST_RETRY_AFTER = 30.0
LARGE = 1 << 19

JSON = "application/json"
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


class _Answer(msgspec.Struct):
    kind: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _PageMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class Page(msgspec.Struct):
    """One page of a list; items are left as bytes."""

    metadata: _PageMeta = msgspec.field(default_factory=_PageMeta)
    items: list[msgspec.Raw] | None = None

    @property
    def version(self) -> str:
        return self.metadata.resource_version

    @property
    def token(self) -> str:
        """What to send as `continue`; "" on the last page."""
        return self.metadata.continue_ or ""


@dataclass(frozen=True)
class Call:
    """One request, before it is sent."""

    method: str
    path: str
    params: Params = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    repeatable: bool = True

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


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
    ) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self._metrics = metrics
        self._user_agent = user_agent
        self._timeout = aiohttp.ClientTimeout(total=timeout, connect=CONNECT_TIMEOUT)
        self._open: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._open = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self.config.ssl or True),
            timeout=self._timeout,
            # compression costs both sides more than it saves inside of a cluster
            headers={"User-Agent": self._user_agent, "Accept": JSON, "Accept-Encoding": "identity"},
            auto_decompress=True,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections, watches too."""
        if self._open:
            await self._open.close()
            self._open = None

    # reading

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T:
        """The object as the server has it now. Raises NotFound."""
        return kind.decode(await self._send(Call("GET", _path(kind, namespace, name))))

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
        body = await self._send(Call("GET", _path(kind, namespace), params))
        try:
            return msgspec.json.decode(body, type=Page)
        except msgspec.DecodeError as error:
            raise Unreachable(f"GET {kind.plural}: the answer is not a list: {error}") from error

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
            body=msgspec.json.encode(manifest),
            repeatable=False,
        )
        answer: Manifest = msgspec.json.decode(await self._send(call))
        return answer

    async def apply(
        self,
        kind: Kind[T],
        manifest: Manifest,
        *,
        manager: str,
        namespace: str | None = None,
        force: bool = True,
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        """Server-side apply: `manager` owns exactly the fields of `manifest` from now on.

        A manifest that carries `metadata.uid` never creates: an object that was deleted meanwhile, or
        replaced by a namesake, raises Conflict. Without `force`, fields of other managers raise Conflict.
        """
        metadata = _metadata(manifest)
        path = _path(kind, namespace or metadata.get("namespace"), metadata["name"], subresource)
        params = {"fieldManager": manager, "force": "true" if force else "false"} | _dry(dry_run)
        return await self._write(kind, Call("PATCH", path, params, _encode(kind, manifest), APPLY))

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
        patch, somebody else's write in between raises Conflict.
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
        grace: int | None = None,
        propagation: str = "Background",
    ) -> None:
        """Have the object deleted; one that is gone already is fine.

        Raises Conflict if its uid is not `uid`.
        """
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        call = Call("DELETE", _path(kind, namespace, name), {}, msgspec.json.encode(options))
        try:
            _note(kind, await self._send(call))
        except NotFound:
            return

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
    ) -> AsyncIterator[bytes]:
        """A pod's log in chunks as they come; with `follow`, until the container ends."""
        params = {"follow": "true"} if follow else {}
        params |= {"container": container} if container else {}
        params |= {"tailLines": str(tail)} if tail is not None else {}
        params |= {"previous": "true"} if previous else {}
        call = Call("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log", params)
        async with self.stream(call) as chunks:
            async for chunk in chunks:
                yield chunk

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[AsyncIterator[bytes]]:
        """The chunks of an answer that may never end. No time limit: the caller watches for silence.

        Raises ApiError or Unreachable when it is refused; Unreachable from the iterator when it is cut.
        """
        response = await self._ask(call, streaming=True)
        try:
            if response.status >= 400:
                raise await _failure(response, call)
            async with aclosing(_chunks(response, call)) as chunks:
                yield chunks
        finally:
            response.close()

    # the one way out

    async def raw(self, method: str, path: str, body: bytes | None = None, **params: str) -> bytes:
        """Any request: the bytes of the answer (`/version`, `/readyz`, a type without a Kind)."""
        return await self._send(Call(method, path, params, body, repeatable=method != "POST"))

    async def _write(self, kind: Kind[T], call: Call) -> T:
        body = await self._send(call)
        if "dryRun" not in call.params:
            _note(kind, body)
        return kind.decode(body)

    async def _send(self, call: Call) -> bytes:
        """The body of a successful answer, after as many attempts as the call allows."""
        for attempt in range(1, ATTEMPTS):
            try:
                return await self._once(call)
            except KubeError as error:
                pause = _pause(error, call, attempt)
                if pause is None:
                    raise
                log.debug("request is tried again", extra={"request": str(call), "error": str(error)})
                await self.clock.sleep(pause)
        return await self._once(call)

    async def _once(self, call: Call) -> bytes:
        response = await self._ask(call)
        try:
            if response.status >= 400:
                raise await _failure(response, call)
            return await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"{call}: the answer was cut: {str(error) or type(error).__name__}") from error
        finally:
            response.release()

    async def _ask(self, call: Call, *, streaming: bool = False) -> aiohttp.ClientResponse:
        """The head of the answer; with newer credentials if the first ones are refused."""
        header = await self.config.credentials.header()
        response = await self._transmit(call, header, streaming)
        if response.status != 401:
            return response
        newer = await self.config.credentials.header(refused=header)
        if newer == header:
            return response
        response.release()
        return await self._transmit(call, newer, streaming)

    async def _transmit(self, call: Call, header: str | None, streaming: bool) -> aiohttp.ClientResponse:
        if self._open is None:
            raise RuntimeError("the client is closed: use it inside `async with Client(config)`")
        headers = {"Authorization": header} if header else {}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        try:
            response = await self._open.request(
                call.method,
                self.config.server.rstrip("/") + quote(call.path),
                params=dict(call.params),
                data=_body(call),
                headers=headers,
                proxy=self.config.proxy,
                server_hostname=self.config.tls_server_name,
                timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT)
                if streaming
                else self._timeout,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._count("<error>", call)
            raise Unreachable(f"{call}: {str(error) or type(error).__name__}") from error
        self._count(str(response.status), call)
        return response

    def _count(self, code: str, call: Call) -> None:
        if self._metrics:
            host = self.config.server.removeprefix("https://").removeprefix("http://")
            self._metrics.requests.labels(code=code, method=call.method, host=host).inc()


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


def _note(kind: Kind[Any], body: bytes) -> None:
    if running.current.get() is None:
        return
    answer = msgspec.json.decode(body, type=_Answer)
    meta = answer.metadata
    if answer.kind == kind.name and meta.resource_version.isdecimal():
        key = Key(meta.namespace, meta.name)
        running.note(running.Written(kind, key, int(meta.resource_version), meta.labels or {}))


def _pause(error: KubeError, call: Call, attempt: int) -> float | None:
    """Seconds until the next attempt; None when the error is the caller's."""
    match error:
        case ApiError() if is_too_large_resource_version(error):
            return None
        case ApiError(status=429, retry_after=after):
            pass
        case ApiError(status=500 | 502 | 503 | 504, retry_after=after) if call.repeatable:
            pass
        case Unreachable() if call.repeatable:
            after = None
        case _:
            return None
    if after is not None:
        return min(after, LONGEST_RETRY_AFTER)
    return REQUEST.delay(attempt, random.random())


def _body(call: Call) -> bytes | io.BytesIO | None:
    """Large bodies as a file, which aiohttp sends in pieces, letting others run."""
    if call.body is None or len(call.body) < LARGE:
        return call.body
    return io.BytesIO(call.body)


async def _failure(response: aiohttp.ClientResponse, call: Call) -> KubeError:
    try:
        body = await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError):
        body = b""
    after = response.headers.get("Retry-After", "")
    error = error_of(response.status, body, str(call), float(after) if after.isdecimal() else None)
    response.release()
    if isinstance(error, Unauthorized):
        log.warning("credentials are refused", extra={"request": str(call)})
    return error


async def _chunks(response: aiohttp.ClientResponse, call: Call) -> AsyncGenerator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError) as error:
        raise Unreachable(f"{call}: the stream was cut: {str(error) or type(error).__name__}") from error
