"""Deleting objects: marked while finalizers or a grace period hold them, else removed at once."""

from __future__ import annotations

from elasticjob.devcluster.server.crd.crd import CRDS
from elasticjob.devcluster.server.kinds.pods import grace_period
from elasticjob.devcluster.server.model import errors
from elasticjob.devcluster.server.model.asking import (
    FOREGROUND,
    NAMESPACES,
    ORPHAN,
    Answer,
    Attributes,
    Deletion,
    Options,
)
from elasticjob.devcluster.server.model.registry import Resource
from elasticjob.devcluster.server.model.store import Entry, Manifest, encode
from elasticjob.devcluster.server.write.core import Core

_FOREVER = ("default", "kube-system", "kube-public")


async def delete(
    core: Core, resource: Resource, namespace: str, name: str, deletion: Deletion, options: Options
) -> Answer:
    """Mark an object for deletion, or remove it when nothing holds it any more. NotFound, Conflict."""
    old = core.get(resource, namespace, name)
    attributes = Attributes(resource, "DELETE", namespace, name, "", old.body, options)
    warnings: list[str] = []
    if resource.type == NAMESPACES and name in _FOREVER:
        raise errors.forbidden("", "namespaces", name, "this namespace may not be deleted")
    if core.admission.concerns(attributes):
        await core.admission.mutate(attributes, old.body, warnings)
        warnings += await core.admission.validate(attributes, None)
        old = core.get(resource, namespace, name)
    _check_preconditions(resource, old, deletion)
    new = _with_mark(core, resource, old, deletion)
    if not _hold(resource, new):
        if options.dry_run:
            return Answer(Entry(new, encode(new), old.version), gone=True, warnings=warnings)
        return Answer(core.store.remove(resource.type, new), gone=True, warnings=warnings)
    if new == old.body:
        return Answer(old, warnings=warnings)
    return Answer(core.put(resource, new, options), warnings=warnings)


def _check_preconditions(resource: Resource, old: Entry, deletion: Deletion) -> None:
    if resource.type == CRDS and not resource.custom:
        _check_definition(old, deletion)
    for noun, asked, found, why in (
        ("UID", deletion.uid, old.metadata["uid"], "deleted and then recreated"),
        ("ResourceVersion", deletion.version, str(old.version), "modified"),
    ):
        if asked and asked != found:
            message = (
                f"the {noun} in the precondition ({asked}) does not match the {noun} in record ({found}). "
                f"The object might have been {why}"
            )
            raise errors.conflict(resource.group, resource.kind, old.metadata["name"], message)


def _check_definition(old: Entry, deletion: Deletion) -> None:
    """Preconditions of a definition, whose error messages differ from other kinds."""
    for noun, asked, found in (
        ("UID", deletion.uid, old.metadata["uid"]),
        ("ResourceVersion", deletion.version, str(old.version)),
    ):
        if asked and asked != found:
            message = f"Precondition failed: {noun} in precondition: {asked}, {noun} in object meta: {found}"
            raise errors.conflict(CRDS.group, CRDS.plural, old.metadata["name"], message)


def _hold(resource: Resource, new: Manifest) -> bool:
    metadata = new["metadata"]
    contents = resource.type == NAMESPACES and new["spec"].get("finalizers")
    return bool(metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds") or contents)


def _with_mark(core: Core, resource: Resource, old: Entry, deletion: Deletion) -> Manifest:
    """The object with its deletion mark, and with the finalizers that the policy asks for."""
    new = old.copy()
    metadata = new["metadata"]
    is_pod = resource.kind == "Pod" and not resource.custom
    grace = grace_period(new, deletion.grace) if is_pod else 0
    finalizers = [each for each in metadata.get("finalizers") or () if each not in (ORPHAN, FOREGROUND)]
    held = {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(deletion.propagation)
    if held is None and deletion.propagation == "":
        held = [each for each in metadata.get("finalizers") or () if each in (ORPHAN, FOREGROUND)]
    finalizers += held or []
    metadata.pop("finalizers", None)
    if finalizers:
        metadata["finalizers"] = finalizers
    core.strategy(resource).end(new, core.stamp())
    if is_pod or _hold(resource, new):
        _mark(core, metadata, grace)
        if resource.type == NAMESPACES:
            new["status"] = (new.get("status") or {}) | {"phase": "Terminating"}
    return new


def _mark(core: Core, metadata: Manifest, grace: int) -> None:
    if not metadata.get("deletionTimestamp"):
        if "generation" in metadata:
            metadata["generation"] += 1
    elif metadata.get("deletionGracePeriodSeconds", 0) <= grace:
        return
    metadata |= {"deletionTimestamp": core.stamp(grace), "deletionGracePeriodSeconds": grace}
