"""Shared parts of create, update and delete: store, strategies of kinds, admission, clock, and checks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from elasticjob.devcluster.server.model import errors
from elasticjob.devcluster.server.model.asking import Admission, Attributes, Options, Rights
from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.registry import Registry, Resource
from elasticjob.devcluster.server.model.store import Entry, Manifest, Store, encode
from elasticjob.devcluster.server.model.strategy import Strategy
from elasticjob.devcluster.server.schema.defaulting import fill
from elasticjob.devcluster.server.schema.evaluation import broken_rules
from elasticjob.devcluster.server.schema.pruning import prune
from elasticjob.devcluster.server.schema.ratcheting import is_as_before
from elasticjob.devcluster.server.schema.validation import validate
from elasticjob.devcluster.server.write import managed
from elasticjob.devcluster.server.write.decoding import different
from elasticjob.devcluster.server.write.solid import solid_paths


@dataclass(frozen=True)
class Core:
    """One instance serves all requests of a server."""

    store: Store
    registry: Registry
    strategies: Mapping[tuple[str, str], Strategy]
    admission: Admission
    rights: Rights
    now: Callable[[], datetime]
    chance: random.Random

    def get(self, resource: Resource, namespace: str, name: str) -> Entry:
        """The object, or NotFound."""
        stored = self.store.get(resource.type, namespace, name)
        if stored is None:
            raise errors.not_found(resource.group, resource.plural, name)
        return stored

    def stamp(self, later: float = 0) -> str:
        return (self.now() + timedelta(seconds=later)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def new_uid(self) -> str:
        return str(UUID(int=self.chance.getrandbits(128), version=4))

    def strategy(self, resource: Resource) -> Strategy:
        if resource.custom:
            return _PLAIN
        own = self.strategies.get((resource.group, resource.kind))
        return own or self.strategies.get((resource.type.group, resource.kind), _PLAIN)

    def needs_version(self, resource: Resource) -> bool:
        return resource.custom or self.strategy(resource).needs_version

    def writer(self, resource: Resource, options: Options, subresource: str = "") -> managed.Writer:
        return managed.Writer(
            options.manager,
            resource.api_version,
            subresource,
            self.stamp(),
            solid_paths(resource),
            alone=not resource.custom,
        )

    def default(self, resource: Resource, new: Manifest) -> None:
        """Fill absent fields with the defaults of the schema and the kind."""
        if not resource.custom and "spec" in (resource.schema.get("properties") or {}):
            new.setdefault("spec", {})
        fill(new, resource.schema)
        self.strategy(resource).default(new)

    def check(
        self,
        resource: Resource,
        new: Manifest,
        old: Manifest | None,
        causes: Sequence[Cause],
        subresource: str = "",
    ) -> None:
        """Refuse the object for `causes` (of its metadata and kind), its schema or its rules.

        Rules are not asked about values of the wrong type, wrong choices and the like.
        """
        of_schema = not self.strategy(resource).says_all
        found = [*causes, *(_content_problems(resource, new, old, causes, subresource) if of_schema else ())]
        blocked = any(cause.reason in _BLOCKING for cause in found)
        if resource.rules and not blocked:
            found += broken_rules(resource.rules, new, old)
        if resource.rules and blocked:
            found.append(_RULES_NOT_ASKED)
        self.refuse(resource, new, found)

    def refuse(self, resource: Resource, new: Manifest, causes: Iterable[Cause]) -> None:
        """Raise Invalid if there is any cause."""
        found = list(causes)
        if found:
            raise errors.invalid(resource.type.group, resource.kind, new["metadata"].get("name", ""), found)

    async def mutate(self, attributes: Attributes, new: Manifest, warnings: list[str]) -> Manifest:
        """Let webhooks change the object, then bring it back into shape.

        What is wrong by schema or rule is refused next; validating webhooks see only what is right.
        """
        changed = await self.admission.mutate(attributes, new, warnings)
        if changed is not new:
            prune(changed, attributes.resource.schema)
            self.default(attributes.resource, changed)
        return changed

    def put(self, resource: Resource, new: Manifest, options: Options) -> Entry:
        """Store the object; a dry run only returns it."""
        if options.dry_run:
            return Entry(new, encode(new), int(new["metadata"].get("resourceVersion") or 0))
        return self.store.put(resource.type, new)


_PLAIN = Strategy()
_BLOCKING = frozenset(
    {
        "FieldValueTypeInvalid",
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueDuplicate",
    }
)
_RULES_NOT_ASKED = Cause(
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation",
)


def _content_problems(
    resource: Resource, new: Manifest, old: Manifest | None, known: Iterable[Cause], subresource: str
) -> list[Cause]:
    """Violations of the schema, except in fields of `known`; unchanged values of an update are allowed."""
    if resource.custom and subresource == "status":
        return _status_problems(resource, new, old)
    fields = {cause.field for cause in known}
    changed = {name: value for name, value in different(new, old).items() if name != "metadata"}
    content = [*validate(changed, resource.schema), *_name_problems(resource, new)]
    if resource.custom and old is not None:
        content = [cause for cause in content if not is_as_before(cause, new, old, resource.schema)]
        if any(each.reason == "FieldValueDuplicate" for each in content) and _repeats(resource, old):
            content = [each for each in content if each.reason != "FieldValueDuplicate"]
    if resource.custom:
        content.sort(key=lambda cause: cause.field)
    else:  # list-maps of built-in types may repeat a key (env), unless their strategies refuse it
        content = [
            each for each in content if each.reason != "FieldValueDuplicate" and '"null"' not in each.message
        ]
    fields |= changed.keys() ^ new.keys()  # members that were left out are not missing
    return [each for each in content if each.field not in fields]


def _name_problems(resource: Resource, new: Manifest) -> Iterator[Cause]:
    """Check a custom object's name against the schema."""
    if resource.custom:
        name = resource.schema["properties"]["metadata"]["properties"]["name"]
        yield from validate(new["metadata"].get("name", ""), name, "metadata.name")


def _repeats(resource: Resource, old: Manifest) -> bool:
    """Whether a list of the object already had duplicates: then duplicates are allowed in all its lists."""
    return any(each.reason == "FieldValueDuplicate" for each in validate(old, resource.schema))


def _status_problems(resource: Resource, new: Manifest, old: Manifest | None) -> list[Cause]:
    """Violations of the status schema: messages have paths from the status, fields from the root."""
    schema = (resource.schema.get("properties") or {}).get("status")
    if schema is None or "status" not in new:
        return []
    causes = [
        Cause(f"status.{each.field}" if each.field else "status", each.message, each.reason)
        for each in validate(new["status"], schema)
    ]
    return [cause for cause in causes if old is None or not is_as_before(cause, new, old, resource.schema)]
