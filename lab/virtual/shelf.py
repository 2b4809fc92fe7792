"""A minimal API server: get, create, apply, merge patch, watches of one name.

For tests in virtual time. It refuses a write whose resourceVersion is not the newest, as the real one does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
from aiohttp import web

from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.clock import Clock, VirtualClock
from lab.build.objects import bookmark, event, status
from tests.kit.kube.listening import Listening

Manifest = dict[str, Any]


class Shelf(Listening):
    """`objects` by path, to be looked at and spoiled by tests; `refuse` is the answer to all requests."""

    def __init__(self) -> None:
        self.objects: dict[str, Manifest] = {}
        self.writes: list[str] = []
        self.refuse = 0
        self._versions: Iterator[int] = iter(range(2, 1 << 30))
        self._watches: list[tuple[str, asyncio.Queue[bytes]]] = []

    def client(self, clock: Clock | None = None) -> Client:
        return Client(Config(self.url), clock=clock or VirtualClock())

    def named(self, plural: str, name: str) -> Manifest:
        """The object of this name."""
        return next(each for path, each in self.objects.items() if path.endswith(f"/{plural}/{name}"))

    def spoil(self, plural: str, name: str, **members: Any) -> None:
        """Overwrite members of an object, as another writer."""
        path = next(path for path in self.objects if path.endswith(f"/{plural}/{name}"))
        self._put(path, self.objects[path] | members)

    def put(self, path: str, manifest: Manifest) -> None:
        """Have an object be there."""
        self._put(path, manifest)

    def remove(self, plural: str, name: str) -> None:
        """Delete an object, as another writer."""
        del self.objects[next(path for path in self.objects if path.endswith(f"/{plural}/{name}"))]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request)
        if self.refuse:
            return _json(self.refuse, status(self.refuse, "Forbidden"))
        if request.method == "GET":
            found = self.objects.get(request.path)
            return _json(200, found) if found else _json(404, status(404, "NotFound"))
        return self._write(request.path, request.method, msgspec.json.decode(await request.read()))

    def _write(self, path: str, method: str, body: Manifest) -> web.Response:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return _json(409, status(409, "AlreadyExists"))
        known = self.objects.get(path)
        if known is None and method == "PATCH":
            return _json(404, status(404, "NotFound"))
        asked = body["metadata"].pop("resourceVersion", "")
        if known and asked and asked != known["metadata"]["resourceVersion"]:
            return _json(409, status(409, "Conflict"))
        self.writes.append(path)
        return _json(200, self._put(path, merged(known or {}, body)))

    def _put(self, path: str, manifest: Manifest) -> Manifest:
        metadata = manifest["metadata"] | {"resourceVersion": str(next(self._versions))}
        self.objects[path] = made = manifest | {"metadata": metadata}
        for watched, queue in self._watches:
            if watched == path:
                queue.put_nowait(event("MODIFIED", made))
        return made

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        name = request.query["fieldSelector"].removeprefix("metadata.name=")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(bookmark(1, initial_done=True))
        self._watches.append((f"{request.path}/{name}", queue))
        while True:
            await response.write(await queue.get())


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    kept = dict(old) if isinstance(old, dict) else {}
    changed = {name: merged(kept.get(name), value) for name, value in patch.items() if value is not None}
    return {name: value for name, value in (kept | changed).items() if patch.get(name, value) is not None}


def _json(code: int, body: Any) -> web.Response:
    return web.Response(status=code, body=msgspec.json.encode(body), content_type="application/json")
