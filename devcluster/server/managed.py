"""Who owns which field: reading, changing and writing `metadata.managedFields`; server-side apply.

- An *apply* owns exactly what its configuration says. What it no longer says and nobody else owns is removed.
- Any other write owns what it changed, and takes it from whoever owned it before.
- An apply that would change somebody else's field is a conflict, unless it is forced or wants the same value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from elasticjob.devcluster.server.errors import apply_conflict
from elasticjob.devcluster.server.fields import (
    ELEMENT,
    Path,
    drop,
    from_fields_v1,
    human,
    leaves,
    merge,
    to_fields_v1,
)
from elasticjob.devcluster.server.schemas import Schema
from elasticjob.devcluster.server.store import Manifest, decode

_ABSENT = object()
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True)
class Owner:
    """One entry of managedFields. `entry` is its identity and time; `paths` what it owns."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    paths: frozenset[Path]

    @property
    def identity(self) -> tuple[str, str, str]:
        return (self.manager, self.operation, self.subresource)

    def told(self) -> str:
        """How a conflict names this owner."""
        below = f' with subresource "{self.subresource}"' if self.subresource else ""
        using = f" using {self.api_version}" if self.operation == "Update" else ""
        return f'"{self.manager}"{below}{using}'


@dataclass(frozen=True)
class Writer:
    """Who writes now."""

    manager: str
    api_version: str
    subresource: str
    now: str

    def owner(self, operation: str, paths: Iterable[Path]) -> Owner:
        return Owner(self.manager, operation, self.api_version, self.subresource, self.now, frozenset(paths))


def owners(manifest: Mapping[str, Any]) -> list[Owner]:
    return [_owner(entry) for entry in manifest["metadata"].get("managedFields") or ()]


def _owner(entry: Mapping[str, Any]) -> Owner:
    return Owner(
        entry.get("manager", ""),
        entry.get("operation", ""),
        entry.get("apiVersion", ""),
        entry.get("subresource", ""),
        entry.get("time", ""),
        frozenset(from_fields_v1(entry.get("fieldsV1") or {})),
    )


def _entry(owner: Owner) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": owner.api_version,
        "time": owner.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": to_fields_v1(owner.paths),
    }
    return entry | ({"subresource": owner.subresource} if owner.subresource else {})


def entries(found: Iterable[Owner]) -> list[dict[str, Any]]:
    """managedFields of these owners; those that own nothing are left out. Applies first, then by time."""
    kept = sorted(
        (owner for owner in found if owner.paths), key=lambda owner: (owner.operation != "Apply", owner.time)
    )
    return [_entry(owner) for owner in kept]


def created(manifest: Manifest, schema: Schema, writer: Writer) -> list[dict[str, Any]]:
    """managedFields of an object that did not exist before."""
    return entries([writer.owner("Update", leaves(manifest, schema))])


def applied(config: Manifest, schema: Schema, writer: Writer) -> list[dict[str, Any]]:
    """managedFields of an object that an apply creates: what the configuration says, not its defaults."""
    return entries([writer.owner("Apply", leaves(config, schema))])


def keep_book(old: Manifest, new: Manifest, schema: Schema, writer: Writer) -> None:
    """Bring managedFields of `new` up to date after a write that was no apply; without any, none is begun."""
    if new["metadata"].get("managedFields"):
        new["metadata"]["managedFields"] = updated(old, new, schema, writer)


def updated(old: Manifest, new: Manifest, schema: Schema, writer: Writer) -> list[dict[str, Any]]:
    """managedFields after a write that was no apply. A list that `new` brings along is believed."""
    parts = _different(old, new)
    before, after = leaves(_only(old, parts), schema), leaves(_only(new, parts), schema)
    changed = {path for path, value in after.items() if before.get(path, _ABSENT) != value}
    removed = before.keys() - after.keys()
    if not changed and not removed:
        return list(new["metadata"].get("managedFields") or ())
    return entries(_taken_over(owners(new), changed, removed, writer))


def _different(old: Manifest, new: Manifest) -> set[str]:
    """The top-level members that a write touched: only in them can ownership move."""
    return {name for name in {*old, *new} if old.get(name) != new.get(name)}


def _only(manifest: Manifest, names: set[str]) -> Manifest:
    return {name: value for name, value in manifest.items() if name in names}


def _taken_over(found: list[Owner], changed: set[Path], removed: set[Path], writer: Writer) -> list[Owner]:
    mine = writer.owner("Update", changed)
    others = []
    for owner in found:
        if owner.identity == mine.identity:
            mine = replace(mine, paths=(owner.paths | changed) - removed)
        else:
            others.append(replace(owner, paths=owner.paths - changed - removed))
    return [*others, mine]


def apply(live: Manifest, config: Manifest, schema: Schema, writer: Writer, *, force: bool) -> Manifest:
    """Return `live` with the configuration `config` put over it and managedFields brought up to date.

    Raises a 409 that names every other manager of a field whose value would change, unless forced.
    """
    wanted = leaves(config, schema)
    found = _moved_to_apply(owners(live) or _unknown(live, schema, writer), live, schema, writer)
    identity = writer.owner("Apply", ()).identity
    previous = next((owner.paths for owner in found if owner.identity == identity), frozenset())
    others = [owner for owner in found if owner.identity != identity]
    now = leaves(live, schema)
    others = _resolve(others, _changes(wanted, now), force)
    kept = _prefixes(wanted) | {prefix for owner in others for prefix in _prefixes(owner.paths)}
    trimmed = drop(merge(live, config, schema), previous - kept, schema)
    # an emptied container that the configuration names comes back
    answer: Manifest = merge(trimmed, config, schema)
    mine = writer.owner("Apply", wanted)
    answer["metadata"] = dict(answer["metadata"])
    before = next((owner for owner in found if owner.identity == identity), None)
    if before and before.paths == mine.paths and before.api_version == mine.api_version:
        mine = before
    answer["metadata"]["managedFields"] = entries([*_still_there(others, answer, schema), mine])
    return answer


def _unknown(live: Manifest, schema: Schema, writer: Writer) -> list[Owner]:
    """The owner of all that was written before anybody kept book."""
    before = replace(writer, manager="before-first-apply", subresource="")
    return [before.owner("Update", leaves(live, schema))]


def _moved_to_apply(found: list[Owner], live: Manifest, schema: Schema, writer: Writer) -> list[Owner]:
    """`kubectl apply --server-side` inherits what the same user's client-side apply said last."""
    last = (live["metadata"].get("annotations") or {}).get(_LAST_APPLIED)
    if writer.manager != "kubectl" or not last:
        return found
    said = leaves(decode(last), schema).keys()
    client_side = ("kubectl-client-side-apply", "Update", "")
    inherited = {path for owner in found if owner.identity == client_side for path in owner.paths & said}
    kept = [
        replace(owner, paths=owner.paths - said) if owner.identity == client_side else owner
        for owner in found
    ]
    mine = writer.owner("Apply", inherited)
    for owner in kept:
        if owner.identity == mine.identity:
            mine = replace(owner, paths=owner.paths | inherited)
    return [*(owner for owner in kept if owner.identity != mine.identity), mine]


def _changes(wanted: Mapping[Path, Any], now: Mapping[Path, Any]) -> set[Path]:
    """Paths whose value an apply would change, with the live paths that a new whole value would hide and the
    whole values that would become containers.
    """
    changed = {
        path for path, value in wanted.items() if value is not ELEMENT and now.get(path, _ABSENT) != value
    }
    new = {path for path in changed if path not in now}
    hidden = {path for path in now if any(path[:length] in new for length in range(1, len(path)))}
    merged = {
        path
        for path in new
        if wanted[path] in ({}, []) and any(below[: len(path)] == path for below in hidden)
    }
    inside = {path for path in hidden if any(path[: len(top)] == top for top in merged)}
    above = {prefix for path in new for prefix in _prefixes([path[:-1]])}
    opened = {path for path in above if now.get(path, ELEMENT) not in (ELEMENT, {}, [])}
    return (changed - merged) | (hidden - inside) | opened


def _prefixes(paths: Iterable[Path]) -> set[Path]:
    return {path[:length] for path in paths for length in range(1, len(path) + 1)}


def _resolve(others: list[Owner], changed: set[Path], force: bool) -> list[Owner]:
    if force:
        return [replace(owner, paths=owner.paths - changed) for owner in others]
    conflicts = [(owner.told(), human(path)) for owner in others for path in sorted(owner.paths & changed)]
    if conflicts:
        raise apply_conflict(conflicts)
    return others


def _still_there(others: list[Owner], answer: Manifest, schema: Schema) -> list[Owner]:
    there = leaves(answer, schema).keys()
    return [replace(owner, paths=owner.paths & there) for owner in others]
