"""The HTTP surface: a path and a method become a Call, an answer becomes a response."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, cast

from aiohttp import web

from elasticjob.api import core
from elasticjob.devcluster.server.auth.attributes import RequestAttributes, attributes_of, is_old_watch
from elasticjob.devcluster.server.auth.reviews import Answer, Authority, Tokens, answers, review_resources
from elasticjob.devcluster.server.auth.tokens import ANONYMOUS
from elasticjob.devcluster.server.http.call import Call
from elasticjob.devcluster.server.http.logs import Logs
from elasticjob.devcluster.server.http.subresources import Subresources
from elasticjob.devcluster.server.http.tokenrequests import TokenRequests
from elasticjob.devcluster.server.http.verbs import Reply, Verbs
from elasticjob.devcluster.server.model import errors
from elasticjob.devcluster.server.model.asking import User
from elasticjob.devcluster.server.model.errors import StatusError
from elasticjob.devcluster.server.model.registry import Registry, Resource
from elasticjob.devcluster.server.model.store import encode
from elasticjob.devcluster.server.model.target import Target, parse
from elasticjob.devcluster.server.read import discovery
from elasticjob.devcluster.server.read.lists import Form, form_of
from elasticjob.devcluster.server.read.openapi import Documents
from elasticjob.devcluster.server.read.watching import Watch, request_of
from elasticjob.devcluster.server.write import managed
from elasticjob.devcluster.server.write.core import Core
from elasticjob.devcluster.server.write.decoding import decode

_JSON = "application/json"
_PROTOBUF = "protobuf"
_OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_OPEN = ("/healthz", "/readyz", "/livez", "/version")
_OF_COLLECTIONS = ("GET", "POST", "DELETE")
_OF_OBJECTS = (*_OF_COLLECTIONS, "PUT", "PATCH")
Handler = Callable[[Call], Awaitable[Reply]]
Observe = Callable[[web.Request, str, datetime, int], Awaitable[None]]
"""Told of each request as it is answered: the user's name, when it came, and the answer's code."""


class Gate(Authority, Protocol):
    """May they?"""

    @property
    def enforced(self) -> bool:
        """Whether roles count; where they do not, everybody known may do everything."""

    def check(self, user: User, attributes: RequestAttributes) -> None:
        """Raise Forbidden when the user may not."""


class Http:
    """`handle` answers every request."""

    def __init__(
        self,
        core: Core,
        verbs: Verbs,
        subresources: Subresources,
        token_requests: TokenRequests,
        logs: Logs,
        tokens: Tokens,
        gate: Gate,
        now: Callable[[], datetime],
        *,
        bookmark_interval: float,
        watch_timeout: float,
        observe: Observe | None = None,
    ) -> None:
        self._core = core
        self._observe = observe
        self._registry: Registry = core.registry
        self._tokens = tokens
        self._gate = gate
        self._now = now
        self._bookmark_interval = bookmark_interval
        self._watch_timeout = watch_timeout
        self._logs = logs
        self._documents = Documents(self._registry)
        self._reviews: Mapping[str, Answer] = answers(tokens, gate, core.stamp)
        self._review_kinds = review_resources()
        self._handlers = _table(verbs, subresources, token_requests)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request; refusals become Status bodies."""
        began, user = self._now(), ANONYMOUS
        try:
            user = self._authenticate(request)
            attributes = attributes_of(request.method, request.path, request.query)
            self._gate.check(user, attributes)
            answer = await self._answer(request, user, attributes)
        except StatusError as error:
            answer = _response(error.code, encode(error.body()), error.headers)
        except RecursionError:  # deeper than any object of any kind; nothing was stored
            deep = errors.bad_request("the body of the request is nested too deeply")
            answer = _response(deep.code, encode(deep.body()), deep.headers)
        except errors.NoSuchPage:
            answer = web.Response(status=404, text="404 page not found\n")
        if self._observe:
            await self._observe(request, user.name, began, answer.status)
        return answer

    async def _answer(
        self, request: web.Request, user: User, attributes: RequestAttributes
    ) -> web.StreamResponse:
        path = [part for part in request.path.split("/") if part]
        if not attributes.path:
            return await self._resource(request, user, attributes, path)
        if request.method != "GET":
            raise errors.method_not_allowed()
        return self._document(request, path)

    def _authenticate(self, request: web.Request) -> User:
        if any(name.lower().startswith("impersonate-") for name in request.headers):
            raise errors.bad_request("devcluster does not serve impersonation: use a token of that user")
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            if self._gate.enforced or (not scheme and request.path.startswith(_OPEN)):
                return ANONYMOUS
            raise errors.unauthorized()
        user = self._tokens.user_of(token.strip())
        if user is None:
            raise errors.unauthorized()
        return user

    # Documents about the server

    def _document(self, request: web.Request, path: list[str]) -> web.Response:
        if not path:
            return _json(
                {"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]}
            )
        if path[0] in ("healthz", "readyz", "livez"):
            return web.Response(text="ok")
        body = self._describe(request, path)
        if body is None:
            raise errors.NoSuchPage
        return body

    def _describe(self, request: web.Request, path: list[str]) -> web.Response | None:
        accept = request.headers.get("Accept", "")
        if path == ["version"]:
            return _json(_version())
        if path == ["openapi", "v2"] and _PROTOBUF in accept:
            # kubectl asks for it when v3 does not know a kind; an empty document says: v2 neither
            return _response(200, b"", {}, _OPENAPI_V2)
        if path[:2] == ["openapi", "v3"]:
            return self._openapi(path[2:])
        if len(path) == 1 and path[0] in ("api", "apis"):
            core_group = path[0] == "api"
            if discovery.wants_aggregated(accept):
                return _response(
                    200, encode(discovery.aggregate(self._registry, core_group)), {}, discovery.AGGREGATED
                )
            return _json(discovery.core_versions() if core_group else discovery.group_list(self._registry))
        if path[0] == "api":
            return _json(discovery.resource_list(self._registry, "", path[1]))
        if path[0] == "apis":
            found = (
                discovery.group(self._registry, path[1])
                if len(path) == 2
                else discovery.resource_list(self._registry, path[1], path[2])
            )
            if found is None and len(path) == 3 and discovery.group(self._registry, path[1]) is not None:
                raise errors.unknown_path()
            return _json(found)
        return None

    def _openapi(self, path: list[str]) -> web.Response | None:
        if not path:
            return _json(self._documents.index())
        raw = self._documents.document("/".join(path))
        return _response(200, raw) if raw is not None else web.Response(status=404)

    # Resources

    async def _resource(
        self, request: web.Request, user: User, attributes: RequestAttributes, path: list[str]
    ) -> web.StreamResponse:
        review = self._review_kinds.get(attributes.resource)
        if review is not None and review.group == attributes.group and attributes.resource in self._reviews:
            return await self._review(request, user, attributes, review)
        query = cast(Mapping[str, str], request.query)
        prefix = 2 if path[0] == "api" else 3
        if is_old_watch(path[prefix:]):
            path = path[:prefix] + path[prefix + 1 :]
            query = {**query, "watch": "true"} | (
                {"fieldSelector": f"metadata.name={attributes.name}"} if attributes.name else {}
            )
        target = parse(path, self._registry)
        form = form_of(request.headers.get("Accept", ""), query)
        verb = attributes.verb
        if request.method not in (_OF_OBJECTS if target.name else _OF_COLLECTIONS):
            raise errors.method_not_allowed()
        if verb == "watch":
            return await self._watch(request, replace(target, name=""), query, form)
        if target.subresource == "log":
            return await self._logs.serve(request, target)
        if verb == "create" and target.name and not target.subresource:
            raise errors.method_not_allowed()
        handler = self._handlers.get((verb, target.subresource)) or self._handlers.get((verb, _own(target)))
        if handler is None:
            raise errors.method_not_allowed()
        call = await self._call(request, user, target, query, form)
        reply = await handler(call)
        return _compress(request, _response(reply.code, reply.body, _warnings(reply.warnings)))

    async def _review(
        self, request: web.Request, user: User, attributes: RequestAttributes, resource: Resource
    ) -> web.Response:
        if attributes.name or bool(attributes.namespace) != resource.namespaced:
            raise errors.unknown_path()
        if request.method != "POST":
            raise errors.method_not_allowed()
        target = Target(resource, attributes.namespace)
        call = await self._call(request, user, target, request.query, form_of("", {}))
        options, warnings = call.options(), list[str]()
        review = decode(resource, attributes.namespace, call.manifest(), options.field_validation, warnings)
        answer = self._reviews[resource.plural](review, user)
        if book := managed.fields_of_create(review, resource.schema, self._core.writer(resource, options)):
            review["metadata"]["managedFields"] = book
        return _response(201, encode(review | answer), _warnings(warnings))

    async def _call(
        self, request: web.Request, user: User, target: Target, query: Mapping[str, str], form: Form
    ) -> Call:
        return Call(
            request.method,
            target,
            query,
            form,
            user,
            request.headers.get("User-Agent", ""),
            request.content_type if request.headers.get("Content-Type") else "",
            await request.read(),
        )

    async def _watch(
        self, request: web.Request, target: Target, query: Mapping[str, str], form: Form
    ) -> web.StreamResponse:
        asked = request_of(target, query, form, self._watch_timeout)
        try:
            watch = Watch(self._core.store, asked, query, self._now, self._bookmark_interval)
        except StatusError as error:
            if error.code != 410 or asked.initial:
                raise
            return _response(200, encode({"type": "ERROR", "object": error.body()}) + b"\n")
        response = web.StreamResponse(headers={"Content-Type": _JSON, "Cache-Control": "no-cache, private"})
        try:
            await response.prepare(request)
            async for lines in watch.lines():
                await response.write(lines)
            await response.write_eof()
        except ConnectionResetError:  # the client went away, as watchers do
            pass
        finally:
            watch.close()
        return response


def _own(target: Target) -> str:
    """Status and resize are halves of the object itself: the plain verbs serve them."""
    return "" if target.subresource in ("status", "resize", "") else "?"


def _table(
    verbs: Verbs, subresources: Subresources, token_requests: TokenRequests
) -> dict[tuple[str, str], Handler]:
    """(verb, subresource) → handler."""
    return {
        ("get", ""): verbs.get,
        ("list", ""): verbs.collection,
        ("create", ""): verbs.create,
        ("update", ""): verbs.update,
        ("patch", ""): verbs.patch,
        ("delete", ""): verbs.delete,
        ("deletecollection", ""): verbs.delete_collection,
        ("get", "scale"): subresources.get_scale,
        ("update", "scale"): subresources.put_scale,
        ("patch", "scale"): subresources.patch_scale,
        ("create", "binding"): subresources.bind,
        ("create", "eviction"): subresources.evict,
        ("create", "token"): token_requests.answer,
        ("update", "finalize"): subresources.finalize,
    }


def _version() -> dict[str, Any]:
    text = "v" + core.document()["version"].removeprefix("v")
    major, minor = text[1:].split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "gitVersion": text,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def _warnings(warnings: list[str]) -> list[tuple[str, str]]:
    escaped = (each.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for each in warnings)
    return [("Warning", f'299 - "{each}"') for each in escaped]


def _json(body: Any, code: int = 200) -> web.Response:
    if body is None:
        raise errors.NoSuchPage
    return _response(code, encode(body))


def _response(code: int, body: bytes, headers: Any = (), content_type: str = _JSON) -> web.Response:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    answer = web.Response(
        status=code, body=body, headers={"Content-Type": content_type, "Cache-Control": "no-cache, private"}
    )
    for name, value in pairs:
        answer.headers.add(name, value)
    return answer


def _compress(request: web.Request, response: web.Response) -> web.Response:
    body = cast(bytes, response.body)
    if len(body) > 131_072 and "gzip" in request.headers.get("Accept-Encoding", ""):
        packer = zlib.compressobj(1, wbits=31)
        response.body = packer.compress(body) + packer.flush()
        response.headers["Content-Encoding"] = "gzip"
    return response
