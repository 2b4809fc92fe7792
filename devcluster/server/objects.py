"""Create, read, change and delete objects: the rules that hold for every kind.

A write is: decode → default → admission → check → store. Only admission awaits, and only when a webhook
matches; a change is therefore computed from the object as it is and stored only if it still is. Callers that
named a resourceVersion get the conflict; for the others the change is computed again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import msgspec

from elasticjob.devcluster.server import errors, managed
from elasticjob.devcluster.server.decoding import decode, different
from elasticjob.devcluster.server.defaulting import fill
from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.names import identity_problems, metadata_problems, missing
from elasticjob.devcluster.server.pods import grace_period
from elasticjob.devcluster.server.pruning import prune
from elasticjob.devcluster.server.ratcheting import is_as_before
from elasticjob.devcluster.server.registry import Registry, Resource
from elasticjob.devcluster.server.rules import broken_rules
from elasticjob.devcluster.server.services import keep_address
from elasticjob.devcluster.server.solid import solid_paths
from elasticjob.devcluster.server.store import Manifest, Store, Stored, Type, encode
from elasticjob.devcluster.server.strategy import Strategy, no_problem
from elasticjob.devcluster.server.validation import validate

NAMESPACES = Type("", "namespaces")
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_ATTEMPTS = 8
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
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
Compute = Callable[[Manifest], Manifest | Awaitable[Manifest]]


@dataclass(frozen=True)
class User:
    """Who asks."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


@dataclass(frozen=True)
class Options:
    """What a request says beside its object."""

    user: User
    manager: str
    dry_run: bool = False
    field_validation: str = "Warn"
    force: bool = False


@dataclass(frozen=True)
class Deletion:
    """DeleteOptions."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    version: str = ""


@dataclass
class Answer:
    """A stored (or, for a dry run, would-be) object; `warnings` go to the client's terminal."""

    stored: Stored
    created: bool = False
    warnings: list[str] = field(default_factory=list)
    gone: bool = False


@dataclass(frozen=True)
class Attributes:
    """What admission knows of a request."""

    resource: Resource
    operation: str
    namespace: str
    name: str
    subresource: str
    old: Manifest | None
    options: Options


class Admission(Protocol):
    """Where webhooks change or refuse an object."""

    def concerns(self, attributes: Attributes) -> bool: ...
    async def mutate(self, attributes: Attributes, new: Manifest) -> Manifest: ...
    async def validate(self, attributes: Attributes, new: Manifest | None) -> list[str]: ...


class Objects:
    """All writes and single reads."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        strategies: Mapping[tuple[str, str], Strategy],
        admission: Admission,
        now: Callable[[], datetime],
        chance: random.Random,
    ) -> None:
        self.store = store
        self.registry = registry
        self._strategies = strategies
        self._admission = admission
        self._now = now
        self._chance = chance

    # Reads

    def get(self, resource: Resource, namespace: str, name: str) -> Stored:
        """The object, or NotFound."""
        stored = self.store.get(resource.type, namespace, name)
        if stored is None:
            raise errors.not_found(resource.group, resource.plural, name)
        return stored

    def stamp(self, later: float = 0) -> str:
        return (self._now() + timedelta(seconds=later)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def new_uid(self) -> str:
        return str(UUID(int=self._chance.getrandbits(128), version=4))

    # Create

    async def create(
        self, resource: Resource, namespace: str, body: Any, options: Options, *, applied: bool = False
    ) -> Answer:
        """Store a new object. AlreadyExists, Invalid, NotFound (its namespace) or Forbidden (a dying one)."""
        warnings: list[str] = []
        new = decode(resource, namespace, body, options.field_validation, warnings)
        self._name_it(resource, new["metadata"])
        attributes = self._attributes(
            resource, "CREATE", namespace, new["metadata"].get("name", ""), "", None, options
        )
        self._check_namespace(resource, namespace)
        new = self._start(resource, new, self._writer(resource, options, ""), new if applied else None)
        concerned = self._admission.concerns(attributes)
        if concerned:
            admitted = await self._mutated(attributes, new)
            new = _with_status_of(new, admitted) if resource.status else admitted
        self._check_new(resource, new)
        if concerned:
            warnings += await self._admission.validate(attributes, new)
        name = new["metadata"]["name"]
        if self.store.get(resource.type, namespace, name) is not None:
            raise errors.already_exists(resource.group, resource.plural, name)
        self._check_namespace(resource, namespace)
        return Answer(self._put(resource, new, options), True, warnings)

    def _name_it(self, resource: Resource, metadata: Manifest) -> None:
        if not metadata.get("name") and metadata.get("generateName"):
            suffix = "".join(self._chance.choices(_SUFFIX, k=5))
            metadata["name"] = metadata["generateName"][:58] + suffix
        if not metadata.get("name"):
            cause = missing("metadata.name", "name or generateName is required")
            raise errors.invalid(resource.group, resource.kind, "", [cause])

    def _check_namespace(self, resource: Resource, namespace: str) -> None:
        if not resource.namespaced:
            return
        found = self.store.get(NAMESPACES, "", namespace)
        if found is None:
            raise errors.not_found("", "namespaces", namespace)
        if found.metadata.get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise errors.forbidden(resource.group, resource.plural, "", why)

    def _start(
        self, resource: Resource, new: Manifest, writer: managed.Writer, applied: Manifest | None
    ) -> Manifest:
        """Give a new object what only the server may give, which nobody owns; the rest is the writer's."""
        metadata = dict(new["metadata"])
        if metadata.get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        for name in (
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "selfLink",
            "generation",
        ):
            metadata.pop(name, None)
        metadata |= {"uid": self.new_uid(), "creationTimestamp": self.stamp()}
        strategy = self._strategy(resource)
        if resource.custom or strategy.generation:
            metadata["generation"] = 1
        new = new | {"metadata": metadata}
        if resource.status and not strategy.keeps_status:
            new.pop("status", None)
        # an apply owns what it says; any other creation owns the defaults as well
        entries = managed.applied(applied, resource.schema, writer) if applied else None
        self._default(resource, new)
        if book := entries or managed.created(new, resource.schema, writer):
            metadata["managedFields"] = book
        strategy.start(new)
        return new

    def _default(self, resource: Resource, new: Manifest) -> None:
        if not resource.custom and "spec" in (resource.schema.get("properties") or {}):
            new.setdefault("spec", {})
        fill(new, resource.schema)
        self._strategy(resource).default(new)

    def _check_new(self, resource: Resource, new: Manifest) -> None:
        self._raise(resource, new, self._problems(resource, new, None, self._strategy(resource).check(new)))
        self._raise(resource, new, broken_rules(resource.rules, new, None))

    def _problems(
        self, resource: Resource, new: Manifest, old: Manifest | None, of_kind: Iterable[Cause]
    ) -> list[Cause]:
        """Problems of metadata, kind and schema; the kind's own words win over the schema's about one field.

        What an update leaves as it was is not held against it.
        """
        metadata = new["metadata"]
        causes = [
            *metadata_problems(resource.group, resource.kind, metadata, custom=resource.custom),
            *of_kind,
        ]
        told = {cause.field for cause in causes}
        changed = {name: value for name, value in different(new, old).items() if name != "metadata"}
        content = list(validate(changed, resource.schema))
        if resource.custom and old is not None:
            content = [cause for cause in content if not is_as_before(cause, new, old)]
        if (
            not resource.custom
        ):  # list-maps of built-in types may repeat a key (env); their kinds say which may not
            content = [each for each in content if each.reason != "FieldValueDuplicate"]
        told |= changed.keys() ^ new.keys()  # members that were left out are not missing
        return causes + [each for each in content if each.field not in told]

    def _raise(self, resource: Resource, new: Manifest, causes: Sequence[Cause]) -> None:
        if causes:
            raise errors.invalid(resource.group, resource.kind, new["metadata"].get("name", ""), causes)

    # Update

    async def update(
        self,
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
        for _ in range(_ATTEMPTS):
            old = self.get(resource, namespace, name)
            warnings: list[str] = []
            outcome = compute(old.copy())
            new = outcome if isinstance(outcome, dict) else await outcome
            asked = {version, str(new["metadata"].get("resourceVersion") or "")}
            if asked - {"", str(old.version)}:
                raise errors.conflict(resource.group, resource.plural, name, errors.STALE)
            new = self._prepared(resource, old.body, new, subresource)
            if self._same(old.body, new):
                return Answer(old, warnings=warnings)
            if not applied:
                writer = self._writer(resource, options, subresource)
                managed.keep_book(old.body, new, resource.schema, writer)
            attributes = self._attributes(resource, "UPDATE", namespace, name, subresource, old.body, options)
            concerned = self._admission.concerns(attributes)
            if concerned:
                new = self._prepared(resource, old.body, await self._mutated(attributes, new), subresource)
            self._check_update(resource, old.body, new, subresource)
            if concerned:
                warnings += await self._admission.validate(attributes, new)
            if self.store.get(resource.type, namespace, name) is old:
                return self._store_update(resource, old, new, options, warnings)
            if version:
                break
            await asyncio.sleep(0)
        raise errors.conflict(resource.group, resource.plural, name, errors.STALE)

    def _prepared(self, resource: Resource, old: Manifest, new: Manifest, subresource: str) -> Manifest:
        """The new object; the halves and the metadata that this write may not touch are the old one's."""
        new = self._keep_metadata(resource, old, new)
        if subresource == "status":
            kept = {name: value for name, value in old.items() if name not in ("status", "metadata")}
            mine = {"status": new["status"]} if "status" in new else {}
            book = new["metadata"].get("managedFields")
            metadata = old["metadata"] | ({"managedFields": book} if book else {})
            new = kept | {"metadata": metadata} | mine
        elif resource.status and not subresource:
            new = {name: value for name, value in new.items() if name != "status"}
            new |= {"status": old["status"]} if "status" in old else {}
        self._default(resource, new)
        if resource.kind == "Service" and not resource.custom:
            keep_address(new, old)
        if resource.type == NAMESPACES and subresource != "finalize":
            new["spec"] = old["spec"]
        self._count_generation(resource, old, new)
        return new

    def _keep_metadata(self, resource: Resource, old: Manifest, new: Manifest) -> Manifest:
        before, after = old["metadata"], dict(new["metadata"])
        self._raise(resource, old, list(identity_problems(before, after)))
        for key in _KEPT_METADATA:
            after.pop(key, None)
            if key in before:
                after[key] = before[key]
        after["resourceVersion"] = before["resourceVersion"]
        if "managedFields" not in after and "managedFields" in before:
            after["managedFields"] = before["managedFields"]
        elif not any(after.get("managedFields") or ()):  # `[]` and `[{}]` end the book-keeping
            after.pop("managedFields", None)
        for key in ("labels", "annotations", "ownerReferences", "finalizers"):
            if key in after and not after[key]:
                del after[key]
        return new | {"metadata": after}

    def _count_generation(self, resource: Resource, old: Manifest, new: Manifest) -> None:
        if not (resource.custom or self._strategy(resource).generation):
            return
        left_out = ("metadata", "status") if resource.status or not resource.custom else ("metadata",)
        if any(old.get(name) != new.get(name) for name in {*old, *new} if name not in left_out):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def _same(self, old: Manifest, new: Manifest) -> bool:
        if old == new:
            return True
        return _without_ownership(old) == _without_ownership(new) and _ownership(old) == _ownership(new)

    def _check_update(self, resource: Resource, old: Manifest, new: Manifest, subresource: str) -> None:
        metadata = new["metadata"]
        if metadata.get("deletionTimestamp"):
            added = set(metadata.get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
            if added:
                why = (
                    "Forbidden: no new finalizers can be added if the object is being deleted, "
                    f"found new finalizers {sorted(added)}"
                )
                self._raise(resource, new, [Cause("metadata.finalizers", why, "FieldValueForbidden")])
        of_kind: Iterable[Cause] = ()
        if subresource not in ("status", "resize", "binding"):
            strategy = self._strategy(resource)
            of_kind = strategy.check(new) if self._is_plain(resource) else strategy.check_update(new, old)
        self._raise(resource, new, self._problems(resource, new, old, of_kind))
        self._raise(resource, new, broken_rules(resource.rules, new, old))

    def _is_plain(self, resource: Resource) -> bool:
        """Kinds whose update rules are their creation rules."""
        return self._strategy(resource).check_update is no_problem

    def _store_update(
        self, resource: Resource, old: Stored, new: Manifest, options: Options, warnings: list[str]
    ) -> Answer:
        metadata = new["metadata"]
        ends = (
            metadata.get("deletionTimestamp")
            and not metadata.get("finalizers")
            and self._may_end(resource, new)
        )
        if ends and not options.dry_run:
            return Answer(self.store.remove(resource.type, new), warnings=warnings, gone=True)
        return Answer(self._put(resource, new, options), warnings=warnings)

    def _may_end(self, resource: Resource, new: Manifest) -> bool:
        if resource.type == NAMESPACES and new["spec"].get("finalizers"):
            return False
        return not new["metadata"].get("deletionGracePeriodSeconds")

    # Delete

    async def delete(
        self, resource: Resource, namespace: str, name: str, deletion: Deletion, options: Options
    ) -> Answer:
        """Mark an object for deletion, or remove it when nothing holds it any more. NotFound, Conflict."""
        old = self.get(resource, namespace, name)
        self._check_preconditions(resource, old, deletion)
        attributes = self._attributes(resource, "DELETE", namespace, name, "", old.body, options)
        if self._admission.concerns(attributes):
            await self._admission.validate(attributes, None)
            old = self.get(resource, namespace, name)
            self._check_preconditions(resource, old, deletion)
        if resource.type == NAMESPACES and name in ("default", "kube-system"):
            raise errors.forbidden("", "namespaces", name, "this namespace may not be deleted")
        new = self._marked(resource, old, deletion)
        if new is None:
            if options.dry_run:
                return Answer(old, gone=True)
            return Answer(self.store.remove(resource.type, old.copy()), gone=True)
        if new == old.body:
            return Answer(old)
        return Answer(self._put(resource, new, options))

    def _check_preconditions(self, resource: Resource, old: Stored, deletion: Deletion) -> None:
        for noun, asked, found in (
            ("UID", deletion.uid, old.metadata["uid"]),
            ("ResourceVersion", deletion.version, str(old.version)),
        ):
            if asked and asked != found:
                why = f"Precondition failed: {noun} in precondition: {asked}, {noun} in object meta: {found}"
                raise errors.conflict(resource.group, resource.plural, old.metadata["name"], why)

    def _marked(self, resource: Resource, old: Stored, deletion: Deletion) -> Manifest | None:
        """The object with its deletion mark; None when it can go at once."""
        new = old.copy()
        metadata = new["metadata"]
        grace = grace_period(new, deletion.grace) if resource.kind == "Pod" and not resource.custom else 0
        finalizers = [each for each in metadata.get("finalizers") or () if each not in (ORPHAN, FOREGROUND)]
        held = {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(deletion.propagation)
        if held is None:
            held = [each for each in metadata.get("finalizers") or () if each in (ORPHAN, FOREGROUND)]
        finalizers += held
        metadata.pop("finalizers", None)
        if finalizers:
            metadata["finalizers"] = finalizers
        contents = resource.type == NAMESPACES and new["spec"].get("finalizers")
        if not (finalizers or grace or contents):
            return None
        self._mark(metadata, grace)
        if contents:
            new["status"] = (new.get("status") or {}) | {"phase": "Terminating"}
        return new

    def _mark(self, metadata: Manifest, grace: int) -> None:
        if not metadata.get("deletionTimestamp"):
            if "generation" in metadata:
                metadata["generation"] += 1
        elif metadata.get("deletionGracePeriodSeconds", 0) <= grace:
            return
        metadata |= {"deletionTimestamp": self.stamp(grace), "deletionGracePeriodSeconds": grace}

    # Shared

    def _strategy(self, resource: Resource) -> Strategy:
        if resource.custom:
            return _PLAIN
        return self._strategies.get((resource.type.group, resource.kind), _PLAIN)

    def needs_version(self, resource: Resource) -> bool:
        return resource.custom or self._strategy(resource).needs_version

    def _writer(self, resource: Resource, options: Options, subresource: str) -> managed.Writer:
        solid = solid_paths(resource)
        return managed.Writer(options.manager, resource.api_version, subresource, self.stamp(), solid)

    def writer(self, resource: Resource, options: Options, subresource: str = "") -> managed.Writer:
        return self._writer(resource, options, subresource)

    def _attributes(
        self,
        resource: Resource,
        operation: str,
        namespace: str,
        name: str,
        subresource: str,
        old: Manifest | None,
        options: Options,
    ) -> Attributes:
        return Attributes(resource, operation, namespace, name, subresource, old, options)

    async def _mutated(self, attributes: Attributes, new: Manifest) -> Manifest:
        """Let webhooks change the object, then bring it back into shape.

        What is wrong by schema or rule is refused next; validating webhooks see only what is right.
        """
        changed = await self._admission.mutate(attributes, new)
        if changed is not new:
            prune(changed, attributes.resource.schema)
            self._default(attributes.resource, changed)
        return changed

    def _put(self, resource: Resource, new: Manifest, options: Options) -> Stored:
        if options.dry_run:
            return Stored(new, encode(new), int(new["metadata"].get("resourceVersion") or 0))
        return self.store.put(resource.type, new)


_PLAIN = Strategy()


def _with_status_of(first: Manifest, admitted: Manifest) -> Manifest:
    """What a webhook says about the status of a new object does not count."""
    kept = {name: value for name, value in admitted.items() if name != "status"}
    return kept | ({"status": first["status"]} if "status" in first else {})


def _without_ownership(manifest: Manifest) -> Manifest:
    metadata = {name: value for name, value in manifest["metadata"].items() if name != "managedFields"}
    return manifest | {"metadata": metadata}


def _ownership(manifest: Manifest) -> list[bytes]:
    """managedFields without times and order: what a write must change to count as one."""
    entries = manifest["metadata"].get("managedFields") or ()
    return sorted(
        _sorted({name: value for name, value in entry.items() if name != "time"}) for entry in entries
    )


_sorted = msgspec.json.Encoder(order="sorted").encode
