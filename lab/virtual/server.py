"""An API server in a dict, for tests in virtual time: the verbs of the client, with delays and errors.

It knows no schemas, and by server-side apply all lists are atomic; `tests/lab/test_server.py` compares it
with devcluster's.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from hashlib import blake2s
from itertools import islice
from random import Random
from typing import Any, Final
from uuid import UUID

import msgspec

from elasticjob.api.resources import Amount
from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.devcluster.server.http.subresources import EVICTED, SUCCESS
from elasticjob.devcluster.server.kinds.pods import with_condition
from elasticjob.devcluster.server.model import errors
from elasticjob.devcluster.server.model.names import wrong
from elasticjob.devcluster.server.model.schemas import ANYTHING
from elasticjob.devcluster.server.model.selectors import (
    Predicate,
    field_clauses,
    label_requirements,
    predicate,
)
from elasticjob.devcluster.server.write import patches
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.protocol import Removed, Upserted
from elasticjob.kube.client import writes
from elasticjob.kube.client.transport import Call
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.errors import (
    Conflict,
    Forbidden,
    NotFound,
    ServerError,
    Unreachable,
)
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import POD, POD_DISRUPTION_BUDGET, SERVICE
from lab.build.objects import as_item, bookmark, event
from lab.truths.quota import is_true
from lab.virtual import merging
from lab.virtual.admission import (
    Admission,
    as_api_error,
    check_configuration,
    decoded,
    scale_of,
    schema_of,
    sized,
)
from lab.virtual.limits import check_budgets, check_quota

Listener = Callable[[str, Manifest | None, Manifest | None], None]
"""Called with each change: the resource, and the object before and after."""
Change = tuple[Manifest | None, Manifest | None]
"""An object before and after."""
Compute = Callable[[Manifest], Manifest]
Fault = Callable[[str, Kind[Any], str], Exception | None]
"""The error of a request: verb, kind and name."""
ATTEMPTS: Final = 8
"""How often an update is computed again, as devcluster does."""


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
        about = {**({"namespace": namespace} if namespace else {}), **merging.own(about)}
        made = self.server.begin(kind, {**rest, "metadata": about})
        made = await self.server.admit(kind, None, made, "", self.user)
        if dry_run:
            await self.answered()
            return _read(kind, made)
        return await self._written(kind, self.server.add(kind, made))

    async def apply(
        self,
        kind: Kind[Any],
        manifest: Manifest,
        *,
        manager: str,
        namespace: str | None = None,
        uid: str = "",
        subresource: str = "",
        **_: Any,
    ) -> Any:
        given = {name: value for name, value in (("namespace", namespace), ("uid", uid)) if value}
        about = {**manifest["metadata"], **given}
        manifest, server = {**manifest, "metadata": about}, self.server
        await self.asked("apply", kind, about["name"])
        if server.admission:
            check_configuration(kind, manifest)

        def applied(old: Manifest | None) -> Manifest:
            return server.applied(kind, old, manifest, manager, subresource)

        old = server.found(kind, *reversed(_key(manifest)))
        if old:
            stored = await server.rewrite(kind, _key(manifest), applied, subresource, self.user)
        else:
            stored = server.add(kind, await server.admit(kind, None, applied(None), subresource, self.user))
        stored = server.own(kind, old, stored, manifest, manager, subresource)
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
            new: Manifest = patches.merge_patch(old, given)
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
                new: Manifest = patches.json_patch(old, list(operations))
            except errors.StatusError as error:
                raise as_api_error(error) from error
            _check_preconditions(old, new["metadata"])
            return merging.replaced(old, new, subresource)

        return await self._rewrite(kind, name, namespace, patched, subresource)

    async def replace(
        self, kind: Kind[Any], manifest: Manifest, namespace: str | None = None, *, subresource: str = ""
    ) -> Any:
        about = manifest["metadata"]
        await self.asked("replace", kind, about["name"])

        def replaced(old: Manifest) -> Manifest:
            _check_preconditions(old, about)
            if not about.get("resourceVersion"):
                cause = wrong("metadata.resourceVersion", 0, "must be specified for an update")
                raise as_api_error(errors.invalid(kind.group, kind.plural, about["name"], [cause]))
            return merging.replaced(old, manifest, subresource)

        where = namespace or about.get("namespace")
        return await self._rewrite(kind, about["name"], where, replaced, subresource)

    async def post(
        self, kind: Kind[Any], name: str, subresource: str, manifest: Manifest, namespace: str | None = None
    ) -> Manifest:
        """Evict a pod."""
        assert (kind.resource, subresource) == (POD.resource, "eviction"), "nothing else is posted"
        await self.asked("evict", kind, name)
        self.server.evict(name, namespace or "", manifest.get("deleteOptions") or {})
        await self.answered()
        return SUCCESS

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
        chosen = _chosen(labels, fields)
        found = [
            _read(kind, each)
            for _, each in sorted(self.server.objects.get(kind.resource, {}).items())
            if namespace in ("", None, each["metadata"].get("namespace", "")) and chosen(each)
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
        """A watch of all objects that selectors choose, in one namespace or in all of them."""
        lines = asyncio.Queue[bytes]()
        chosen = _chosen(call.params.get("labelSelector", ""), call.params.get("fieldSelector", ""))

        def tell(resource: str, old: Manifest | None, new: Manifest | None) -> None:
            one = new or old or {}
            kind, was, is_ = self.server.kinds[resource], old and chosen(old), new and chosen(new)
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
        self._lives = Counter[tuple[object, ...]]()
        """What becomes of writes of our kinds by programs; none without it."""
        self.most_pods: int | None = None
        """The ResourceQuota of each namespace."""
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
            raise as_api_error(errors.not_found(kind.group, kind.plural, name))
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
        about = made["metadata"]
        uid = self._uid(kind.resource, about.get("namespace", ""), about["name"])
        made = msgspec.json.decode(msgspec.json.encode(made))
        about = {
            "generation": 1,
            "uid": uid,
            "creationTimestamp": timestamp(self.clock.now()),
            **made["metadata"],
        }
        begun = {"apiVersion": kind.api_version, "kind": kind.name, **made, "metadata": about}
        if kind.resource == SERVICE.resource:
            begun["spec"] = {"clusterIP": f"10.0.0.{int(uid[:2], 16)}", **begun.get("spec", {})}
        if kind.resource == POD.resource:
            begun.setdefault("status", {"phase": "Pending"})
            begun["spec"] = _halved(begun["spec"]) if self.halves else begun["spec"]
        return begun

    def _uid(self, *object_: object) -> str:
        """Return a uid by an object's name and how many have had that: no fault changes another's."""
        self._lives[object_] += 1
        digest = blake2s(f"{object_} {self._lives[object_]}".encode(), digest_size=16).digest()
        return str(UUID(bytes=digest))

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

    def evict(self, name: str, namespace: str, options: Manifest) -> None:
        """Delete a pod as its budget allows it. Raises TooManyRequests."""
        pod = self.lookup(POD, name, namespace)
        check_budgets(pod, self.every(POD), self.every(POD_DISRUPTION_BUDGET))
        evicted = self.update(POD, pod, with_condition(pod, EVICTED, self.clock.now()))
        self.remove(POD, evicted, options.get("gracePeriodSeconds"))

    def is_orphan(self, new: Manifest) -> bool:
        """Whether no owner of an object is there."""
        owners = new["metadata"].get("ownerReferences", [])
        return bool(owners) and not any(owner["uid"] in self._uids() for owner in owners)

    def _uids(self) -> set[str]:
        return {each["metadata"]["uid"] for found in self.objects.values() for each in found.values()}

    def collect(self) -> None:
        """What has lost its owner goes."""
        self.writer = ""
        uids = self._uids()
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
        about = {name: value for name, value in new["metadata"].items() if value not in ([], {})}
        new = {**new, "metadata": about}
        if new == old:
            return old
        if new.get("spec") != old.get("spec"):
            about["generation"] = old["metadata"].get("generation", 1) + 1
        if "deletionTimestamp" in about and not about.get("finalizers") and kind.resource != POD.resource:
            self._store(kind, new, None)
            return new
        return self._store(kind, old, new)

    def apply_now(self, kind: Kind[Any], manifest: Manifest, manager: str, subresource: str = "") -> Manifest:
        """Server-side apply: `manager` owns exactly these fields from now on, unless others change them."""
        old = self.found(kind, *reversed(_key(manifest)))
        new = self.applied(kind, old, manifest, manager, subresource)
        stored = self.update(kind, old, new) if old else self._store(kind, None, new)
        return self.own(kind, old, stored, manifest, manager, subresource)

    def applied(
        self, kind: Kind[Any], old: Manifest | None, manifest: Manifest, manager: str, subresource: str
    ) -> Manifest:
        """Return an object as `manager` applies it."""
        about, given = manifest["metadata"], merging.applied_part(manifest, subresource)
        if old is None and subresource:
            self.lookup(kind, about["name"], about.get("namespace", ""))
        if old is None and about.get("uid"):
            raise Conflict(409, "Conflict", f"{kind.name} {about['name']} is gone")
        if old is None:
            return self.begin(kind, {**given, "metadata": merging.own(about)})
        _check_preconditions(old, about)
        before = self._applied.get((old["metadata"]["uid"], manager, subresource), {})
        schema = schema_of(kind) if self.admission else ANYTHING
        return merging.merged(merging.without(old, before, given, schema), given)

    def own(
        self,
        kind: Kind[Any],
        old: Manifest | None,
        stored: Manifest,
        manifest: Manifest,
        manager: str,
        subresource: str,
    ) -> Manifest:
        """Note what `manager` has applied: an object of which only owners change has a new version, too."""
        given = merging.applied_part(manifest, subresource)
        mark = (stored["metadata"]["uid"], manager, subresource)
        before = self._applied.get(mark)
        self._applied[mark] = given
        if stored is old and (before is None or merging.names(before) != merging.names(given)):
            return self._store(kind, old, stored)
        return stored

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
            raise as_api_error(errors.already_exists(kind.group, kind.plural, about["name"]))
        if kind.resource == POD.resource and self.most_pods is not None:
            check_quota(made, self.every(POD), self.most_pods)
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
    asked = container.get("resources", {}).get("requests", {})
    if "cpu" not in asked:
        return spec
    amount = Amount.parse(asked["cpu"]).value * 500
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


@lru_cache(256)
def _chosen(labels: str, fields: str) -> Predicate:
    """Whether selectors choose an object; all fields are selectable."""
    paths = (term.partition("=")[0].rstrip("!") for term in fields.split(","))
    chosen = predicate(label_requirements(labels), field_clauses(fields, paths))
    return chosen or (lambda _: True)


def _key(stored: Manifest) -> Key:
    about = stored["metadata"]
    return Key(about.get("namespace", ""), about["name"])


def _read(kind: Kind[Any], stored: Manifest) -> Any:
    return stored if kind.model is dict else decoded(kind, msgspec.json.encode(stored))
