"""An API server in a dict, for tests in virtual time: the verbs of the client, with delays and errors.

It knows no schemas, and by server-side apply all lists are atomic; `tests/lab/test_server.py` compares it
with devcluster's.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from random import Random
from typing import Any, Final

import msgspec

from elasticjob.api.resources import Amount
from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.devcluster.server.model.errors import StatusError
from elasticjob.devcluster.server.write.patches import json_patch
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.protocol import Removed, Upserted
from elasticjob.kube.client import writes
from elasticjob.kube.client.transport import Call
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    Unreachable,
)
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import POD, SERVICE
from lab.build.objects import as_item, bookmark, event
from lab.truths.quota import is_true
from lab.virtual.admission import Admission, as_api_error, decoded, scale_of, sized

Listener = Callable[[str, Manifest | None, Manifest | None], None]
"""Called with each change: the resource, and the object before and after."""
Change = tuple[Manifest | None, Manifest | None]
"""An object before and after."""
Compute = Callable[[Manifest], Manifest]
Fault = Callable[[str, Kind[Any], str], Exception | None]
"""The error of a request: verb, kind and name."""
ATTEMPTS: Final = 8
"""How often an update is computed again, as devcluster does."""
OF_SERVER: Final = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"}
)
"""Fields of metadata that no client decides."""


class Verbs(ABC):
    """The client's verbs, as one program calls them."""

    server: Server
    user = ""
    """As whom webhooks see the program."""

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
        rest = {name: value for name, value in manifest.items() if name != "status"}
        about = {**({"namespace": namespace} if namespace else {}), **_own(about)}
        made = self.server.begin(kind, {**rest, "metadata": about})
        made = await self.server.admit(kind, None, made, "", self.user)
        if dry_run:
            return _read(kind, made)
        return await self._written(kind, self.server.add(kind, made))

    async def apply(
        self,
        kind: Kind[Any],
        manifest: Manifest,
        *,
        manager: str,
        namespace: str | None = None,
        subresource: str = "",
        **_: Any,
    ) -> Any:
        about = {**({"namespace": namespace} if namespace else {}), **manifest["metadata"]}
        manifest, server = {**manifest, "metadata": about}, self.server
        await self.asked("apply", kind, about["name"])

        def applied(old: Manifest | None) -> Manifest:
            return server.applied(kind, old, manifest, manager, subresource)

        if server.found(kind, about["name"], about.get("namespace", "")):
            stored = await server.rewrite(kind, _key(manifest), applied, subresource, self.user)
        else:
            stored = server.add(kind, await server.admit(kind, None, applied(None), subresource, self.user))
        server.own(stored, manifest, manager, subresource)
        return await self._written(kind, stored)

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
        about = patch.get("metadata", {})

        def merged(old: Manifest) -> Manifest:
            _check_preconditions(old, about)
            if subresource == "resize":
                raise NotFound(404, "NotFound", "the server has no such subresource")
            if subresource == "scale":
                return sized(kind, old, patch)
            given = {subresource: patch[subresource]} if subresource else {**patch}
            if not subresource:
                given.pop("status", None)
                rest = {n: v for n, v in about.items() if n not in ("uid", "resourceVersion")}
                given = {**given, "metadata": rest}
            new = _merged(old, given, drop=True)
            if kind.resource == WORKLOAD.resource:
                _check_workload(old, new)
            return new

        return await self._rewrite(kind, name, namespace, merged, subresource)

    async def json_patch(
        self,
        kind: Kind[Any],
        name: str,
        operations: Sequence[Manifest],
        namespace: str | None = None,
        *,
        subresource: str = "",
    ) -> Any:
        await self.asked("patch", kind, name)

        def patched(old: Manifest) -> Manifest:
            try:
                new: Manifest = json_patch(old, list(operations))
            except StatusError as error:
                raise as_api_error(error) from error
            _check_preconditions(old, new["metadata"])
            return _replaced(old, new, subresource)

        return await self._rewrite(kind, name, namespace, patched, subresource)

    async def replace(
        self, kind: Kind[Any], manifest: Manifest, namespace: str | None = None, *, subresource: str = ""
    ) -> Any:
        about = manifest["metadata"]
        await self.asked("replace", kind, about["name"])

        def replaced(old: Manifest) -> Manifest:
            _check_preconditions(old, about)
            if not about.get("resourceVersion"):
                why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
                raise Invalid(422, "Invalid", f"{kind.name} {about['name']} is invalid: {why}")
            return _replaced(old, manifest, subresource)

        where = namespace or about.get("namespace")
        return await self._rewrite(kind, about["name"], where, replaced, subresource)

    async def _rewrite(
        self, kind: Kind[Any], name: str, namespace: str | None, compute: Compute, subresource: str
    ) -> Any:
        key = Key((namespace or "") if kind.namespaced else "", name)
        stored = await self.server.rewrite(kind, key, compute, subresource, self.user)
        if subresource == "scale":
            await self.answered()
            return _read(kind, scale_of(kind, stored))
        return await self._written(kind, stored)

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

    async def get(
        self, kind: Kind[Any], name: str, namespace: str | None = None, *, subresource: str = ""
    ) -> Any:
        await self.asked("get", kind, name)
        found = self.server.lookup(kind, name, namespace or "")
        return _read(kind, scale_of(kind, found) if subresource == "scale" else found)

    async def find(self, kind: Kind[Any], name: str, namespace: str | None = None) -> Any:
        try:
            return await self.get(kind, name, namespace)
        except NotFound:
            return None

    async def list(
        self, kind: Kind[Any], namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Any]:
        await self.asked("list", kind, "")
        wanted = _terms(labels)
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
        """A watch of all objects in one namespace or in all of them: of one by its name, or by labels."""
        lines = asyncio.Queue[bytes]()
        _, _, only = call.params.get("fieldSelector", "").partition("metadata.name=")
        labels = _terms(call.params.get("labelSelector", ""))

        def fits(one: Manifest | None) -> bool:
            about = (one or {}).get("metadata", {})
            return only in ("", about.get("name")) and labels.items() <= (about.get("labels") or {}).items()

        def tell(resource: str, old: Manifest | None, new: Manifest | None) -> None:
            one = new or old or {}
            kind, was, is_ = self.server.kinds[resource], old and fits(old), new and fits(new)
            if call.path in (kind.path(), kind.path(one["metadata"].get("namespace", ""))) and (was or is_):
                type_ = "DELETED" if not is_ else "MODIFIED" if was else "ADDED"
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
        self.writer = ""
        """The program whose request is carried out."""
        self.requests: list[tuple[str, str, str]] = []
        """The verb, the kind and the name of each request."""
        self.fault: Fault = lambda *_: None
        self.away = False
        self.halves = False
        """Whether a webhook of others halves what pods ask for."""
        self.trouble = 0.0
        """How likely a request fails."""
        self.admission: Admission | None = None
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
        return self._store(kind, None, self.begin(kind, made))

    def begin(self, kind: Kind[Any], made: Manifest) -> Manifest:
        """Return a new object with what the server gives it."""
        self._born += 1
        made = msgspec.json.decode(msgspec.json.encode(made))
        about = {
            "generation": 1,
            "uid": f"uid-{self._born}",
            "creationTimestamp": timestamp(self.clock.now()),
            **made["metadata"],
        }
        begun = {"apiVersion": kind.api_version, "kind": kind.name, **made, "metadata": about}
        if kind.resource == SERVICE.resource:
            begun["spec"] = {"clusterIP": f"10.0.0.{self._born % 250}", **begun.get("spec", {})}
        if kind.resource == POD.resource:
            begun.setdefault("status", {"phase": "Pending"})
            begun["spec"] = _halved(begun["spec"]) if self.halves else begun["spec"]
        return begun

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
        old = self.found(kind, *reversed(_key(manifest)))
        new = self.applied(kind, old, manifest, manager, subresource)
        stored = self.update(kind, old, new) if old else self._store(kind, None, new)
        self.own(stored, manifest, manager, subresource)
        return stored

    def applied(
        self, kind: Kind[Any], old: Manifest | None, manifest: Manifest, manager: str, subresource: str
    ) -> Manifest:
        """Return an object as `manager` applies it."""
        about, given = manifest["metadata"], _given(manifest, subresource)
        if old is None and subresource:
            self.lookup(kind, about["name"], about.get("namespace", ""))
        if old is None and about.get("uid"):
            raise Conflict(409, "Conflict", f"{kind.name} {about['name']} is gone")
        if old is None:
            return self.begin(kind, {**given, "metadata": _own(about)})
        _check_preconditions(old, about)
        before = self._applied.get((old["metadata"]["uid"], manager, subresource), {})
        return _merged(_without(old, before, given), given)

    def own(self, stored: Manifest, manifest: Manifest, manager: str, subresource: str) -> None:
        """Note what `manager` has applied."""
        given = _given(manifest, subresource)
        mark = (stored["metadata"]["uid"], manager, subresource)
        self._applied[mark] = {**given, "metadata": {"annotations": _annotations(given)}}

    # what programs do, as admission lets it

    async def admit(
        self, kind: Kind[Any], old: Manifest | None, new: Manifest, subresource: str, user: str
    ) -> Manifest:
        admission = self.admission
        return await admission.admit(kind, old, new, subresource, user) if admission else new

    def add(self, kind: Kind[Any], made: Manifest) -> Manifest:
        """Store a new object. Raises AlreadyExists."""
        about = made["metadata"]
        if self.found(kind, about["name"], about.get("namespace", "")):
            raise AlreadyExists(409, "AlreadyExists", f"{kind.name} {about['name']} exists")
        return self._store(kind, None, made)

    async def rewrite(
        self, kind: Kind[Any], key: Key, compute: Compute, subresource: str, user: str
    ) -> Manifest:
        """Store `compute(old)`; once more where the object has changed while admission was reading."""
        for _ in range(ATTEMPTS):
            old = self.lookup(kind, key.name, key.namespace)
            new = await self.admit(kind, old, compute(old), subresource, user)
            if self.found(kind, *reversed(key)) is old:
                return self.update(kind, old, new)
        raise Conflict(409, "Conflict", f"{kind.name} {key.name} changes all the time")


class Instant(Verbs):
    """A client whose requests take no time: with it admission never waits."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def asked(self, *_: Any) -> None: ...

    async def answered(self) -> None: ...


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


def _terms(selector: str) -> dict[str, str]:
    """Return what a selector of labels says, if it is made of equalities."""
    return dict(term.split("=") for term in selector.split(",") if term)


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
    return stored if kind.model is dict else decoded(kind, msgspec.json.encode(stored))


def _own(about: Manifest) -> Manifest:
    """The metadata of a new object, without what no client decides."""
    return {name: value for name, value in about.items() if name not in OF_SERVER}


def _given(manifest: Manifest, subresource: str) -> Manifest:
    """What is applied: all but the status, or one subresource."""
    parts = [subresource] if subresource else manifest.keys() - {"apiVersion", "kind", "status"}
    return {part: manifest[part] for part in parts}


def _replaced(old: Manifest, new: Manifest, subresource: str) -> Manifest:
    """The new object or its status, with what no client decides from the old one."""
    if subresource:
        return {**old, subresource: new[subresource]}
    kept = {name: old["metadata"][name] for name in OF_SERVER if name in old["metadata"]}
    rest = {name: value for name, value in new.items() if name not in ("metadata", "status")}
    status = {"status": old["status"]} if "status" in old else {}
    return {**rest, "metadata": {**_own(new["metadata"]), **kept}, **status}


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
