"""An API server in a dict, for tests in virtual time: the verbs of the client, with delays and errors.

It knows no schemas, and by server-side apply all lists are atomic; `tests/lab/test_server.py` compares it
with devcluster's.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from itertools import islice
from random import Random
from typing import Any, Final

import msgspec

from elasticjob.api.resources import Amount
from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.protocol import Removed, Upserted
from elasticjob.kube.client import writes
from elasticjob.kube.client.transport import Call
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound, ServerError, Unreachable
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import POD, SERVICE
from lab.build.objects import as_item, bookmark, event
from lab.truths.quota import is_true

Listener = Callable[[str, Manifest | None, Manifest | None], None]
"""Called with each change: the resource, and the object before and after."""
Change = tuple[Manifest | None, Manifest | None]
"""An object before and after."""
Fault = Callable[[str, Kind[Any], str], Exception | None]
"""The error of a request: verb, kind and name."""
OF_SERVER: Final = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"}
)
"""Fields of metadata that no client decides."""


class Verbs(ABC):
    """The client's verbs, as one program calls them."""

    server: Server

    @abstractmethod
    async def asked(self, verb: str, kind: Kind[Any], name: str) -> None:
        """The way of a request to the server. Raises what keeps it from getting there."""

    @abstractmethod
    async def answered(self) -> None:
        """The way back of an answer, which may be lost."""

    async def _written(self, kind: Kind[Any], stored: Manifest) -> Any:
        await self.answered()
        about = stored["metadata"]
        key = Key(about.get("namespace", ""), about["name"])
        writes.note(writes.Written(kind, key, int(about["resourceVersion"]), about.get("labels") or {}))
        return _read(kind, stored)

    async def create(
        self, kind: Kind[Any], manifest: Manifest, namespace: str | None = None, *, dry_run: bool = False
    ) -> Any:
        about = manifest["metadata"]
        await self.asked("create", kind, about["name"])
        if self.server.found(kind, about["name"], about.get("namespace", "")):
            raise AlreadyExists(409, "AlreadyExists", f"{kind.name} {about['name']} exists")
        rest = {name: value for name, value in manifest.items() if name != "status"}
        return await self._written(kind, self.server.put(kind, {**rest, "metadata": _own(about)}))

    async def apply(
        self, kind: Kind[Any], manifest: Manifest, *, manager: str, subresource: str = "", **_: Any
    ) -> Any:
        await self.asked("apply", kind, manifest["metadata"]["name"])
        return await self._written(kind, self.server.apply_now(kind, manifest, manager, subresource))

    async def merge_patch(
        self,
        kind: Kind[Any],
        name: str,
        patch: Manifest,
        namespace: str | None = None,
        *,
        subresource: str = "",
        strategic: bool = False,
    ) -> Any:
        await self.asked("patch", kind, name)
        old = self.server.lookup(kind, name, namespace or "")
        about = patch.get("metadata", {})
        _check_preconditions(old, about)
        if subresource == "resize":
            raise NotFound(404, "NotFound", "the server has no such subresource")
        given = {subresource: patch[subresource]} if subresource else {**patch}
        if not subresource:
            given.pop("status", None)
            rest = {n: v for n, v in about.items() if n not in ("uid", "resourceVersion")}
            given = {**given, "metadata": rest}
        new = _merged(old, given, drop=True)
        if kind.resource == WORKLOAD.resource:
            _check_workload(old, new)
        return await self._written(kind, self.server.update(kind, old, new))

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        version: str | None = None,
        grace: int | None = None,
        propagation: str = "Background",
    ) -> None:
        await self.asked("delete", kind, name)
        key = Key((namespace or "") if kind.namespaced else "", name)
        old = self.server.found(kind, *reversed(key))
        if old is None:
            if uid is not None:
                writes.note(writes.Written(kind, key, gone=uid))
            return
        about = old["metadata"]
        _check_preconditions(old, {"uid": uid, "resourceVersion": version})
        left = self.server.remove(kind, old, grace)
        if left is not None:
            await self._written(kind, left)
            return
        await self.answered()
        writes.note(writes.Written(kind, key, gone=about["uid"]))

    async def get(self, kind: Kind[Any], name: str, namespace: str | None = None) -> Any:
        await self.asked("get", kind, name)
        return _read(kind, self.server.lookup(kind, name, namespace or ""))

    async def find(self, kind: Kind[Any], name: str, namespace: str | None = None) -> Any:
        try:
            return await self.get(kind, name, namespace)
        except NotFound:
            return None

    async def list(
        self, kind: Kind[Any], namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Any]:
        await self.asked("list", kind, "")
        wanted = dict(term.split("=") for term in labels.split(",") if term)
        found = [
            _read(kind, each)
            for each in self.server.every(kind)
            if wanted.items() <= (each["metadata"].get("labels") or {}).items()
            and namespace in ("", None, each["metadata"].get("namespace", ""))
        ]
        await self.answered()
        return found

    async def logs(self, name: str, namespace: str, **_: Any) -> AsyncIterator[bytes]:
        """The log of a pod, in which nothing is."""
        await self.get(POD, name, namespace)
        await self.answered()
        yield b""

    @asynccontextmanager
    async def stream(self, call: Call, *, patience: float = 0.0) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch of all objects, or of one by its name, in one namespace or in all of them."""
        lines = asyncio.Queue[bytes]()
        _, _, only = call.params.get("fieldSelector", "").partition("metadata.name=")

        def tell(resource: str, old: Manifest | None, new: Manifest | None) -> None:
            one = new or old or {}
            kind, about = self.server.kinds[resource], one["metadata"]
            of = call.path in (kind.path(), kind.path(about.get("namespace", "")))
            if of and only in ("", about["name"]):
                type_ = "DELETED" if new is None else "ADDED" if old is None else "MODIFIED"
                lines.put_nowait(event(type_, one))

        if since := call.params.get("resourceVersion"):
            for change in self.server.history[int(since) :]:
                tell(*change)
        else:
            for resource, objects in self.server.objects.items():
                for each in objects.values():
                    tell(resource, None, each)
            lines.put_nowait(bookmark(self.server.version, initial_done=True))
        self.server.listen(tell)
        try:
            yield _each(lines)
        finally:
            self.server.deafen(tell)

    async def raw(self, method: str, path: str, *_: Any, **__: str) -> bytes:
        """The version of a list, without its items: an informer asks for it whose watch is silent."""
        await self.server.pause()
        return msgspec.json.encode({"metadata": {"resourceVersion": str(self.server.version)}, "items": []})

    def measure(self, _: Any) -> None:  # noqa: B027  # nothing is counted
        ...


class Server(Verbs):
    """All objects. What is stored is never changed in place, so that a reference is a snapshot.

    Without `chance` it answers at once; `fault` may return the error of a request.
    """

    def __init__(self, clock: Clock | None = None, chance: Random | None = None) -> None:
        self.server, self.clock, self.chance = self, clock or SystemClock(), chance
        self.objects: dict[str, dict[Key, Manifest]] = {}
        self.version = 0
        self.requests: list[tuple[str, str, str]] = []
        """The verb, the kind and the name of each request."""
        self.fault: Fault = lambda *_: None
        self.away = False
        self.halves = False
        """Whether a webhook of others halves what pods ask for."""
        self.trouble = 0.0
        """How likely a request fails."""
        self._born = 0
        self.kinds: dict[str, Kind[Any]] = {}
        self._listeners: list[Listener] = []
        self.history: list[tuple[str, Manifest | None, Manifest | None]] = []
        """The changes, by their resourceVersions from 1."""
        self._applied: dict[tuple[str, str, str], Manifest] = {}

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def deafen(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    def every(self, kind: Kind[Any]) -> list[Manifest]:
        return list(self.objects.get(kind.resource, {}).values())

    def found(self, kind: Kind[Any], name: str, namespace: str = "") -> Manifest | None:
        return self.objects.get(kind.resource, {}).get(Key(namespace, name))

    def past(self, resource: str, behind: int) -> tuple[list[Manifest], int, list[Change]]:
        """Return the objects of a kind before its last changes, the version then, and those changes."""
        objects, missed, version = dict(self.objects.get(resource, {})), list[Change](), self.version
        newest = ((n, change) for n, change in reversed([*enumerate(self.history)]) if change[0] == resource)
        for number, (_, old, new) in islice(newest, behind):
            missed.insert(0, (old, new))
            version = number
            if old is None:
                del objects[_key(new or {})]
            else:
                objects[_key(old)] = old
        return list(objects.values()), version, missed

    def lookup(self, kind: Kind[Any], name: str, namespace: str = "") -> Manifest:
        """Return an object. Raises NotFound."""
        found = self.found(kind, name, namespace if kind.namespaced else "")
        if found is None:
            raise NotFound(
                404, "NotFound", f"{kind.name} {name} not found", {"name": name, "kind": kind.plural}
            )
        return found

    @property
    def writes(self) -> list[tuple[str, str, str]]:
        """The requests that may change something."""
        return [each for each in self.requests if each[0] not in ("get", "list")]

    # the way of a request

    async def asked(self, verb: str, kind: Kind[Any], name: str) -> None:
        self.requests.append((verb, kind.name, name))
        await self.pause()
        if self.away:
            raise Unreachable("connection refused", never_sent=True)
        if self._fails():
            raise ServerError(500, "InternalError", "etcdserver: request timed out")
        if error := self.fault(verb, kind, name):
            raise error

    async def answered(self) -> None:
        await self.pause()
        if self.away or self._fails():
            raise Unreachable("connection reset")

    async def pause(self) -> None:
        """Wait for as long as half of a request takes."""
        await asyncio.sleep(self.chance.choice((0.001, 0.002, 0.01)) if self.chance else 0)

    def _fails(self) -> bool:
        return self.chance is not None and self.chance.random() < self.trouble

    # what others do, without delay

    def put(self, kind: Kind[Any], made: Manifest) -> Manifest:
        """Create an object, with a uid and a time of its own unless it says which."""
        self._born += 1
        about = {
            "generation": 1,
            "uid": f"uid-{self._born}",
            "creationTimestamp": timestamp(self.clock.now()),
            **deepcopy(made["metadata"]),
        }
        stored = {"apiVersion": kind.api_version, "kind": kind.name, **deepcopy(made), "metadata": about}
        if kind.resource == SERVICE.resource:
            stored["spec"] = {"clusterIP": f"10.0.0.{self._born % 250}", **stored.get("spec", {})}
        if kind.resource == POD.resource:
            stored.setdefault("status", {"phase": "Pending"})
            stored["spec"] = _halved(stored["spec"]) if self.halves else stored["spec"]
        return self._store(kind, None, stored)

    def change(self, kind: Kind[Any], old: Manifest, **fields: Any) -> Manifest:
        """Replace fields of an object: spec, status, or metadata."""
        return self.update(kind, old, {**old, **fields})

    def remove(self, kind: Kind[Any], old: Manifest, grace: int | None = None) -> Manifest | None:
        """Delete an object: it stays while it has finalizers, and a pod while it runs."""
        about = old["metadata"]
        stays = bool(about.get("finalizers"))
        if kind.resource == POD.resource and grace != 0 and old["spec"].get("nodeName"):
            stays = stays or old["status"]["phase"] in ("Pending", "Running")
        if not stays:
            self._store(kind, old, None)
            return None
        if "deletionTimestamp" in about:
            return old
        gone = {**about, "deletionTimestamp": timestamp(self.clock.now())}
        gone["generation"] = about["generation"] + (kind.resource != POD.resource)
        return self.update(kind, old, {**old, "metadata": gone})

    def collect(self) -> None:
        """What has lost its owner goes."""
        uids = {each["metadata"]["uid"] for found in self.objects.values() for each in found.values()}
        for resource, found in self.objects.items():
            kind = self.kinds[resource]
            for each in list(found.values()):
                owners = each["metadata"].get("ownerReferences", [])
                if owners and not any(owner["uid"] in uids for owner in owners):
                    self.remove(kind, each)

    def _store(self, kind: Kind[Any], old: Manifest | None, new: Manifest | None) -> Manifest:
        self.kinds[kind.resource] = kind
        self.version += 1
        found = self.objects.setdefault(kind.resource, {})
        if new is None:
            assert old is not None
            gone = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
            del found[_key(old)]
            self._tell(kind, gone, None)
            return gone
        stored = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}
        found[_key(stored)] = stored
        self._tell(kind, old, stored)
        return stored

    def _tell(self, kind: Kind[Any], old: Manifest | None, new: Manifest | None) -> None:
        self.history.append((kind.resource, old, new))
        for listener in tuple(self._listeners):
            listener(kind.resource, old, new)

    def update(self, kind: Kind[Any], old: Manifest, new: Manifest) -> Manifest:
        if new == old:
            return old
        about = {name: value for name, value in new["metadata"].items() if value not in ([], {})}
        if new.get("spec") != old.get("spec"):
            about["generation"] = old["metadata"].get("generation", 1) + 1
        if "deletionTimestamp" in about and not about.get("finalizers") and kind.resource != POD.resource:
            self._store(kind, {**new, "metadata": about}, None)
            return {**new, "metadata": about}
        return self._store(kind, old, {**new, "metadata": about})

    def apply_now(self, kind: Kind[Any], manifest: Manifest, manager: str, subresource: str = "") -> Manifest:
        """Server-side apply: `manager` owns exactly these fields from now on, unless others change them."""
        about, parts = manifest["metadata"], manifest.keys() - {"apiVersion", "kind", "status"}
        given = {part: manifest[part] for part in ([subresource] if subresource else parts)}
        old = self.found(kind, about["name"], about.get("namespace", ""))
        if old is None and subresource:
            self.lookup(kind, about["name"], about.get("namespace", ""))
        if old is None and about.get("uid"):
            raise Conflict(409, "Conflict", f"{kind.name} {about['name']} is gone")
        if old:
            _check_preconditions(old, about)
            mark = (old["metadata"]["uid"], manager, subresource)
            new = self.update(kind, old, _merged(_without(old, self._applied.get(mark, {}), given), given))
        else:
            new = self.put(kind, {**given, "metadata": _own(about)})
            mark = (new["metadata"]["uid"], manager, subresource)
        self._applied[mark] = {**given, "metadata": {"annotations": _annotations(given)}}
        return new


def follow(server: Server, cache: Cache[Any]) -> None:
    """Have a cache show each change at once."""

    def take(resource: str, old: Manifest | None, new: Manifest | None) -> None:
        if resource == cache.kind.resource:
            cache.tell(cache.take(Removed(as_item(old or {})) if new is None else Upserted(as_item(new))))

    server.listen(take)


def _halved(spec: Manifest) -> Manifest:
    [container] = spec["containers"]
    amount = Amount.parse(container["resources"]["requests"]["cpu"]).value * 500
    made = {**container, "resources": {**container["resources"], "requests": {"cpu": f"{int(amount)}m"}}}
    return {**spec, "containers": [made]}


def _check_preconditions(old: Manifest, expected: Manifest) -> None:
    """Raise Conflict for another object, or for another version of it, than a request names."""
    for field in ("uid", "resourceVersion"):
        if expected.get(field) and expected[field] != old["metadata"][field]:
            raise Conflict(409, "Conflict", f"{field} differs")


async def _each(lines: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
    while True:
        yield await lines.get()


def _check_workload(old: Manifest, new: Manifest) -> None:
    """Kueue's webhook."""
    reserved = is_true(new, "QuotaReserved")
    if reserved and not new.get("status", {}).get("admission"):
        raise Forbidden(403, "Forbidden", "status.admission: Required value")
    if reserved and is_true(old, "QuotaReserved"):
        before, after = old["spec"]["podSets"], new["spec"]["podSets"]
        if [each["template"] for each in before] != [each["template"] for each in after]:
            raise Forbidden(403, "Forbidden", "spec.podSets: field is immutable")


def _key(stored: Manifest) -> Key:
    about = stored["metadata"]
    return Key(about.get("namespace", ""), about["name"])


def _read(kind: Kind[Any], stored: Manifest) -> Any:
    return stored if kind.model is dict else kind.decode(msgspec.json.encode(stored))


def _own(about: Manifest) -> Manifest:
    """The metadata of a new object, without what no client decides."""
    return {name: value for name, value in about.items() if name not in OF_SERVER}


def _annotations(given: Manifest) -> Manifest:
    return dict(given.get("metadata", {}).get("annotations", {}))


def _merged(old: Any, new: Manifest, *, drop: bool = False) -> Manifest:
    """RFC 7386; the same for server-side apply, in which all lists are atomic here."""
    found = dict(old) if isinstance(old, dict) else {}
    for name, value in new.items():
        if value is None and drop:
            found.pop(name, None)
        elif isinstance(value, dict):
            found[name] = _merged(found.get(name), value, drop=drop)
        else:
            found[name] = value
    return found


def _without(old: Manifest, before: Manifest, now: Manifest) -> Manifest:
    """Return an object without what its manager applied before, does not any more, and nobody has changed."""
    found = dict(old)
    for name, value in before.items():
        if name not in found:
            continue
        if isinstance(value, dict) and isinstance(found[name], dict):
            left = _without(found[name], value, now.get(name) or {})
            if left or name in now:
                found[name] = left
            else:
                del found[name]
        elif name not in now and found[name] == value:
            del found[name]
    return found
