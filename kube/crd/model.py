"""Custom resources as Pydantic models: base classes, field types, the declaration.

    class ThingSpec(Part):
        size: int = 1
        '''How large it is.'''

    class Thing(CustomResource):
        spec: ThingSpec
        status: ThingStatus = ThingStatus()

    THING = Kind("example.org", "v1", "Thing", "things", Thing)
    DECLARATION = Declaration(THING, short_names=("th",))
    manifest = crd_manifest(DECLARATION)        # kube.crd.generate

The docstring under a field is what `kubectl explain` says. Python names are snake_case, JSON names camelCase.
Objects are read with `THING.decode(...)`; fields that a model does not know are dropped, so write with apply
or patch, not replace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from elasticjob.kube.crd.schemas import MOMENT, RULES, Schema
from elasticjob.kube.objects.kinds import Key, Kind, Manifest, without_nulls
from elasticjob.kube.objects.views import Condition, ObjectMeta

T = TypeVar("T")

__all__ = [
    "ATOMIC",
    "ATOMIC_MAP",
    "IMPLIED",
    "NULLABLE",
    "OPAQUE",
    "Column",
    "CustomResource",
    "Declaration",
    "Duration",
    "Embedded",
    "Metadata",
    "MicroTime",
    "OneCondition",
    "Part",
    "Quantity",
    "Rule",
    "Scale",
    "Time",
    "list_map",
    "restricted",
    "ruled",
]


@dataclass(frozen=True)
class Rule:
    """A CEL rule on the object, field or class that bears it; `field` is the path to blame, such as
    `.minReplicas`.

    A rule that reads `oldSelf` is about changes; with `optional_old` it is asked at creation, too, and
    `oldSelf` is an optional. `says` is an expression for the message; `message` stays what is said where it
    fails.
    """

    rule: str
    message: str
    field: str = ""
    reason: str = ""
    says: str = ""
    optional_old: bool = False

    def schema(self) -> Schema:
        """The rule as an entry of `x-kubernetes-validations`."""
        entries = {
            "rule": self.rule,
            "message": self.message,
            "messageExpression": self.says,
            "fieldPath": self.field,
            "reason": self.reason,
            "optionalOldSelf": self.optional_old,
        }
        return {key: value for key, value in entries.items() if value}


def ruled(*rules: Rule) -> Schema:
    """The `json_schema_extra` of a field that bears rules of its own."""
    return {RULES: [rule.schema() for rule in rules]}


def list_map(*keys: str) -> Schema:
    """The `json_schema_extra` of a list whose items are told apart, and merged, by `keys`."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


ATOMIC_MAP: Schema = {"x-kubernetes-map-type": "atomic"}
ATOMIC: Schema = {"x-kubernetes-list-type": "atomic"}
NULLABLE: Schema = {"nullable": True}

IMPLIED: Schema = {"x-implied": True}
"""The `json_schema_extra` of a default that readers see, but that the server does not store."""


class Part(BaseModel):
    """A piece of a custom resource: frozen, camelCase outside, explained by docstrings under its fields."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        use_attribute_docstrings=True,
        extra="ignore",
    )
    RULES: ClassVar[tuple[Rule, ...]] = ()

    def manifest(self) -> Manifest:
        """This piece as plain JSON, without the fields that are None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        found = handler.resolve_ref_schema(handler(core))
        if cls.RULES:
            found[RULES] = [entry.schema() for entry in cls.RULES]
        return found


for _model in (ObjectMeta, Condition):
    # msgspec looks at the fields of a type at its first use; two threads of webhooks at once would crash it
    msgspec.json.Decoder(_model)


def _read_metadata(value: Any) -> ObjectMeta:
    return value if isinstance(value, ObjectMeta) else _converted(value, ObjectMeta)


def _read_condition(value: Any) -> Condition:
    return value if isinstance(value, Condition) else _converted(value, Condition)


def _converted(value: Any, model: type[T]) -> T:
    """Return a struct of plain JSON; where it does not fit, nulls mean absent."""
    try:
        return msgspec.convert(value, model, strict=False)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(value), model, strict=False)


@lru_cache(1024)  # conditions are written anew with each status
def _seconds(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _microseconds(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _with_zone(moment: datetime) -> datetime:
    """A moment without a zone is UTC: nothing here may depend on where the program runs."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _write_condition(condition: Condition) -> Manifest:
    found: Manifest = msgspec.to_builtins(condition)
    if condition.last_transition_time is not None:
        found["lastTransitionTime"] = _seconds(condition.last_transition_time)
    return found


_UNITS: Mapping[str, timedelta] = {
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
    "us": timedelta(microseconds=1),
}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|us|m|s)")


def _read_duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str) or not (parts := _DURATION.findall(value)) or _DURATION.sub("", value):
        raise ValueError(f"{value!r} is not a duration: write 1h30m, 5s or 250ms")
    try:
        return sum((float(number) * _UNITS[unit] for number, unit in parts), timedelta())
    except OverflowError as error:
        raise ValueError(f"{value!r} is longer than anything lasts") from error


def _write_duration(value: timedelta) -> str:
    left, words = value, []
    for unit, size in _UNITS.items():
        count, left = divmod(left, size)
        if count:
            words.append(f"{count}{unit}")
    return "".join(words) or "0s"


_TEXT: Schema = {"type": "string"}
_MOMENT: Schema = {**_TEXT, "format": "date-time", MOMENT: True}
_CONDITION: Schema = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {
        "type": {**_TEXT, "maxLength": 316, "description": "What this is about, in CamelCase."},
        "status": {**_TEXT, "enum": ["True", "False", "Unknown"], "description": "True, False or Unknown."},
        "reason": {**_TEXT, "maxLength": 1024, "description": "Why, as one CamelCase word for programs."},
        "message": {**_TEXT, "maxLength": 32768, "description": "Why, as a sentence for people."},
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "The metadata.generation that this was said about.",
        },
        "lastTransitionTime": {**_MOMENT, "description": "When status changed last."},
    },
}

Metadata = Annotated[
    ObjectMeta,
    PlainValidator(_read_metadata),
    PlainSerializer(msgspec.to_builtins, return_type=dict),
    WithJsonSchema({"type": "object"}),
]
Time = Annotated[
    datetime, AfterValidator(_with_zone), PlainSerializer(_seconds, return_type=str), WithJsonSchema(_MOMENT)
]
"""A moment: UTC, in whole seconds, as the API server writes it."""

MicroTime = Annotated[
    datetime,
    AfterValidator(_with_zone),
    PlainSerializer(_microseconds, return_type=str),
    WithJsonSchema(_MOMENT),
]
"""A moment: UTC, in microseconds, as in a Lease."""

OneCondition = Annotated[
    Condition,
    PlainValidator(_read_condition),
    PlainSerializer(_write_condition, return_type=dict),
    WithJsonSchema(_CONDITION),
]

OPAQUE: Schema = {"x-kubernetes-preserve-unknown-fields": True}
Duration = Annotated[
    timedelta, PlainValidator(_read_duration), PlainSerializer(_write_duration), WithJsonSchema(_TEXT)
]
"""A length of time as Go programs write it: `1h30m`, `5s`, `250ms`."""

Quantity = Annotated[str | int | float, WithJsonSchema({"x-kubernetes-int-or-string": True})]
"""A number of something as it stands in the manifest: `"500m"`, `"8Gi"`, `4`."""


@dataclass(frozen=True)
class Embedded:
    """Marks a plain JSON field (`Annotated[Manifest, Embedded(name)]`) as a published type, named as in the
    OpenAPI.

    The generator looks the type up in the definitions that it is given; readers get the JSON as it stands, so
    no field is lost, whatever its age.
    """

    name: str

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        return {"x-embedded": self.name}


def restricted(name: Schema) -> Any:
    """Metadata whose name must fit a schema: `metadata: restricted({"maxLength": 40})`."""
    names = {"name": {"type": "string", **name}}
    return Annotated[Metadata, WithJsonSchema({"type": "object", "properties": names})]


class CustomResource(Part):
    """An object of a custom kind; subclasses add `spec` and `status`."""

    api_version: str = ""
    kind: str = ""
    metadata: Metadata = Field(default_factory=ObjectMeta)

    @property
    def key(self) -> Key:
        """The object's name within its kind."""
        return Key(self.metadata.namespace, self.metadata.name)


@dataclass(frozen=True)
class Column:
    """One column of `kubectl get`; `wide` ones show with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    wide: bool = False
    format: str = ""


@dataclass(frozen=True)
class Scale:
    """The paths behind `kubectl scale` and the horizontal autoscaler."""

    spec_replicas: str
    status_replicas: str
    selector: str


@dataclass(frozen=True)
class Declaration:
    """All that a CustomResourceDefinition says beside the schema of its model.

    `deprecated` is the sentence that clients of this version are warned with; "" for a version that is not.
    """

    kind: Kind[Any]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    scale: Scale | None = None
    selectable: tuple[str, ...] = ()
    annotations: Mapping[str, str] | None = None
    deprecated: str = ""
