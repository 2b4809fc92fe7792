"""Updating objects: read → compute → default → admission → check → store.

Admission may wait for webhooks, so the result is stored only if the object is still the one that was read.
Otherwise callers with a resourceVersion get a conflict; for all others the update is computed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from elasticjob.devcluster.server.kinds.pods import check_resize, resize_part
from elasticjob.devcluster.server.kinds.services import keep_address
from elasticjob.devcluster.server.model import errors
from elasticjob.devcluster.server.model.asking import NAMESPACES, Answer, Attributes, Compute, Options
from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.names import identity_problems, metadata_update_problems
from elasticjob.devcluster.server.model.registry import Resource
from elasticjob.devcluster.server.model.store import Entry, Manifest
from elasticjob.devcluster.server.model.strategy import no_problem
from elasticjob.devcluster.server.write import managed
from elasticjob.devcluster.server.write.core import Core

_ATTEMPTS = 8
_KEPT_METADATA = (
    "uid",
    "name",
    "namespace",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
)


@dataclass(frozen=True)
class Change:
    """One update: its target, its computation and its preconditions."""

    resource: Resource
    namespace: str
    name: str
    compute: Compute
    options: Options
    subresource: str = ""
    version: str = ""
    applied: bool = False


async def update(
    core: Core,
    resource: Resource,
    namespace: str,
    name: str,
    compute: Compute,
    options: Options,
    *,
    subresource: str = "",
    version: str = "",
    applied: bool = False,
) -> Answer:
    """Replace an object by `compute(old)`. `version` is the resourceVersion that it must have."""
    change = Change(resource, namespace, name, compute, options, subresource, version, applied)
    for _ in range(_ATTEMPTS):
        old = core.get(resource, namespace, name)
        outcome = compute(old.copy())
        new = outcome if isinstance(outcome, dict) else await outcome
        _check_version(change, old, new)
        answer = await _attempt(core, change, old, new)
        if answer is not None:
            return answer
        if version:
            break
        await asyncio.sleep(0)
    raise errors.conflict(resource.group, resource.plural, name, errors.STALE)


def _check_version(change: Change, old: Entry, new: Manifest) -> None:
    asked = {change.version, str(new["metadata"].get("resourceVersion") or "")} - {"", str(old.version)}
    for version in asked:
        if not version.isdecimal():
            raise errors.StatusError(500, "", f'strconv.ParseUint: parsing "{version}": invalid syntax')
    if asked - {"0"}:
        raise errors.conflict(change.resource.group, change.resource.plural, change.name, errors.STALE)


async def _attempt(core: Core, change: Change, old: Entry, new: Manifest) -> Answer | None:
    """Default, admit, check and store the new object; None if the old one was changed meanwhile."""
    resource, warnings = change.resource, list[str]()
    identity = list(identity_problems(old.metadata, new["metadata"]))
    new = _prepare(core, change, old.body, new)
    attributes = Attributes(
        resource, "UPDATE", change.namespace, change.name, change.subresource, old.body, change.options
    )
    concerned, unchanged = core.admission.concerns(attributes), not identity and _same(old.body, new)
    if unchanged and not concerned:
        return Answer(old, warnings=warnings)
    if not unchanged:
        _record_owner(core, change, old.body, new)
    new = _settle(core, change, old.body, new)
    if concerned:
        admitted = await core.mutate(attributes, new, warnings)
        new = _settle(core, change, old.body, _prepare(core, change, old.body, admitted))
    _check(core, change, old.body, new, identity)
    if concerned:
        warnings += await core.admission.validate(attributes, new)
    if unchanged and _same(old.body, new):  # webhooks are asked all the same
        return Answer(old, warnings=warnings)
    if core.store.get(resource.type, change.namespace, change.name) is not old:
        return None
    return _store(core, change, new, warnings)


def _record_owner(core: Core, change: Change, old: Manifest, new: Manifest) -> None:
    """Update managedFields in place; an apply has done so already."""
    if change.applied:
        return
    resource = change.resource
    writer = core.writer(resource, change.options, change.subresource)
    shown = resource.conversion.from_storage if resource.conversion else None
    before, after = (shown(old), shown(new)) if shown else (old, new)  # metadata is the same
    managed.keep_book(before, after, resource.schema, writer)


def _prepare(core: Core, change: Change, old: Manifest, new: Manifest) -> Manifest:
    """The new object, with the fields that this subresource may not touch from the old one."""
    resource, subresource = change.resource, change.subresource
    new = _keep_metadata(old, new)
    if subresource == "status":
        mine = {name: new[name] for name in ("metadata", "status") if name in new}
        new = {name: value for name, value in old.items() if name not in ("status", "metadata")} | mine
    elif resource.status and not subresource:
        new = {name: value for name, value in new.items() if name != "status"}
        new |= {"status": old["status"]} if "status" in old else {}
        core.strategy(resource).follow(new)
    core.default(resource, new)
    if resource.kind == "Service" and not resource.custom:
        keep_address(new, old)
    if resource.type == NAMESPACES and subresource != "finalize":
        new["spec"] = old["spec"]
    _count_generation(core, resource, old, new)
    return new


def _settle(core: Core, change: Change, old: Manifest, new: Manifest) -> Manifest:
    """Keep the old object's fields that a status update or a resize may not change."""
    if change.subresource == "resize":
        return _resize(core, change, old, new)
    if change.subresource != "status":
        return new
    asked = new["metadata"]
    if change.resource.custom:
        metadata = old["metadata"]
    elif change.resource.group == "apps":
        metadata = {name: value for name, value in asked.items() if name != "labels"}
        metadata |= {"labels": old["metadata"]["labels"]} if "labels" in old["metadata"] else {}
    else:
        metadata = asked
    book = {"managedFields": asked["managedFields"]} if "managedFields" in asked else {}
    kept = {name: value for name, value in metadata.items() if name != "managedFields"}
    return new | {"metadata": kept | book}


def _resize(core: Core, change: Change, old: Manifest, new: Manifest) -> Manifest:
    """The old pod with new resources only; its generation counts them."""
    answer = resize_part(new, old)
    answer["metadata"] = new["metadata"] | {"generation": old["metadata"].get("generation", 1)}
    _count_generation(core, change.resource, old, answer)
    return answer


def _keep_metadata(old: Manifest, new: Manifest) -> Manifest:
    before, after = old["metadata"], dict(new["metadata"])
    for key in _KEPT_METADATA:
        after.pop(key, None)
        if key in before:
            after[key] = before[key]
    after["resourceVersion"] = before["resourceVersion"]
    after |= _book(before.get("managedFields"), after.pop("managedFields", None))
    for key in ("labels", "annotations", "ownerReferences", "finalizers"):
        if key in after and not after[key]:
            del after[key]
    return new | {"metadata": after}


def _book(before: list[Manifest] | None, asked: list[Manifest] | None) -> Manifest:
    """The new managedFields; `[]` and `[{}]` clear them, malformed ones change nothing."""
    if asked is not None and not any(asked):
        return {}
    kept = asked if asked is not None and managed.are_valid(asked) else before
    return {"managedFields": kept} if kept else {}


def _count_generation(core: Core, resource: Resource, old: Manifest, new: Manifest) -> None:
    if not (resource.custom or core.strategy(resource).generation):
        return
    left_out = ("metadata", "status") if resource.status or not resource.custom else ("metadata",)
    if any(old.get(name) != new.get(name) for name in {*old, *new} if name not in left_out):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _same(old: Manifest, new: Manifest) -> bool:
    if old != new and _ownership(old) != _ownership(new):
        return False
    one, other = _without_ownership(old), _without_ownership(new)
    return one == other and _sorted(one) == _sorted(other)  # to Python, true is 1


def _check(core: Core, change: Change, old: Manifest, new: Manifest, identity: list[Cause]) -> None:
    resource, subresource = change.resource, change.subresource
    of_kind: Iterable[Cause] = ()
    if subresource == "resize":
        of_kind = check_resize(new, old)
    elif subresource not in ("status", "resize", "binding"):
        strategy = core.strategy(resource)
        plain = strategy.check_update is no_problem  # the rules of creation are those of updates
        of_kind = strategy.check(new) if plain else strategy.check_update(new, old)
    of_metadata = metadata_update_problems(
        resource.group, old["metadata"], new["metadata"], custom=resource.custom
    )
    core.check(resource, new, old, [*identity, *of_metadata, *of_kind], subresource)


def _store(core: Core, change: Change, new: Manifest, warnings: list[str]) -> Answer:
    metadata = new["metadata"]
    held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    if change.resource.type == NAMESPACES:
        held = held or new["spec"].get("finalizers")
    if metadata.get("deletionTimestamp") and not held and not change.options.dry_run:
        return Answer(core.store.remove(change.resource.type, new), warnings=warnings, gone=True)
    return Answer(core.put(change.resource, new, change.options), warnings=warnings)


def _without_ownership(manifest: Manifest) -> Manifest:
    metadata = {name: value for name, value in manifest["metadata"].items() if name != "managedFields"}
    return manifest | {"metadata": metadata}


def _ownership(manifest: Manifest) -> list[bytes]:
    """managedFields without times and order: a write that changes only those is a no-op."""
    entries = manifest["metadata"].get("managedFields") or ()
    return sorted(
        _sorted({name: value for name, value in entry.items() if name != "time"}) for entry in entries
    )


_sorted = msgspec.json.Encoder(order="sorted").encode
