"""The rewrite table: a model's field, its generated schema, and how servers respond to both.

Each row is one field `it` of a spec. `answer` is what a server says to Pydantic's own schema of it, "" where
it is taken as it is. The tests of this folder hold generator and servers to the rows; `make generate` writes
them into docs/crd-generation.md.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, NamedTuple
from uuid import UUID

from pydantic import Base64Bytes, ConfigDict, Field, create_model

from elasticjob.kube.crd.model import (
    ATOMIC,
    ATOMIC_MAP,
    IMPLIED,
    NULLABLE,
    CustomResource,
    Duration,
    Embedded,
    MicroTime,
    OneCondition,
    Part,
    Quantity,
    Rule,
    Time,
    list_map,
    ruled,
)
from elasticjob.kube.crd.rewriters import REWRITERS, Rewriter
from elasticjob.kube.crd.schemas import UnsupportedSchema
from elasticjob.kube.crd.structural import inlined, rewritten
from elasticjob.kube.objects.kinds import Kind, Manifest


class Absent(enum.Enum):
    """The field is not there."""

    ABSENT = "absent"


class Refused(enum.Enum):
    """The server refuses the object."""

    REFUSED = "refused"


ABSENT, REFUSED_VALUE = Absent.ABSENT, Refused.REFUSED


@dataclass(frozen=True)
class Sent:
    """A value that a user sends, and the stored value: the same by default."""

    value: Any
    stored: Any = ...


@dataclass(frozen=True)
class Row:
    """One construct that the generator writes."""

    name: str
    text: str
    annotation: Any
    schema: Manifest
    default: Any = ...
    answer: str = ""
    objects: tuple[Sent, ...] = ()


@dataclass(frozen=True)
class Bad:
    """One refused construct with its advice; the server's error for it, or the reason why it has none."""

    name: str
    text: str
    annotation: Any
    advice: str
    default: Any = ...
    answer: str = ""
    why: str = ""


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Item(Part):
    name: str
    """Its name."""

    size: int = 1


class Tree(Part):
    name: str
    children: list[Tree] = Field(default_factory=list)


class Cat(Part):
    kind: Literal["cat", "lion"]
    lives: int


class Dog(Part):
    kind: Literal["dog"]
    namespace: str
    """Where it lives."""


class Cow(Part):
    kind: Literal["cow"]
    namespace: str = ""
    """Where it grazes."""


class Fish(Part):
    kind: Literal["fish"]
    lives: str


class Strict(Part):
    model_config = ConfigDict(extra="forbid")
    name: str


class Open(Part):
    model_config = ConfigDict(extra="allow")
    name: str


class OpenNumbers(Part):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]
    name: str


class Place(NamedTuple):
    x: int
    y: int


class Loose(Part):
    name: str | None = None


class Named(Part):
    name: str = ""
    size: int = 1


class Checked(Part):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("self.least <= self.most", "least is more than most", ".least"),
    )
    least: int = 0
    most: int = 9


class Fixed(Part):
    RULES: ClassVar[tuple[Rule, ...]] = (Rule("self.name == oldSelf.name", "the name is fixed"),)
    name: Annotated[str, Field(max_length=63)]


class Distinct(Part):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("self.names.all(a, self.names.exists_one(b, a == b))", "names are distinct"),
    )
    names: list[str] = Field(default_factory=list)


class DistinctBounded(Distinct):
    names: Annotated[list[Annotated[str, Field(max_length=63)]], Field(max_length=64)] = Field(
        default_factory=list
    )


class RuledVariant(Part):
    RULES: ClassVar[tuple[Rule, ...]] = (Rule("self.lives < 10", "too many"),)
    kind: Literal["ruled"]
    lives: int


KEEP: Manifest = {"x-kubernetes-preserve-unknown-fields": True}
TEXT: Manifest = {"type": "string"}
INT: Manifest = {"type": "integer"}
ITEM: Manifest = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"description": "Its name.", **TEXT}, "size": {**INT, "default": 1}},
}
POD: Manifest = {"type": "object", "properties": {"a": KEEP}}

WRITTEN: tuple[Row, ...] = (
    Row(
        "a model",
        "Item",
        Item,
        ITEM,
        answer="$defs",
        objects=(
            Sent({"name": "a", "more": 1}, {"name": "a", "size": 1}),
            Sent({"size": 2}, REFUSED_VALUE),
        ),
    ),
    Row(
        "optional",
        "int | None = None",
        int | None,
        INT,
        None,
        answer="anyOf",
        objects=(Sent(ABSENT), Sent(3), Sent(None, ABSENT)),
    ),
    Row(
        "null allowed",
        "Annotated[str, Field(json_schema_extra=NULLABLE)] | None = None",
        Annotated[str, Field(json_schema_extra=NULLABLE)] | None,
        {**TEXT, "nullable": True},
        None,
        answer="anyOf",
        objects=(Sent(None), Sent("x")),
    ),
    Row("an optional model", "Item | None = None", Item | None, ITEM, None, answer="$defs"),
    Row(
        "a default",
        "int = 3",
        int,
        {**INT, "default": 3},
        3,
        objects=(Sent(ABSENT, 3), Sent(4)),
    ),
    Row("an empty default", 'str = ""', str, TEXT, "", objects=(Sent(ABSENT),)),
    Row(
        "a default that readers see and the server does not store",
        'Annotated[str, Field(json_schema_extra=IMPLIED)] = "x"',
        Annotated[str, Field(json_schema_extra=IMPLIED)],
        TEXT,
        "x",
        objects=(Sent(ABSENT),),
    ),
    Row(
        "one literal",
        'Literal["x"]',
        Literal["x"],
        {**TEXT, "enum": ["x"]},
        answer="const",
        objects=(Sent("x"), Sent("y", REFUSED_VALUE)),
    ),
    Row(
        "literals",
        'Literal["x", "y"] = "x"',
        Literal["x", "y"],
        {**TEXT, "default": "x", "enum": ["x", "y"]},
        "x",
        objects=(Sent(ABSENT, "x"),),
    ),
    Row(
        "a literal or none",
        'Literal["x", None] = None',
        Literal["x", None],
        {**TEXT, "enum": ["x"]},
        None,
        answer="type",
    ),
    Row(
        "an enum",
        "Colour = Colour.RED",
        Colour,
        {**TEXT, "default": "red", "enum": ["red", "blue"]},
        Colour.RED,
        answer="$defs",
        objects=(Sent("blue"), Sent("green", REFUSED_VALUE)),
    ),
    Row("an enum of numbers", "Number", Number, {**INT, "enum": [1, 2]}, answer="$defs"),
    Row(
        "bounds that are no values",
        "Annotated[int, Field(gt=0, lt=9)] = 1",
        Annotated[int, Field(gt=0, lt=9)],
        {
            **INT,
            "default": 1,
            "minimum": 0,
            "maximum": 9,
            "exclusiveMinimum": True,
            "exclusiveMaximum": True,
        },
        1,
        answer="of type bool",
        objects=(Sent(8), Sent(0, REFUSED_VALUE), Sent(9, REFUSED_VALUE)),
    ),
    Row(
        "a multiple",
        "Annotated[int, Field(multiple_of=3)]",
        Annotated[int, Field(multiple_of=3)],
        {**INT, "multipleOf": 3},
        objects=(Sent(6), Sent(7, REFUSED_VALUE)),
    ),
    Row(
        "a set",
        "set[str]",
        set[str],
        {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        answer="uniqueItems",
        objects=(Sent(["a", "b"]), Sent(["a", "a"], REFUSED_VALUE)),
    ),
    Row(
        "a frozen set of an enum",
        "frozenset[Colour]",
        frozenset[Colour],
        {"type": "array", "items": {**TEXT, "enum": ["red", "blue"]}, "x-kubernetes-list-type": "set"},
        answer="$defs",
    ),
    Row("a tuple of any length", "tuple[int, ...]", tuple[int, ...], {"type": "array", "items": INT}),
    Row(
        "anything",
        "Any",
        Any,
        KEEP,
        answer="type",
        objects=(Sent({"a": [1, None]}), Sent("x"), Sent(3)),
    ),
    Row(
        "a plain object",
        "dict[str, Any]",
        dict[str, Any],
        {"type": "object", **KEEP},
        objects=(Sent({"a": {"b": 1}}, {"a": {"b": 1}}), Sent([1], REFUSED_VALUE)),
    ),
    Row("a list of anything", "list[Any]", list[Any], {"type": "array", "items": KEEP}, answer="type"),
    Row(
        "a number or a text",
        "int | str = 1",
        int | str,
        {"default": 1, "x-kubernetes-int-or-string": True},
        1,
        answer="type",
        objects=(Sent("50%"), Sent(3), Sent(1.5, REFUSED_VALUE), Sent(ABSENT, 1)),
    ),
    Row(
        "a number with bounds or a word",
        'Annotated[int, Field(ge=0)] | Literal["auto"]',
        Annotated[int, Field(ge=0)] | Literal["auto"],
        {"minimum": 0, "pattern": "^(auto)$", "x-kubernetes-int-or-string": True},
        answer="const",
        objects=(Sent(3), Sent("auto"), Sent(-1, REFUSED_VALUE), Sent("other", REFUSED_VALUE)),
    ),
    Row(
        "a whole number or another",
        "int | float",
        int | float,
        {"type": "number"},
        answer="type",
        objects=(Sent(3), Sent(1.5)),
    ),
    Row(
        "a number", "float", float, {"type": "number"}, objects=(Sent(0.5), Sent(2), Sent("1", REFUSED_VALUE))
    ),
    Row(
        "a quantity",
        "Quantity",
        Quantity,
        {"x-kubernetes-int-or-string": True},
        objects=(Sent("500m"), Sent("8Gi"), Sent(4)),
    ),
    Row(
        "a map",
        "dict[str, int]",
        dict[str, int],
        {"type": "object", "additionalProperties": INT},
        objects=(Sent({"a": 1}), Sent({"a": "1"}, REFUSED_VALUE)),
    ),
    Row(
        "a map with numbers for keys",
        "dict[int, str]",
        dict[int, str],
        {"type": "object", "additionalProperties": TEXT},
        objects=(Sent({"1": "a"}),),
    ),
    Row(
        "a map of bounded size",
        "Annotated[dict[str, int], Field(max_length=2)]",
        Annotated[dict[str, int], Field(max_length=2)],
        {"type": "object", "maxProperties": 2, "additionalProperties": INT},
        objects=(Sent({"a": 1}), Sent({"a": 1, "b": 2, "c": 3}, REFUSED_VALUE)),
    ),
    Row(
        "a map with words for keys",
        "dict[Colour, int]",
        dict[Colour, int],
        {
            "type": "object",
            "additionalProperties": INT,
            "x-kubernetes-validations": [
                {"rule": 'self.all(key, key in ["red", "blue"])', "message": "the keys are red, blue"}
            ],
        },
        answer="propertyNames",
        objects=(Sent({"red": 1}), Sent({"green": 1}, REFUSED_VALUE)),
    ),
    Row(
        "a map of short keys",
        "dict[Annotated[str, Field(max_length=3)], int]",
        dict[Annotated[str, Field(max_length=3)], int],
        {
            "type": "object",
            "additionalProperties": INT,
            "x-kubernetes-validations": [
                {"rule": "self.all(key, size(key) <= 3)", "message": "the keys have at most 3 characters"}
            ],
        },
        answer="propertyNames",
        objects=(Sent({"abc": 1}), Sent({"abcd": 1}, REFUSED_VALUE)),
    ),
    Row(
        "a map of patterned keys",
        'dict[Annotated[str, Field(pattern="^[a-z]+$")], int]',
        dict[Annotated[str, Field(pattern="^[a-z]+$")], int],
        {
            "type": "object",
            "additionalProperties": INT,
            "x-kubernetes-validations": [
                {"rule": 'self.all(key, key.matches("^[a-z]+$"))', "message": "the keys are like ^[a-z]+$"}
            ],
        },
        answer="patternProperties",
        objects=(Sent({"a": 1}), Sent({"A": 1}, REFUSED_VALUE)),
    ),
    Row(
        "an atomic map",
        "Annotated[dict[str, str], Field(json_schema_extra=ATOMIC_MAP)]",
        Annotated[dict[str, str], Field(json_schema_extra=ATOMIC_MAP)],
        {"type": "object", "additionalProperties": TEXT, "x-kubernetes-map-type": "atomic"},
    ),
    Row(
        "unknown fields forbidden",
        'Strict  # extra="forbid"',
        Strict,
        {"type": "object", "required": ["name"], "properties": {"name": TEXT}},
        answer="$defs",
        objects=(Sent({"name": "a", "more": 1}, {"name": "a"}),),
    ),
    Row(
        "unknown fields kept",
        'Open  # extra="allow"',
        Open,
        {"type": "object", "required": ["name"], "properties": {"name": TEXT}, **KEEP},
        answer="$defs",
        objects=(Sent({"name": "a", "more": {"b": 1}}),),
    ),
    Row(
        "bytes",
        "Base64Bytes",
        Base64Bytes,
        {**TEXT, "format": "byte"},
        objects=(Sent("YQ=="), Sent("?", REFUSED_VALUE)),
    ),
    Row("bytes of a text", "bytes", bytes, {**TEXT, "format": "binary"}),
    Row("a unique identifier", "UUID", UUID, {**TEXT, "format": "uuid"}),
    Row(
        "a moment",
        "Time",
        Time,
        {**TEXT, "format": "date-time"},
        objects=(Sent("2026-01-01T00:00:00Z"), Sent("yesterday", REFUSED_VALUE)),
    ),
    Row(
        "a moment in microseconds",
        "MicroTime",
        MicroTime,
        {**TEXT, "format": "date-time"},
        objects=(Sent("2026-01-01T00:00:00.123456Z"),),
    ),
    Row(
        "a day",
        "date",
        date,
        {**TEXT, "format": "date"},
        objects=(Sent("2026-01-01"), Sent("x", REFUSED_VALUE)),
    ),
    Row("a length of time", "Duration", Duration, TEXT, objects=(Sent("1h30m"),)),
    Row(
        "examples, a mark that it is old",
        'Annotated[str, Field(deprecated=True, examples=["x"])]',
        Annotated[str, Field(deprecated=True, examples=["x"])],
        TEXT,
        answer="deprecated",
    ),
    Row(
        "a pattern",
        'Annotated[str, Field(pattern="^[a-z]+$")] = "a"',
        Annotated[str, Field(pattern="^[a-z]+$")],
        {**TEXT, "default": "a", "pattern": "^[a-z]+$"},
        "a",
        objects=(Sent("abc"), Sent("ABC", REFUSED_VALUE)),
    ),
    Row(
        "a model within itself",
        "Tree",
        Tree,
        {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": TEXT,
                "children": {"type": "array", "items": {"type": "object", **KEEP}},
            },
        },
        answer="$defs",
        objects=(Sent({"name": "a", "children": [{"name": "b", "children": [{"c": 1}]}]}),),
    ),
    Row(
        "a keyed list",
        'Annotated[list[Item], Field(json_schema_extra=list_map("name", "size"))]',
        Annotated[list[Item], Field(json_schema_extra=list_map("name", "size"))],
        {
            "type": "array",
            "items": ITEM,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "size"],
        },
        answer="$defs",
        objects=(
            Sent([{"name": "a", "size": 1}, {"name": "a", "size": 2}]),
            Sent([{"name": "a"}, {"name": "a"}], REFUSED_VALUE),
        ),
    ),
    Row(
        "a keyed list whose key may be left out",
        'Annotated[list[Named], Field(json_schema_extra=list_map("name"))]',
        Annotated[list[Named], Field(json_schema_extra=list_map("name"))],
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {**TEXT, "default": ""}, "size": {**INT, "default": 1}},
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        answer="$defs",
        objects=(Sent([{}], [{"name": "", "size": 1}]), Sent([{}, {}], REFUSED_VALUE)),
    ),
    Row(
        "an atomic list",
        "Annotated[list[str], Field(json_schema_extra=ATOMIC)]",
        Annotated[list[str], Field(json_schema_extra=ATOMIC)],
        {"type": "array", "items": TEXT, "x-kubernetes-list-type": "atomic"},
    ),
    Row(
        "conditions",
        'Annotated[list[OneCondition], Field(max_length=8, json_schema_extra=list_map("type"))]',
        Annotated[list[OneCondition], Field(max_length=8, json_schema_extra=list_map("type"))],
        {
            "type": "array",
            "maxItems": 8,
            "items": {
                "type": "object",
                "required": ["type", "status"],
                "properties": {
                    "type": {
                        "description": "What this is about, in CamelCase.",
                        **TEXT,
                        "maxLength": 316,
                    },
                    "status": {
                        "description": "True, False or Unknown.",
                        **TEXT,
                        "enum": ["True", "False", "Unknown"],
                    },
                    "reason": {
                        "description": "Why, as one CamelCase word for programs.",
                        **TEXT,
                        "maxLength": 1024,
                    },
                    "message": {
                        "description": "Why, as a sentence for people.",
                        **TEXT,
                        "maxLength": 32768,
                    },
                    "observedGeneration": {
                        "description": "The metadata.generation that this was said about.",
                        **INT,
                        "format": "int64",
                    },
                    "lastTransitionTime": {
                        "description": "When status changed last.",
                        **TEXT,
                        "format": "date-time",
                    },
                },
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        objects=(Sent([{"type": "Ready", "status": "True"}]), Sent([{"type": "Ready"}], REFUSED_VALUE)),
    ),
    Row(
        "models told apart by a field",
        'Annotated[Cat | Dog, Field(discriminator="kind")]',
        Annotated[Cat | Dog, Field(discriminator="kind")],
        {
            "type": "object",
            "required": ["kind"],
            "properties": {
                "kind": {**TEXT, "enum": ["cat", "lion", "dog"]},
                "lives": INT,
                "namespace": {"description": "Where it lives.", **TEXT},
            },
            "x-kubernetes-validations": [
                {
                    "rule": '!(self.kind in ["cat", "lion"]) || has(self.lives)',
                    "message": "lives is required where kind is cat or lion",
                },
                {
                    "rule": '!(self.kind in ["dog"]) || has(self.__namespace__)',
                    "message": "namespace is required where kind is dog",
                },
            ],
        },
        answer="discriminator",
        objects=(
            Sent({"kind": "lion", "lives": 9}),
            Sent({"kind": "dog", "namespace": "a"}),
            Sent({"kind": "cat", "namespace": "a"}, REFUSED_VALUE),
            Sent({"kind": "dog"}, REFUSED_VALUE),
            Sent({"kind": "cow"}, REFUSED_VALUE),
        ),
    ),
    Row(
        "models that share a field",
        'Annotated[Dog | Cow, Field(discriminator="kind")] | None = None',
        Annotated[Dog | Cow, Field(discriminator="kind")] | None,
        {
            "type": "object",
            "required": ["kind"],
            "properties": {
                "kind": {**TEXT, "enum": ["dog", "cow"]},
                "namespace": {"description": "Where it lives.", **TEXT},
            },
            "x-kubernetes-validations": [
                {
                    "rule": '!(self.kind in ["dog"]) || has(self.__namespace__)',
                    "message": "namespace is required where kind is dog",
                }
            ],
        },
        None,
        answer="discriminator",
    ),
    Row(
        "a rule of a model",
        "Checked",
        Checked,
        {
            "type": "object",
            "properties": {"least": {**INT, "default": 0}, "most": {**INT, "default": 9}},
            "x-kubernetes-validations": [
                {
                    "rule": "self.least <= self.most",
                    "message": "least is more than most",
                    "fieldPath": ".least",
                }
            ],
        },
        answer="$defs",
        objects=(Sent({}, {"least": 0, "most": 9}), Sent({"least": 10}, REFUSED_VALUE)),
    ),
    Row(
        "a rule of a field",
        'Annotated[int, Field(json_schema_extra=ruled(Rule("self % 2 == 0", "it is odd")))]',
        Annotated[int, Field(json_schema_extra=ruled(Rule("self % 2 == 0", "it is odd")))],
        {**INT, "x-kubernetes-validations": [{"rule": "self % 2 == 0", "message": "it is odd"}]},
        objects=(Sent(2), Sent(3, REFUSED_VALUE)),
    ),
    Row(
        "a cheap rule under an unbounded list",
        "list[Checked]",
        list[Checked],
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"least": {**INT, "default": 0}, "most": {**INT, "default": 9}},
                "x-kubernetes-validations": [
                    {
                        "rule": "self.least <= self.most",
                        "message": "least is more than most",
                        "fieldPath": ".least",
                    }
                ],
            },
        },
        answer="$defs",
        objects=(Sent([{"least": 10}], REFUSED_VALUE),),
    ),
    Row(
        "a dear rule, bounded",
        "DistinctBounded",
        DistinctBounded,
        {
            "type": "object",
            "properties": {"names": {"type": "array", "maxItems": 64, "items": {**TEXT, "maxLength": 63}}},
            "x-kubernetes-validations": [
                {
                    "rule": "self.names.all(a, self.names.exists_one(b, a == b))",
                    "message": "names are distinct",
                }
            ],
        },
        answer="$defs",
        objects=(Sent({"names": ["a", "b"]}), Sent({"names": ["a", "a"]}, REFUSED_VALUE)),
    ),
    Row(
        "a rule about changes in a keyed list",
        'Annotated[list[Fixed], Field(max_length=8, json_schema_extra=list_map("name"))]',
        Annotated[list[Fixed], Field(max_length=8, json_schema_extra=list_map("name"))],
        {
            "type": "array",
            "maxItems": 8,
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {**TEXT, "maxLength": 63}},
                "x-kubernetes-validations": [
                    {"rule": "self.name == oldSelf.name", "message": "the name is fixed"}
                ],
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        answer="$defs",
    ),
    Row(
        "a published type",
        'Annotated[Manifest, Embedded("Pod")]',
        Annotated[dict[str, Any], Embedded("Pod")],
        POD,
        answer="type",
        objects=(Sent({"a": 1, "b": 2}, {"a": 1}),),
    ),
)


REFUSED: tuple[Bad, ...] = (
    Bad(
        "a tuple",
        "tuple[int, str]",
        tuple[int, str],
        r"spec\.it: a tuple has no CRD equivalent: write list\[T\]",
        answer="prefixItems",
    ),
    Bad("a named tuple", "Place", Place, r"spec\.it: a tuple has no CRD equivalent", answer="prefixItems"),
    Bad(
        "a timedelta",
        "timedelta",
        timedelta,
        r"spec\.it: timedelta is written PT5S.*write kube\.crd\.Duration",
        why="servers take it, and read 5s where Pydantic writes PT5S",
    ),
    Bad(
        "a plain datetime",
        "datetime",
        datetime,
        r"spec\.it: a datetime may lack its zone.*write kube\.crd\.Time",
        why="servers take the schema, and refuse the objects whose moment has no zone",
    ),
    Bad(
        "a union of scalars",
        "bool | str",
        bool | str,
        r"spec\.it: a union has no CRD equivalent: write one model",
        answer="type",
    ),
    Bad(
        "a number or a text",
        "float | str",
        float | str,
        r"spec\.it: a union .* kube\.crd\.Quantity",
        answer="type",
    ),
    Bad("a decimal", "Decimal", Decimal, r"spec\.it: a union .* kube\.crd\.Quantity", answer="type"),
    Bad("a union of models", "Cat | Dog", Cat | Dog, r"spec\.it: a union .* a discriminator", answer="type"),
    Bad(
        "a model or a text",
        "Item | str",
        Item | str,
        r"spec\.it: a union has no CRD equivalent",
        answer="type",
    ),
    Bad(
        "variants that disagree",
        'Annotated[Cat | Fish, Field(discriminator="kind")]',
        Annotated[Cat | Fish, Field(discriminator="kind")],
        r"spec\.it\.lives: two variants of a union disagree",
        answer="discriminator",
    ),
    Bad(
        "variants with rules",
        'Annotated[RuledVariant | Dog, Field(discriminator="kind")]',
        Annotated[RuledVariant | Dog, Field(discriminator="kind")],
        r"spec\.it: a variant of a union has RULES of its own: write them at the union's field",
        answer="discriminator",
    ),
    Bad(
        "words and numbers",
        'Literal["x", 1]',
        Literal["x", 1],
        r"spec\.it: the words \['x', 1\] are not of one type: write them all as text",
        answer="type",
    ),
    Bad(
        "some numbers or a text",
        "Literal[1, 2] | str",
        Literal[1, 2] | str,
        r"spec\.it: a few numbers or a text: write the numbers as text",
        answer="type",
    ),
    Bad(
        "look-ahead",
        'Annotated[str, Field(json_schema_extra={"pattern": "(?!a)b"})]',
        Annotated[str, Field(json_schema_extra={"pattern": "(?!a)b"})],
        r"spec\.it: .*invalid perl operator: \(\?!: write a Rule",
        answer="must be a valid regular expression",
    ),
    Bad(
        "a back-reference",
        'Annotated[str, Field(json_schema_extra={"pattern": r"(a)\\1"})]',
        Annotated[str, Field(json_schema_extra={"pattern": r"(a)\1"})],
        r"spec\.it: .*invalid escape sequence: \\1: write a Rule",
        answer="must be a valid regular expression",
    ),
    Bad(
        "a default below the minimum",
        "Annotated[int, Field(ge=1)] = 0",
        Annotated[int, Field(ge=1)],
        r"spec\.it: the default 0 breaks .*minimum: 1",
        0,
        answer="default",
    ),
    Bad(
        "a default on the bound",
        "Annotated[int, Field(gt=1)] = 1",
        Annotated[int, Field(gt=1)],
        r"spec\.it: the default 1 breaks .*exclusiveMinimum",
        1,
        answer="default",
    ),
    Bad(
        "a default of another type",
        'int = "x"',
        int,
        r"spec\.it: the default 'x' breaks .*not of type integer",
        "x",
        answer="default",
    ),
    Bad(
        "true for a number",
        "int = True",
        int,
        r"spec\.it: the default True breaks .*not of type integer",
        True,
        answer="default",
    ),
    Bad(
        "a default with a bad item",
        'list[Literal["a", "b"]] = ["c"]',
        list[Literal["a", "b"]],
        r"spec\.it: the default \['c'\] breaks .*enum",
        ["c"],
        answer="default",
    ),
    Bad(
        "a list-map key that no item has",
        'Annotated[list[Checked], Field(json_schema_extra=list_map("name"))]',
        Annotated[list[Checked], Field(json_schema_extra=list_map("name"))],
        r"spec\.it: list_map\('name'\): the items have no field name",
        answer="x-kubernetes-list-map-keys",
    ),
    Bad(
        "a list-map key that may be absent",
        'Annotated[list[Loose], Field(json_schema_extra=list_map("name"))]',
        Annotated[list[Loose], Field(json_schema_extra=list_map("name"))],
        r"spec\.it: list_map\('name'\): make name required, or give it a default",
        answer="must have a default or be a required property",
    ),
    Bad(
        "a list-map key that is no scalar",
        'Annotated[list[Distinct], Field(json_schema_extra=list_map("names"))]',
        Annotated[list[Distinct], Field(json_schema_extra=list_map("names"))],
        r"spec\.it: list_map\('names'\): names is no scalar",
        answer="must be a scalar type",
    ),
    Bad(
        "a list-map of texts",
        'Annotated[list[str], Field(json_schema_extra=list_map("name"))]',
        Annotated[list[str], Field(json_schema_extra=list_map("name"))],
        r"spec\.it: list_map: write a list of models",
        answer="must be object if parent array",
    ),
    Bad(
        "a list-map key named twice",
        'Annotated[list[Item], Field(json_schema_extra=list_map("name", "name"))]',
        Annotated[list[Item], Field(json_schema_extra=list_map("name", "name"))],
        r"spec\.it: list_map: a key is named twice",
        answer="must not contain duplicate entries",
    ),
    Bad(
        "a set of models",
        "set[Item]",
        set[Item],
        r"spec\.it: a set of objects has no CRD equivalent: write list\[T\] with list_map",
        answer="must be atomic as item of a list with x-kubernetes-list-type=set",
    ),
    Bad(
        "extra fields of one type",
        "OpenNumbers  # __pydantic_extra__: dict[str, int]",
        OpenNumbers,
        r"spec\.it: extra fields of one type .* write a dict field",
        answer="additionalProperties and properties are mutual exclusive",
    ),
    Bad(
        "keys of several patterns",
        'Annotated[dict[str, int], Field(json_schema_extra={"patternProperties": {"^a": …, "^b": …}})]',
        Annotated[dict[str, int], Field(json_schema_extra={"patternProperties": {"^a": INT, "^b": INT}})],
        r"spec\.it: keys of several patterns: write one pattern",
        answer="patternProperties",
    ),
    Bad(
        "a word of later JSON Schema",
        'Annotated[list[str], Field(json_schema_extra={"contains": …})]',
        Annotated[list[str], Field(json_schema_extra={"contains": {"type": "string"}})],
        r"spec\.it: a CRD does not know contains: .* say it as a Rule",
        answer="contains",
    ),
    Bad("always null", "None", type(None), r"spec\.it: a field that is always null", answer="null"),
    Bad(
        "a rule about changes in a list without keys",
        "list[Fixed]",
        list[Fixed],
        r"spec\.it\[\]: a Rule reads oldSelf, but the items of spec\.it have no key: add list_map",
        answer="oldSelf cannot be used on the uncorrelatable portion",
    ),
)


def kind_with(annotation: Any, default: Any = ...) -> Kind[Any]:
    """Return a kind whose spec has one field `it`."""
    spec = create_model("Spec", __base__=Part, it=(annotation, default))
    model = create_model("Thing", __base__=CustomResource, spec=(spec, ...))
    return Kind("example.org", "v1", "Thing", "things", model)


def spec_of(annotation: Any, default: Any = ...) -> Manifest:
    """Return Pydantic's schema of a spec with the field `it`."""
    model: type[Part] = create_model("Spec", __base__=Part, it=(annotation, default))
    return model.model_json_schema(by_alias=True)


def unchecked(annotation: Any, default: Any = ...) -> Manifest:
    """Return the spec as generated if no construct were refused."""
    spec = spec_of(annotation, default)
    whole = inlined(spec, spec.get("$defs", {}), ())
    return rewritten(whole, "spec", EMBEDDED, [lenient(one) for one in REWRITERS])


def lenient(rewriter: Rewriter) -> Rewriter:
    """Return a rewriter that does not refuse constructs."""

    def rewrite(node: Manifest, path: str) -> Manifest:
        try:
            return rewriter(node, path)
        except UnsupportedSchema:
            return node

    return rewrite


def pydantics_own(annotation: Any, default: Any = ...) -> Manifest:
    """Return Pydantic's schema of a spec with the field `it`, without the marks of kube.crd."""
    found: Manifest = unmarked(spec_of(annotation, default))
    return {key: value for key, value in found.items() if key != "title"}


def unmarked(node: Any) -> Any:
    """Return a schema without the words that only the generator reads."""
    if isinstance(node, list):
        return [unmarked(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: unmarked(item) for key, item in node.items() if key not in MARKS}


MARKS = ("x-moment", "x-implied", "x-embedded")
EMBEDDED: Mapping[str, Manifest] = {"Pod": POD}
