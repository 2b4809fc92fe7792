"""An API server in a dict: what the operator's client does, with delays and errors, in the loop's time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from copy import deepcopy
from random import Random
from typing import Any, Final

import msgspec

from elasticjob.api.resources import Amount
from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.kube.client import writes
from elasticjob.kube.clock import Clock
from elasticjob.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound, ServerError, Unreachable
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import POD, SERVICE

Heard = Callable[[str, Manifest | None, Manifest | None], None]
"""Told of each change: the resource, and the object before and after."""
PARTS: Final = ("status",)


class Server:
    """All objects. What is stored is never changed in place, so that a reference is a snapshot."""

    def __init__(self, clock: Clock, chance: Random) -> None:
        self.clock, self.chance = clock, chance
        self.objects: dict[str, dict[Key, Manifest]] = {}
        self.version = 0
        self.writes = 0
        self.away = False
        self.webhook_away = False
        self.halves = False
        """Whether a webhook of others halves what pods ask for."""
        self.uninstalled = False
        """Whether the definition of Workloads is deleted."""
        self.trouble = 0.0
        """How likely a request fails."""
        self._born = 0
        self._kinds: dict[str, Kind[Any]] = {}
        self._heard: list[Heard] = []
        self._applied: dict[tuple[str, str, str], Manifest] = {}

    async def has_workloads(self) -> bool:
        return not self.uninstalled

    def listen(self, heard: Heard) -> None:
        self._heard.append(heard)

    def deafen(self, heard: Heard) -> None:
        self._heard.remove(heard)

    def every(self, kind: Kind[Any]) -> list[Manifest]:
        return list(self.objects.get(kind.resource, {}).values())

    def found(self, kind: Kind[Any], name: str, namespace: str = "") -> Manifest | None:
        return self.objects.get(kind.resource, {}).get(Key(namespace, name))

    # what others do, without delay

    def put(self, kind: Kind[Any], made: Manifest) -> Manifest:
        """Create an object."""
        self._born += 1
        about = {
            "generation": 1,
            **deepcopy(made["metadata"]),
            "uid": f"uid-{self._born}",
            "creationTimestamp": timestamp(self.clock.now()),
        }
        stored = {"apiVersion": kind.api_version, "kind": kind.name, **deepcopy(made), "metadata": about}
        if kind is SERVICE or kind.resource == SERVICE.resource:
            stored["spec"] = {"clusterIP": f"10.0.0.{self._born % 250}", **stored.get("spec", {})}
        if kind.resource == POD.resource:
            stored["status"] = {"phase": "Pending"}
            stored["spec"] = _halved(stored["spec"]) if self.halves else stored["spec"]
        return self._store(kind, None, stored)

    def change(self, kind: Kind[Any], old: Manifest, part: str = "", **fields: Any) -> Manifest:
        """Replace fields of an object: spec, status, or metadata."""
        new = {**old, **fields}
        return self._update(kind, old, new)

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
        return self._update(kind, old, {**old, "metadata": gone})

    def collect(self) -> None:
        """What has lost its owner goes."""
        uids = {each["metadata"]["uid"] for found in self.objects.values() for each in found.values()}
        for resource, found in self.objects.items():
            kind = self._kinds[resource]
            for each in list(found.values()):
                owners = each["metadata"].get("ownerReferences", [])
                if owners and not any(owner["uid"] in uids for owner in owners):
                    self.remove(kind, each)

    def _store(self, kind: Kind[Any], old: Manifest | None, new: Manifest | None) -> Manifest:
        self._kinds[kind.resource] = kind
        self.version += 1
        found = self.objects.setdefault(kind.resource, {})
        if new is None:
            assert old is not None
            new_about = {**old["metadata"], "resourceVersion": str(self.version)}
            del found[_key(old)]
            gone = {**old, "metadata": new_about}
            self._tell(kind, gone, None)
            return gone
        stored = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}
        found[_key(stored)] = stored
        self._tell(kind, old, stored)
        return stored

    def _tell(self, kind: Kind[Any], old: Manifest | None, new: Manifest | None) -> None:
        for heard in tuple(self._heard):
            heard(kind.resource, old, new)

    def _update(self, kind: Kind[Any], old: Manifest, new: Manifest) -> Manifest:
        if new == old:
            return old
        about = dict(new["metadata"])
        if new.get("spec") != old.get("spec"):
            about["generation"] = old["metadata"].get("generation", 1) + 1
        if "deletionTimestamp" in about and not about.get("finalizers") and kind.resource != POD.resource:
            return self._store(kind, old, None)
        return self._store(kind, old, {**new, "metadata": about})

    # what the operator's client does

    async def create(
        self, kind: Kind[Any], manifest: Manifest, namespace: str | None = None, *, dry_run: bool = False
    ) -> Any:
        await self._asked(kind, "create")
        about = manifest["metadata"]
        if self.found(kind, about["name"], about.get("namespace", "")):
            raise AlreadyExists(409, "AlreadyExists", f"{kind.name} {about['name']} exists")
        return await self._answered(kind, self.put(kind, manifest))

    async def apply(
        self, kind: Kind[Any], manifest: Manifest, *, manager: str, subresource: str = "", **_: Any
    ) -> Any:
        await self._asked(kind, "apply")
        about = manifest["metadata"]
        old = self._one(kind, about["name"], about.get("namespace", ""))
        if old["metadata"]["uid"] != about["uid"]:
            raise Conflict(409, "Conflict", "another object by now")
        given = {name: value for name, value in manifest.items() if name not in ("apiVersion", "kind")}
        if subresource:
            given = {subresource: given[subresource]}
        mark = (about["uid"], manager, subresource)
        new = _without(old, self._applied.get(mark, {}), given)
        self._applied[mark] = {**given, "metadata": {"annotations": _annotations(given)}}
        return await self._answered(kind, self._update(kind, old, _merged(new, given)))

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
        await self._asked(kind, "patch")
        old = self._one(kind, name, namespace or "")
        about = patch.get("metadata", {})
        for field in ("uid", "resourceVersion"):
            if about.get(field, old["metadata"][field]) != old["metadata"][field]:
                raise Conflict(409, "Conflict", f"{field} differs")
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
        return await self._answered(kind, self._update(kind, old, new))

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
        await self._asked(kind, "delete")
        key = Key((namespace or "") if kind.namespaced else "", name)
        old = self.found(kind, *reversed(key))
        if old is None:
            if uid is not None:
                writes.note(writes.Written(kind, key, gone=uid))
            return
        about = old["metadata"]
        if (uid or about["uid"]) != about["uid"] or (version or about["resourceVersion"]) != about[
            "resourceVersion"
        ]:
            raise Conflict(409, "Conflict", "another object, or version, by now")
        left = self.remove(kind, old, grace)
        if left is None:
            writes.note(writes.Written(kind, key, gone=about["uid"]))
            await self._pause()
        else:
            await self._answered(kind, left)

    async def get(self, kind: Kind[Any], name: str, namespace: str | None = None) -> Any:
        await self._asked(kind, "get")
        return _read(kind, self._one(kind, name, namespace or ""))

    async def find(self, kind: Kind[Any], name: str, namespace: str | None = None) -> Any:
        try:
            return await self.get(kind, name, namespace)
        except NotFound:
            return None

    async def list(
        self, kind: Kind[Any], namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Any]:
        await self._asked(kind, "list")
        wanted = dict(term.split("=") for term in labels.split(",") if term)
        found = [
            _read(kind, each)
            for each in self.every(kind)
            if wanted.items() <= (each["metadata"].get("labels") or {}).items()
        ]
        await self._pause()
        return found

    def measure(self, _: Any) -> None: ...

    async def _asked(self, kind: Kind[Any], verb: str) -> None:
        """The way of a request to the server."""
        await self._pause()
        if self.away:
            raise Unreachable("connection refused", never_sent=True)
        if self.chance.random() < self.trouble:
            raise ServerError(500, "InternalError", "etcdserver: request timed out")
        if self.webhook_away and kind.resource == WORKLOAD.resource and verb in ("create", "apply", "patch"):
            raise ServerError(500, "InternalError", 'failed calling webhook "vworkload.kb.io"')
        if self.uninstalled and kind.resource == WORKLOAD.resource and verb == "create":
            raise NotFound(404, "NotFound", "the server could not find the requested resource")

    async def _answered(self, kind: Kind[Any], stored: Manifest) -> Any:
        """The way back of an answer, which may be lost."""
        await self._pause()
        if self.away or self.chance.random() < self.trouble:
            raise Unreachable("connection reset")
        about = stored["metadata"]
        key = Key(about.get("namespace", ""), about["name"])
        writes.note(writes.Written(kind, key, int(about["resourceVersion"]), about.get("labels") or {}))
        return _read(kind, stored)

    async def _pause(self) -> None:
        self.writes += 1
        await asyncio.sleep(self.chance.choice((0.001, 0.002, 0.01)))

    def _one(self, kind: Kind[Any], name: str, namespace: str) -> Manifest:
        found = self.found(kind, name, namespace if kind.namespaced else "")
        if found is None:
            raise NotFound(
                404, "NotFound", f"{kind.name} {name} not found", {"name": name, "kind": kind.plural}
            )
        return found


def _halved(spec: Manifest) -> Manifest:
    [container] = spec["containers"]
    amount = Amount.parse(container["resources"]["requests"]["cpu"]).value * 500
    made = {**container, "resources": {**container["resources"], "requests": {"cpu": f"{int(amount)}m"}}}
    return {**spec, "containers": [made]}


def _check_workload(old: Manifest, new: Manifest) -> None:
    """Kueue's webhook."""
    reserved = _condition(new, "QuotaReserved") == "True"
    if reserved and not new.get("status", {}).get("admission"):
        raise Forbidden(403, "Forbidden", "status.admission: Required value")
    if reserved and _condition(old, "QuotaReserved") == "True":
        before, after = old["spec"]["podSets"], new["spec"]["podSets"]
        if [each["template"] for each in before] != [each["template"] for each in after]:
            raise Forbidden(403, "Forbidden", "spec.podSets: field is immutable")


def _condition(workload: Manifest, type_: str) -> str:
    found = workload.get("status", {}).get("conditions", [])
    return next((each["status"] for each in found if each["type"] == type_), "")


def _key(stored: Manifest) -> Key:
    about = stored["metadata"]
    return Key(about.get("namespace", ""), about["name"])


def _read(kind: Kind[Any], stored: Manifest) -> Any:
    return stored if kind.model is dict else kind.decode(msgspec.json.encode(stored))


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
    """Return an object without what its manager applied before and does not any more."""
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
        elif name not in now:
            del found[name]
    return found


def names(found: Iterable[Manifest]) -> list[str]:
    return [each["metadata"]["name"] for each in found]
