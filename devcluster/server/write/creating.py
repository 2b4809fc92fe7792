"""Creating objects: decode → default → admission → check → store."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from elasticjob.devcluster.server.crd.crd import CRDS
from elasticjob.devcluster.server.crd.definitions import is_true
from elasticjob.devcluster.server.model import errors
from elasticjob.devcluster.server.model.asking import NAMESPACES, Answer, Attributes, Options
from elasticjob.devcluster.server.model.names import dedup_owners, metadata_problems
from elasticjob.devcluster.server.model.registry import Resource
from elasticjob.devcluster.server.model.store import Manifest
from elasticjob.devcluster.server.write import managed
from elasticjob.devcluster.server.write.core import Core
from elasticjob.devcluster.server.write.decoding import decode
from elasticjob.devcluster.server.write.fields import Path

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_SERVER_SETS = ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink")
_GIVEN_LATE = ("uid", "creationTimestamp", "generation")  # mutating webhooks do not see them


async def create(
    core: Core,
    resource: Resource,
    namespace: str,
    body: Any,
    options: Options,
    *,
    applied: bool = False,
    emptied: frozenset[Path] = frozenset(),
) -> Answer:
    """Store a new object. `emptied` are the empty containers that an apply owns.

    Raises AlreadyExists, Invalid, NotFound (its namespace) or Forbidden (a terminating one, missing rights).
    """
    warnings: list[str] = []
    new = decode(resource, namespace, body, options.field_validation, warnings)
    _name_it(core, new["metadata"])
    name = new["metadata"].get("name", "")
    attributes = Attributes(resource, "CREATE", namespace, name, "", None, options)
    _check_definition(core, resource, name)
    _check_namespace(core, resource, name, namespace)
    warnings += dedup_owners(new["metadata"])
    new = _start(core, resource, new, core.writer(resource, options), emptied if applied else None)
    concerned = core.admission.concerns(attributes)
    if concerned:
        given = {name: new["metadata"][name] for name in _GIVEN_LATE if name in new["metadata"]}
        admitted = await core.mutate(
            attributes, new | {"metadata": _without(new["metadata"], given)}, warnings
        )
        admitted["metadata"] = admitted["metadata"] | given
        new = _with_status_of(new, admitted) if resource.status else admitted
    _check(core, resource, new)
    if applied:
        core.rights.check_creation(attributes)
    if concerned:
        warnings += await core.admission.validate(attributes, new)
    _check_is_new(core, resource, new["metadata"]["name"], namespace)
    _check_namespace(core, resource, name, namespace)
    return Answer(core.put(resource, new, options), True, warnings)


def _name_it(core: Core, metadata: Manifest) -> None:
    if not metadata.get("name") and metadata.get("generateName"):
        suffix = "".join(core.chance.choices(_SUFFIX, k=5))
        metadata["name"] = metadata["generateName"][:58] + suffix


def _check_definition(core: Core, resource: Resource, name: str) -> None:
    """Refuse new objects of a definition that is being deleted."""
    found = core.store.get(CRDS, "", f"{resource.plural}.{resource.group}") if resource.custom else None
    if found is not None and is_true(found.body, "Terminating"):
        why = "create not allowed while custom resource definition is terminating"
        raise errors.forbidden(resource.group, resource.plural, name, why)


def _check_namespace(core: Core, resource: Resource, name: str, namespace: str) -> None:
    if not resource.namespaced:
        return
    found = core.store.get(NAMESPACES, "", namespace)
    if found is None:
        raise errors.not_found("", "namespaces", namespace)
    if found.metadata.get("deletionTimestamp"):
        raise errors.terminating(resource.group, resource.plural, name, namespace)


def _start(
    core: Core, resource: Resource, new: Manifest, writer: managed.Writer, emptied: frozenset[Path] | None
) -> Manifest:
    """Set the server's own fields, without an owner; the writer owns all others. `emptied`: of an apply."""
    sent, metadata = new, dict(new["metadata"])
    if metadata.pop("resourceVersion", None) and emptied is None:
        raise errors.StatusError(500, "", "resourceVersion should not be set on objects to be created")
    for name in _SERVER_SETS:
        metadata.pop(name, None)
    metadata |= {"uid": core.new_uid(), "creationTimestamp": core.stamp()}
    strategy = core.strategy(resource)
    if resource.custom or strategy.generation:
        metadata["generation"] = 1
    new = new | {"metadata": metadata}
    if resource.status and not strategy.keeps_status:
        new.pop("status", None)
    # an apply owns the fields of its body; any other creation owns the defaults as well
    shown = resource.conversion.from_storage if resource.conversion else _as_it_is
    entries = (
        None if emptied is None else managed.fields_of_apply(shown(sent), resource.schema, writer, emptied)
    )
    core.default(resource, new)
    if book := entries or managed.fields_of_create(shown(new), resource.schema, writer):
        metadata["managedFields"] = book
    strategy.start(new)
    return new


def _as_it_is(new: Manifest) -> Manifest:
    return new


def _check(core: Core, resource: Resource, new: Manifest) -> None:
    strategy = core.strategy(resource)
    of_metadata = metadata_problems(
        resource.group,
        resource.kind,
        new["metadata"],
        custom=resource.custom,
        of_name=strategy.check_name(new),
    )
    core.check(resource, new, None, [*of_metadata, *strategy.check(new)])


def _check_is_new(core: Core, resource: Resource, name: str, namespace: str) -> None:
    found = core.store.get(resource.type, namespace, name)
    if found is None:
        return
    error = errors.already_exists(resource.group, resource.plural, name)
    if found.metadata.get("deletionTimestamp"):
        error.message = f"object is being deleted: {error.message}"
    raise error


def _without(metadata: Manifest, names: Container[str]) -> Manifest:
    return {name: value for name, value in metadata.items() if name not in names}


def _with_status_of(first: Manifest, admitted: Manifest) -> Manifest:
    """The admitted object, without a webhook's changes to its status."""
    kept = {name: value for name, value in admitted.items() if name != "status"}
    return kept | ({"status": first["status"]} if "status" in first else {})
