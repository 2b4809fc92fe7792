"""Field ownership: reading, updating and writing `metadata.managedFields`; server-side apply.

- An *apply* owns exactly what its configuration says; a field that left it is removed unless others own it.
- Any other write owns what it changed, and takes it from its former owners.
- An apply that would change somebody else's field is a conflict, unless it is forced or wants the same value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from elasticjob.devcluster.server.model.errors import apply_conflict
from elasticjob.devcluster.server.model.schemas import Schema
from elasticjob.devcluster.server.model.store import Manifest, decode
from elasticjob.devcluster.server.write.fields import (
    Holder,
    Path,
    alike,
    drop,
    from_fields_v1,
    human,
    leaves,
    merge,
    nodes,
    to_fields_v1,
)

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OPERATIONS = ("Apply", "Update")


@dataclass(frozen=True)
class Owner:
    """One entry of managedFields. `entry` is its identity and time; `paths` are the owned fields."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    paths: frozenset[Path]

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """The identity of a manager: appliers are the same in every version, updaters differ by version."""
        version = "" if self.operation == "Apply" else self.api_version
        return (self.manager, self.operation, self.subresource, version)

    def message(self) -> str:
        """How a conflict names this owner."""
        below = f' with subresource "{self.subresource}"' if self.subresource else ""
        using = f" using {self.api_version}" if self.operation == "Update" else ""
        return f'"{self.manager}"{below}{using}'


@dataclass(frozen=True)
class Writer:
    """The manager of a write. `solid` are members that all objects of the kind have, without an owner. With
    `alone`, entries of other API versions are dropped, since they cannot be converted.
    """

    manager: str
    api_version: str
    subresource: str
    now: str
    solid: frozenset[Path] = frozenset()
    alone: bool = False

    def remembers(self, owner: Owner) -> bool:
        return not self.alone or owner.api_version == self.api_version

    def owner(self, operation: str, paths: Iterable[Path]) -> Owner:
        now = "" if self.subresource == "scale" else self.now  # as the real server has it
        return Owner(self.manager, operation, self.api_version, self.subresource, now, frozenset(paths))


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
        **({"time": owner.time} if owner.time else {}),
        "fieldsType": "FieldsV1",
        "fieldsV1": to_fields_v1(owner.paths),
    }
    return entry | ({"subresource": owner.subresource} if owner.subresource else {})


def entries(found: Iterable[Owner]) -> list[dict[str, Any]]:
    """managedFields of these owners; those that own nothing are left out. Applies first, then by time."""
    kept = sorted((owner for owner in found if owner.paths), key=_order)
    return [_entry(owner) for owner in kept]


def _order(owner: Owner) -> tuple[str, str, str]:
    return (owner.operation, owner.time, owner.manager)


def are_valid(book: Any) -> bool:
    """Whether a client's own managedFields can be believed."""
    return isinstance(book, list) and all(
        isinstance(each, dict)
        and each.get("operation") in _OPERATIONS
        and each.get("fieldsType") == "FieldsV1"
        for each in book
    )


def fields_of_create(manifest: Manifest, schema: Schema, writer: Writer) -> list[dict[str, Any]]:
    """managedFields of an object that did not exist before."""
    return entries([writer.owner("Update", _ownable(nodes(manifest, schema), writer))])


def _ownable(found: Mapping[Path, Any], writer: Writer) -> set[Path]:
    """Paths without the members that are always there, as long as nothing is in them."""
    return {path for path, value in found.items() if path not in writer.solid or _is_something(value)}


def _is_something(value: Any) -> bool:
    return not isinstance(value, Holder) and value not in (None, "", {}, [])


def fields_of_apply(
    config: Manifest, schema: Schema, writer: Writer, emptied: frozenset[Path] = frozenset()
) -> list[dict[str, Any]]:
    """managedFields of an object that an apply creates: the configuration's fields, not its defaults."""
    return entries([writer.owner("Apply", leaves(config, schema).keys() | emptied)])


def hollow(applied: Manifest, kept: Manifest, schema: Schema) -> frozenset[Path]:
    """The empty maps of a configuration: they are owned although none of them is stored."""
    there = leaves(kept, schema)
    return frozenset(
        path for path, value in leaves(applied, schema).items() if value == {} and path not in there
    )


def keep_book(old: Manifest, new: Manifest, schema: Schema, writer: Writer) -> None:
    """Update managedFields of `new` after a write other than an apply; an absent list stays absent."""
    if new["metadata"].get("managedFields"):
        book = fields_of_update(old, new, schema, writer)
        if book:
            new["metadata"]["managedFields"] = book
        else:
            del new["metadata"]["managedFields"]


def fields_of_update(old: Manifest, new: Manifest, schema: Schema, writer: Writer) -> list[dict[str, Any]]:
    """managedFields after a write other than an apply. A list in `new` replaces the old one."""
    parts = _different(old, new)
    before, after = nodes(_only(old, parts), schema), nodes(_only(new, parts), schema)
    changed = _changes(before, after) & _ownable(after, writer)
    removed = before.keys() - after.keys()
    if not changed and not removed:
        return list(new["metadata"].get("managedFields") or ())
    found = [owner for owner in owners(new) if writer.remembers(owner)]
    return entries(_taken_over(found, changed, removed, writer))


def _changes(before: Mapping[Path, Any], after: Mapping[Path, Any]) -> set[Path]:
    """Paths that are new, or have another value."""
    return {path for path, value in after.items() if path not in before or not alike(before[path], value)}


def _different(old: Manifest, new: Manifest) -> set[str]:
    """The top-level members that a write touched: only in them can ownership move."""
    return {name for name in {*old, *new} if old.get(name) != new.get(name)}


def _only(manifest: Manifest, names: set[str]) -> Manifest:
    return {name: value for name, value in manifest.items() if name in names}


def _taken_over(found: list[Owner], changed: set[Path], removed: set[Path], writer: Writer) -> list[Owner]:
    """Give changed fields to the writer; a writer that only removed fields keeps its entry's time."""
    mine = writer.owner("Update", changed)
    kept = []
    for owner in found:
        if owner.identity != mine.identity:
            kept.append(replace(owner, paths=owner.paths - changed - removed))
        elif changed:
            mine = replace(mine, paths=(owner.paths | changed) - removed)
        else:
            kept.append(replace(owner, paths=owner.paths - removed))
    return [*kept, *([mine] if changed else [])]


def apply(
    live: Manifest,
    config: Manifest,
    schema: Schema,
    writer: Writer,
    *,
    force: bool,
    emptied: frozenset[Path] = frozenset(),
) -> Manifest:
    """Return `live` with the configuration `config` put over it and managedFields brought up to date.

    `emptied` is what the configuration names beside it (see `hollow`). Raises a 409 that names every other
    manager of a field whose value would change, unless forced.
    """
    found = [owner for owner in owners(live) or _unknown(live, schema, writer) if writer.remembers(owner)]
    identity = writer.owner("Apply", ()).identity
    before = next((owner for owner in found if owner.identity == identity), None)
    others = [owner for owner in found if owner.identity != identity]
    merged = merge(live, config, schema)
    now = nodes(live, schema)
    after = nodes(merged, schema)
    changed = _changes(now, after) & _ownable(after, writer)
    others = _resolve(others, changed, set() if force else _inherit(live, schema, writer), force=force)
    wanted = leaves(config, schema).keys() | emptied
    previous = before.paths if before else frozenset()
    kept = _prefixes(wanted) | {prefix for owner in others for prefix in _prefixes(owner.paths)}
    # an emptied container that the configuration names comes back
    answer: Manifest = merge(drop(merged, previous - kept, schema), config, schema)
    mine = writer.owner("Apply", wanted)
    if nodes(answer, schema) == now:
        mine = replace(mine, time=before.time if before else "")
    answer["metadata"] = dict(answer["metadata"])
    gone = now.keys() - nodes(answer, schema).keys()
    others = [replace(owner, paths=owner.paths - gone) for owner in others]
    answer["metadata"]["managedFields"] = entries([*others, mine])
    return answer


def _unknown(live: Manifest, schema: Schema, writer: Writer) -> list[Owner]:
    """The owner of all fields that were written before managedFields were recorded."""
    before = replace(writer, manager="before-first-apply", subresource="")
    return [before.owner("Update", _ownable(nodes(live, schema), writer))]


def _inherit(live: Manifest, schema: Schema, writer: Writer) -> set[Path]:
    """Fields that `kubectl apply --server-side` takes over without force: those of kubectl's last client-side
    apply.
    """
    last = (live["metadata"].get("annotations") or {}).get(_LAST_APPLIED)
    if writer.manager != "kubectl" or not last:
        return set()
    now = leaves(live, schema)
    applied = leaves(decode(last), schema)
    return {path for path, value in applied.items() if path in now and alike(now[path], value)}


def remember_applied(config: Manifest, answer: Manifest, writer: Writer) -> None:
    """Keep the annotation of a client-side apply in step, for a later return to it."""
    notes = answer["metadata"].get("annotations") or {}
    if writer.manager == "kubectl" and _LAST_APPLIED in notes:
        text = _sorted(config).decode() + "\n"
        answer["metadata"]["annotations"] = notes | {_LAST_APPLIED: text}


def _prefixes(paths: Iterable[Path]) -> set[Path]:
    return {path[:length] for path in paths for length in range(1, len(path) + 1)}


def _resolve(others: list[Owner], changed: set[Path], allowed: set[Path], *, force: bool) -> list[Owner]:
    conflicts = [
        (owner.message(), human(path))
        for owner in others
        for path in sorted((owner.paths & changed) - allowed)
    ]
    if conflicts and not force:
        raise apply_conflict(conflicts)
    return [replace(owner, paths=owner.paths - changed) for owner in others]


_sorted = msgspec.json.Encoder(order="sorted").encode
