"""Serving a CustomResourceDefinition: first its names are accepted, then it is established.

    stored ──(delay)──▶ NamesAccepted=True, Established=False (Installing): its objects are there
                              └──▶ Established=True: discovery tells of it
           ──(delay)──▶ NamesAccepted=False (…Conflict): another definition of its group has a name of it

So for a moment a definition can be read whose objects are answered with 404. One that waits for names of
another gets them when that one goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from elasticjob.devcluster.server.controllers.collector import OPTIONS, Item, item_of
from elasticjob.devcluster.server.crd.crd import CRDS
from elasticjob.devcluster.server.crd.definitions import is_true
from elasticjob.devcluster.server.model.store import Entry, Event, Manifest, Type
from elasticjob.devcluster.server.model.worker import Worker
from elasticjob.devcluster.server.write import updating
from elasticjob.devcluster.server.write.core import Core

Names = Mapping[str, Any]
_SERVER = replace(OPTIONS, manager="kube-apiserver")
_ACCEPTED = ("NamesAccepted", "True", "NoConflicts", "no conflicts found")
_NOT_ALL = ("Established", "False", "NotAccepted", "not all names are accepted")
_INSTALLING = ("Established", "False", "Installing", "the initial names have been accepted")
_ESTABLISHED = ("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
Condition = tuple[str, str, str, str]
"""Type, status, reason, message."""


class Establishing:
    """Follows the store; `delay` is for how many seconds a new definition is not looked at."""

    def __init__(self, core: Core, delay: float) -> None:
        self._core = core
        self._store = core.store
        self._delay = delay
        self._worker = Worker(self._handle)
        self._store.listen(self._follow)

    async def run(self) -> None:
        await self._worker.run()

    def _follow(self, type_: Type, event: Event) -> None:
        if type_ != CRDS:
            return
        if event.change == "ADDED":
            self._worker.add_later(item_of(type_, event.new), self._delay)
        elif event.change == "MODIFIED" and (event.new.body.get("status") or {}).get("conditions"):
            self._worker.add(item_of(type_, event.new))
        elif event.change == "DELETED":
            for each in self._rivals(event.new.body):
                self._worker.add(item_of(type_, each))

    def _rivals(self, crd: Manifest) -> Iterator[Entry]:
        """The other definitions of a group."""
        group, name = crd["spec"]["group"], crd["metadata"]["name"]
        for each in self._store.every(CRDS):
            if each.body["spec"]["group"] == group and each.metadata["name"] != name:
                yield each

    async def _handle(self, item: Item) -> None:
        stored = self._store.get(CRDS, "", item.name)
        if stored is None:
            return
        used = OtherNames.of(each.body for each in self._rivals(stored.body))
        resource = self._core.registry.of_type(CRDS)
        status = next_status(stored.body, used, self._core.stamp())
        if resource is None or status is None:
            return

        def accept(old: Manifest) -> Manifest:
            return old | {"status": status}

        version = str(stored.version)
        await updating.update(
            self._core, resource, "", item.name, accept, _SERVER, subresource="status", version=version
        )


@dataclass(frozen=True)
class OtherNames:
    """The names that other definitions of a group hold."""

    resources: frozenset[str]
    kinds: frozenset[str]

    @classmethod
    def of(cls, rivals: Iterable[Manifest]) -> OtherNames:
        held = [(each.get("status") or {}).get("acceptedNames") or {} for each in rivals]
        plain = {name for each in held for name in (each.get("plural"), each.get("singular"))}
        short = {name for each in held for name in each.get("shortNames") or ()}
        kinds = {name for each in held for name in (each.get("kind"), each.get("listKind"))}
        return cls(frozenset(filter(None, plain | short)), frozenset(filter(None, kinds)))


def next_status(crd: Manifest, used: OtherNames, stamp: str) -> Manifest | None:
    """The status of a definition after one more step; None if it is final."""
    status = crd.get("status") or {}
    names, held = _say(crd["spec"]["names"]), _say(status.get("acceptedNames") or {})
    if names != held:
        accepted, condition = _accept(names, held, used)
        established = None if is_true(crd, "Established") else _not_yet(crd, condition)
        changed = _with(status | {"acceptedNames": accepted}, (condition, established), stamp)
        return changed if _differs(changed, status) else None
    if is_true(crd, "NamesAccepted") and not is_true(crd, "Established"):
        return _with(status, (_ESTABLISHED,), stamp)
    return None


def _say(names: Names) -> Names:
    return {name: value for name, value in names.items() if value}


def _not_yet(crd: Manifest, condition: Condition) -> Condition | None:
    if condition == _ACCEPTED:
        return _INSTALLING
    known = (crd.get("status") or {}).get("conditions") or ()
    return None if any(each["type"] == "Established" for each in known) else _NOT_ALL


def _accept(names: Names, held: Names, used: OtherNames) -> tuple[Names, Condition]:
    """The accepted names of a definition, and its condition: the last conflict, if any."""
    granted, condition = {"plural": "", "kind": ""} | dict(held), _ACCEPTED
    for name, word in _SINGLE_NAMES:
        asked, taken = names.get(name, ""), used.kinds if "ind" in name else used.resources
        if asked != held.get(name, "") and asked in taken:
            condition = _conflict(word, [asked])
        else:
            granted[name] = asked
        if name == "singular":
            mine = held.get("shortNames", ())
            new = [each for each in names.get("shortNames", ()) if each not in mine]
            if clashes := [each for each in new if each in used.resources]:
                condition = _conflict("ShortNames", clashes)
            else:
                granted["shortNames"] = names.get("shortNames")
    granted["categories"] = names.get("categories")
    return {name: value for name, value in granted.items() if value or name in _ALWAYS}, condition


_SINGLE_NAMES = (("plural", "Plural"), ("singular", "Singular"), ("kind", "Kind"), ("listKind", "ListKind"))
_ALWAYS = ("plural", "kind")


def _conflict(word: str, names: list[str]) -> Condition:
    messages = [f'"{each}" is already in use' for each in names]
    why = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    return "NamesAccepted", "False", f"{word}Conflict", why


def _with(status: Manifest, conditions: Iterable[Condition | None], stamp: str) -> Manifest:
    """The status with these conditions; a condition keeps its time while it is as it was."""
    known = {each["type"]: each for each in status.get("conditions") or ()}
    for kind, state, reason, message in filter(None, conditions):
        old = known.get(kind, {})
        since = old["lastTransitionTime"] if old.get("status") == state else stamp
        known[kind] = {
            "lastTransitionTime": since,
            "message": message,
            "reason": reason,
            "status": state,
            "type": kind,
        }
    return status | {"conditions": list(known.values())}


def _differs(new: Manifest, old: Manifest) -> bool:
    return any(new.get(name) != old.get(name) for name in ("acceptedNames", "conditions"))
