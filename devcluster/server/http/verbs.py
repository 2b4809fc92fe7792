"""The verbs on objects and collections: from a Call to the bytes of an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from elasticjob.devcluster.server.http.call import (
    APPLY,
    JSON_PATCH,
    MERGE_PATCH,
    PATCHES,
    STRATEGIC_PATCH,
    Call,
    status_success,
)
from elasticjob.devcluster.server.model import errors
from elasticjob.devcluster.server.model.asking import Answer, Options
from elasticjob.devcluster.server.model.names import wrong
from elasticjob.devcluster.server.model.registry import Resource
from elasticjob.devcluster.server.model.store import Manifest, decode, encode
from elasticjob.devcluster.server.model.target import Target
from elasticjob.devcluster.server.read.lists import (
    in_version,
    page,
    render_list,
    render_one,
    selection,
    version_of,
)
from elasticjob.devcluster.server.write import creating, deleting, managed, updating
from elasticjob.devcluster.server.write.core import Core
from elasticjob.devcluster.server.write.decoding import decode as decode_body
from elasticjob.devcluster.server.write.fields import Path
from elasticjob.devcluster.server.write.patches import go_name, json_patch, merge_patch
from elasticjob.devcluster.server.write.strategic import strategic_merge
from elasticjob.devcluster.server.write.typed import untypable, without_nulls


@dataclass(frozen=True)
class Reply:
    """Status code, body, and warnings for the client's terminal."""

    code: int
    body: bytes
    warnings: list[str] = field(default_factory=list)


class Verbs:
    """get, list, create, update, patch, delete and deletecollection."""

    def __init__(self, core: Core, now: Callable[[], datetime]) -> None:
        self._core = core
        self._now = now

    async def get(self, call: Call) -> Reply:
        target = call.target
        self._core.store.check_version(version_of(call.query))
        stored = self._core.get(target.resource, target.namespace, target.name)
        return Reply(200, render_one(target.resource, stored, call.form, self._now()))

    async def collection(self, call: Call) -> Reply:
        found = page(self._core.store, call.target, call.query)
        return Reply(200, render_list(call.target.resource, found, call.form, self._now()))

    async def create(self, call: Call) -> Reply:
        target = call.target
        answer = await creating.create(
            self._core, target.resource, target.namespace, call.manifest(), call.options()
        )
        return self._reply(call, answer)

    async def update(self, call: Call) -> Reply:
        """PUT of an object or of one of its halves."""
        target, options = call.target, call.options()
        warnings: list[str] = []
        body = decode_body(
            target.resource, target.namespace, call.manifest(), options.field_validation, warnings
        )
        if body["metadata"].get("name") != target.name:
            raise errors.wrong_name(body["metadata"].get("name"), target.name)
        version = str(body["metadata"].get("resourceVersion") or "")
        self._core.get(target.resource, target.namespace, target.name)
        if not version and self._core.needs_version(target.resource):
            cause = wrong("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(target.resource.group, target.resource.plural, target.name, [cause])

        def compute(old: Manifest) -> Manifest:
            check_uid(target.resource, old["metadata"], body["metadata"].get("uid"))
            return body

        answer = await updating.update(
            self._core,
            target.resource,
            target.namespace,
            target.name,
            compute,
            options,
            subresource=target.subresource,
            version=version,
        )
        return self._reply(call, answer, warnings)

    async def patch(self, call: Call) -> Reply:
        if call.media not in PATCHES:
            raise errors.unsupported_patch()
        if call.media == APPLY:
            return await self._apply(call)
        target, options = call.target, call.options()
        warnings: list[str] = []

        def compute(old: Manifest) -> Manifest:
            warnings.clear()
            current = self._current(call, old)
            new = self._patch(call, current, call.patch())
            strategic = call.patch() if call.media == STRATEGIC_PATCH else None
            new = decode_body(
                target.resource,
                target.namespace,
                new,
                options.field_validation,
                warnings,
                current,
                strategic,
            )
            if new["metadata"].get("name") != target.name:
                raise errors.wrong_name(new["metadata"].get("name"), target.name)
            return new

        answer = await updating.update(
            self._core,
            target.resource,
            target.namespace,
            target.name,
            compute,
            options,
            subresource=target.subresource,
        )
        return self._reply(call, answer, warnings)

    def _current(self, call: Call, old: Manifest) -> Manifest:
        conversion = call.target.resource.conversion
        return conversion.from_storage(old) if conversion else old

    def _patch(self, call: Call, current: Manifest, change: Any) -> Any:
        resource = call.target.resource
        if call.media == JSON_PATCH:
            return json_patch(current, change)
        if not isinstance(change, dict):
            why = f"json: cannot unmarshal {go_name(change)} into Go value of type map[string]interface {{}}"
            raise errors.bad_request(f"error decoding patch: {why}")
        if call.media == MERGE_PATCH:
            return merge_patch(current, change)
        if resource.custom:
            raise errors.unsupported_media(each for each in PATCHES if each != STRATEGIC_PATCH)
        return strategic_merge(current, change, resource.schema)

    async def _apply(self, call: Call) -> Reply:
        """Server-side apply: create when there is nothing (and no uid was named), else merge by ownership."""
        target = call.target
        options, warnings = call.options(), list[str]()
        config = self._configuration(call, options, warnings)
        emptied = self._empty(call, config)
        if self._core.store.get(target.resource.type, target.namespace, target.name) is None:
            return await self._apply_new(call, config, emptied, options, warnings)
        resource = target.resource
        writer = self._core.writer(resource, options, target.subresource)

        def compute(old: Manifest) -> Manifest:
            fresh = decode(encode(config))  # the result will be defaulted in place, and this may run again
            self._check_uid(resource, old, fresh)
            live, latest = self._current(call, old), self._current(call, fresh)
            applied = managed.apply(
                live, latest, resource.schema, writer, force=options.force, emptied=emptied
            )
            managed.remember_applied(call.manifest(), applied, writer)
            return resource.conversion.to_storage(applied) if resource.conversion else applied

        version = str(config["metadata"].get("resourceVersion") or "")
        answer = await updating.update(
            self._core,
            resource,
            target.namespace,
            target.name,
            compute,
            options,
            subresource=target.subresource,
            version=version,
            applied=True,
        )
        return self._reply(call, answer, warnings)

    def _configuration(self, call: Call, options: Options, warnings: list[str]) -> Manifest:
        """The applied configuration, without the members that an apply may not own."""
        target = call.target
        body = call.manifest()
        if not isinstance(body, dict):
            raise errors.bad_request(f"error decoding YAML: {target.resource.kind} must be an object")
        self._check_configuration(target, body)
        body = without_nulls(body, target.resource.schema)
        config = decode_body(target.resource, target.namespace, body, options.field_validation, warnings)
        if config["metadata"].get("name") != target.name:
            raise errors.wrong_name(config["metadata"].get("name"), target.name)
        return {name: value for name, value in config.items() if _is_of_half(target, name)}

    def _empty(self, call: Call, config: Manifest) -> frozenset[Path]:
        """The containers that a configuration names, with nothing in them. Custom resources keep those."""
        schema = call.target.resource.schema
        if call.target.resource.custom:
            return frozenset()
        body = without_nulls(call.manifest(), schema)
        half = {name: value for name, value in body.items() if _is_of_half(call.target, name)}
        return managed.hollow(half, self._current(call, config), schema)

    def _check_configuration(self, target: Target, body: Manifest) -> None:
        """Refuse a configuration of another kind, with managedFields, or with unmergeable fields."""
        resource, metadata = target.resource, body.get("metadata") or {}
        group, _, version = str(body.get("apiVersion") or "").rpartition("/")
        kind = f"{group}/{version}, Kind={body.get('kind') or ''}"
        if (body.get("apiVersion"), body.get("kind")) != (resource.api_version, resource.kind):
            raise errors.bad_request(f"invalid object type: {kind}")
        if isinstance(metadata, dict) and metadata.get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        problem = next(untypable(body, resource.schema), "")
        if problem:
            named = metadata if isinstance(metadata, dict) else {}
            place = f"({named.get('namespace') or ''}/{named.get('name') or ''}; {kind})"
            raise errors.StatusError(500, "", f"failed to create typed patch object {place}: {problem}")

    async def _apply_new(
        self,
        call: Call,
        config: Manifest,
        emptied: frozenset[Path],
        options: Options,
        warnings: list[str],
    ) -> Reply:
        target, metadata = call.target, config["metadata"]
        resource = target.resource
        if target.subresource:
            raise errors.not_found(resource.group, resource.plural, target.name)
        if metadata.get("uid"):
            uid = metadata["uid"]
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise errors.conflict(resource.group, resource.plural, target.name, why)
        served_config = resource.conversion.from_storage(config) if resource.conversion else config
        answer = await creating.create(
            self._core, resource, target.namespace, served_config, options, applied=True, emptied=emptied
        )
        answer.warnings[:] = []
        return self._reply(call, answer, warnings)

    def _check_uid(self, resource: Resource, old: Manifest, config: Manifest) -> None:
        asked = config["metadata"].get("uid")
        if asked and asked != old["metadata"]["uid"]:
            cause = wrong("metadata.uid", asked, "field is immutable")
            raise errors.invalid(resource.group, resource.kind, old["metadata"]["name"], [cause, cause])

    async def delete(self, call: Call) -> Reply:
        target = call.target
        options = _with_dry_run(call)
        answer = await deleting.delete(
            self._core, target.resource, target.namespace, target.name, call.deletion(), options
        )
        if answer.gone and target.resource.kind not in _TELLING:
            body = status_success(target, target.name, answer.stored.metadata["uid"])
            return Reply(200, encode(body), answer.warnings)
        return self._reply(call, answer)

    async def delete_collection(self, call: Call) -> Reply:
        """Delete all objects that match the selectors; the answer lists them."""
        target, options, deletion = call.target, _with_dry_run(call), call.deletion()
        keep = selection(target, call.query)
        resource = target.resource
        every = self._core.store.every(resource.type, target.namespace)
        chosen = [each for each in every if keep is None or keep(in_version(resource, each))]
        for each in chosen:
            namespace, name = each.metadata.get("namespace", ""), each.metadata["name"]
            if self._core.store.get(resource.type, namespace, name) is not None:
                await deleting.delete(self._core, resource, namespace, name, deletion, options)
        items = [in_version(resource, each) for each in chosen]
        metadata = {"resourceVersion": str(self._core.store.version)}
        return Reply(
            200,
            encode(
                {
                    "kind": resource.list_kind,
                    "apiVersion": resource.api_version,
                    "metadata": metadata,
                    "items": items,
                }
            ),
        )

    def _reply(self, call: Call, answer: Answer, warnings: list[str] | None = None) -> Reply:
        body = render_one(call.target.resource, answer.stored, call.form, self._now())
        return Reply(201 if answer.created else 200, body, [*(warnings or ()), *answer.warnings])


_TELLING = (
    "Pod",
    "Service",
    "ServiceAccount",
    "PersistentVolumeClaim",
)  # their deletion answers with the object


def check_uid(resource: Resource, old: Manifest, uid: str | None) -> None:
    """A PUT that names a uid means that very object."""
    if uid and uid != old["uid"]:
        place = f"{resource.group}/{resource.plural}" if resource.custom else resource.plural
        key = "/".join(each for each in ("/registry", place, old.get("namespace"), old["name"]) if each)
        why = (
            f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['uid']}"
        )
        raise errors.conflict(resource.group, resource.plural, old["name"], why)


def _is_of_half(target: Target, member: str) -> bool:
    """Whether an apply to this target may set a top-level member."""
    if target.subresource == "status":
        return member in ("apiVersion", "kind", "metadata", "status")
    return member != "status" or not target.resource.status


def _with_dry_run(call: Call) -> Options:
    options = call.options()
    return Options(
        options.user, options.manager, options.dry_run or call.dry_deletion(), options.field_validation
    )
