"""The rewrite table: a field as it is written, its generated schema, and how servers respond to both.

Each row is one field `it` of a spec: `text` is what stands behind `it: ` in the model. `answer` is what a
server says to Pydantic's own schema of it, "" where it is taken as it is. The tests of tests/kube/crd hold
generator and servers to the rows.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Base64Bytes, ConfigDict, Field, create_model

from elasticjob.kube.crd import model
from elasticjob.kube.crd.model import CustomResource, Part, Rule
from elasticjob.kube.crd.rewriters import REWRITERS, Rewriter
from elasticjob.kube.crd.schemas import UnsupportedSchema
from elasticjob.kube.crd.structural import inline, rewritten
from elasticjob.kube.objects.kinds import Kind, Manifest


class Fate(enum.Enum):
    """The field is not there; the server refuses the object."""

    ABSENT = "absent"
    REFUSED = "refused"


ABSENT, REFUSED_VALUE = Fate.ABSENT, Fate.REFUSED


@dataclass(frozen=True)
class Sent:
    """A value that a user sends, and the stored value: the same by default."""

    value: Any
    stored: Any = ...


def no(value: Any) -> Sent:
    """A value that is refused."""
    return Sent(value, REFUSED_VALUE)


@dataclass(frozen=True)
class Row:
    """One construct that the generator writes."""

    name: str
    text: str
    schema: Manifest
    answer: str = ""
    objects: tuple[Sent, ...] = ()


@dataclass(frozen=True)
class Bad:
    """One refused construct, and the server's error for it, if it has one."""

    name: str
    text: str
    answer: str = ""


class Plain(Part):
    """A part without docstrings under its fields: to look for them costs a tenth of a second a model."""

    model_config = ConfigDict(use_attribute_docstrings=False)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Item(Part):
    name: str
    """Its name."""

    size: int = 1


class Tree(Plain):
    name: str
    children: list[Tree] = Field(default_factory=list)


class Cat(Plain):
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


class Fish(Plain):
    kind: Literal["fish"]
    lives: str


class Strict(Plain):
    model_config = ConfigDict(extra="forbid")
    name: str


class Open(Plain):
    model_config = ConfigDict(extra="allow")
    name: str


class OpenNumbers(Plain):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]
    name: str


class Loose(Plain):
    name: str | None = None
    names: list[str] = Field(default_factory=list)


class Named(Plain):
    name: str = ""
    size: int = 1


class Checked(Plain):
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("self.least <= self.most", "least is more than most", ".least"),
    )
    least: int = 0
    most: int = 9


class Fixed(Plain):
    RULES: ClassVar[tuple[Rule, ...]] = (Rule("self.name == oldSelf.name", "the name is fixed"),)
    name: Annotated[str, Field(max_length=63)]


class RuledVariant(Plain):
    RULES: ClassVar[tuple[Rule, ...]] = (Rule("self.lives < 10", "too many"),)
    kind: Literal["ruled"]
    lives: int


KEEP: Manifest = {"x-kubernetes-preserve-unknown-fields": True}
TEXT: Manifest = {"type": "string"}
INT: Manifest = {"type": "integer"}
POD: Manifest = {"type": "object", "properties": {"a": KEEP}}


def holding(required: str = "", **fields: Manifest) -> Manifest:
    """A schema with these fields; the required ones are named."""
    wanted: Manifest = {"required": required.split()} if required else {}
    return {"type": "object", **wanted, "properties": fields}


def listed(items: Manifest, kind: str = "", *keys: str) -> Manifest:
    """A list of these items, perhaps of a kind of Kubernetes' own."""
    kinds: Manifest = {"x-kubernetes-list-type": kind} if kind else {}
    return {"type": "array", "items": items, **kinds} | (
        {"x-kubernetes-list-map-keys": [*keys]} if keys else {}
    )


def mapped(values: Manifest, *rules: Manifest) -> Manifest:
    """A map of these values, with rules about its keys."""
    return {"type": "object", "additionalProperties": values, "x-kubernetes-validations": [*rules]}


def rule(text: str, message: str, **more: str) -> Manifest:
    return {"rule": text, "message": message, **more}


ITEM = holding("name", name={"description": "Its name.", **TEXT}, size={**INT, "default": 1})
CHECKED: Manifest = {
    **holding(least={**INT, "default": 0}, most={**INT, "default": 9}),
    "x-kubernetes-validations": [
        rule("self.least <= self.most", "least is more than most", fieldPath=".least")
    ],
}
FIXED: Manifest = {
    **holding("name", name={**TEXT, "maxLength": 63}),
    "x-kubernetes-validations": [rule("self.name == oldSelf.name", "the name is fixed")],
}
ANIMALS: Manifest = {
    **holding(
        "kind",
        kind={**TEXT, "enum": ["cat", "lion", "dog", "cow"]},
        lives=INT,
        namespace={"description": "Where it lives.", **TEXT},
    ),
    "x-kubernetes-validations": [
        rule(
            '!(self.kind in ["cat", "lion"]) || has(self.lives)',
            "lives is required where kind is cat or lion",
        ),
        rule('!(self.kind in ["dog"]) || has(self.__namespace__)', "namespace is required where kind is dog"),
    ],
}

WRITTEN: tuple[Row, ...] = (
    Row("a model", "Item", ITEM, "$defs", (Sent({"name": "a", "more": 1}, {"name": "a", "size": 1}), no({}))),
    Row("optional", "int | None = None", INT, "anyOf", (Sent(ABSENT), Sent(3), Sent(None, ABSENT))),
    Row("null allowed", "Annotated[str, Field(json_schema_extra=NULLABLE)] | None = None",
        {**TEXT, "nullable": True}, "anyOf", (Sent(None), Sent("x"))),
    Row("a default", "int = 3", {**INT, "default": 3}, "", (Sent(ABSENT, 3), Sent(4))),
    Row("an empty default", 'str = ""', TEXT, "", (Sent(ABSENT),)),
    Row("a default that readers see and the server does not store",
        'Annotated[str, Field(json_schema_extra=IMPLIED)] = "x"', TEXT, "", (Sent(ABSENT),)),
    Row("one literal", 'Literal["x"]', {**TEXT, "enum": ["x"]}, "const", (Sent("x"), no("y"))),
    Row("a literal or none", 'Literal["x", None] = None', {**TEXT, "enum": ["x"]}, "type"),
    Row("an enum", "Colour = Colour.RED", {**TEXT, "default": "red", "enum": ["red", "blue"]}, "$defs",
        (Sent("blue"), no("green"))),
    Row("bounds that are no values", "Annotated[int, Field(gt=0, lt=9)] = 1",
        {**INT, "default": 1, "minimum": 0, "maximum": 9, "exclusiveMinimum": True, "exclusiveMaximum": True},
        "of type bool", (Sent(8), no(0), no(9))),
    Row("a set", "set[str]", listed(TEXT, "set"), "uniqueItems", (Sent(["a", "b"]), no(["a", "a"]))),
    Row("anything", "Any", KEEP, "type", (Sent({"a": [1, None]}), Sent("x"), Sent(3))),
    Row("a plain object", "dict[str, Any]", {"type": "object", **KEEP}, "", (Sent({"a": {"b": 1}}), no([1]))),
    Row("a number or a text", "int | str = 1", {"default": 1, "x-kubernetes-int-or-string": True}, "type",
        (Sent("50%"), Sent(3), no(1.5), Sent(ABSENT, 1))),
    Row("a number with bounds or a word", 'Annotated[int, Field(ge=0)] | Literal["auto"]',
        {"minimum": 0, "pattern": "^(auto)$", "x-kubernetes-int-or-string": True}, "const",
        (Sent(3), Sent("auto"), no(-1), no("other"))),
    Row("a whole number or another", "int | float", {"type": "number"}, "type",
        (Sent(3), Sent(1.5), no("1"))),
    Row("a quantity", "Quantity", {"x-kubernetes-int-or-string": True}, "",
        (Sent("500m"), Sent("8Gi"), Sent(4))),
    Row("a map", "Annotated[dict[str, int], Field(json_schema_extra=ATOMIC_MAP)]",
        {"type": "object", "additionalProperties": INT, "x-kubernetes-map-type": "atomic"}, "",
        (Sent({"a": 1}), no({"a": "1"}))),
    Row("a map with words for keys", "dict[Colour, int]",
        mapped(INT, rule('self.all(key, key in ["red", "blue"])', "the keys are red, blue")), "propertyNames",
        (Sent({"red": 1}), no({"green": 1}))),
    Row("a map of short keys", "dict[Annotated[str, Field(min_length=2, max_length=3)], int]",
        mapped(INT, rule("self.all(key, size(key) >= 2)", "the keys have at least 2 characters"),
               rule("self.all(key, size(key) <= 3)", "the keys have at most 3 characters")), "propertyNames",
        (Sent({"abc": 1}), no({"a": 1}), no({"abcd": 1}))),
    Row("a map of patterned keys", 'dict[Annotated[str, Field(pattern="^[a-z]+$")], int]',
        mapped(INT, rule('self.all(key, key.matches("^[a-z]+$"))', "the keys are like ^[a-z]+$")),
        "patternProperties", (Sent({"a": 1}), no({"A": 1}))),
    Row("unknown fields forbidden", 'Strict  # extra="forbid"', holding("name", name=TEXT), "$defs",
        (Sent({"name": "a", "more": 1}, {"name": "a"}),)),
    Row("unknown fields kept", 'Open  # extra="allow"', holding("name", name=TEXT) | KEEP, "$defs",
        (Sent({"name": "a", "more": {"b": 1}}),)),
    Row("bytes", "Base64Bytes", {**TEXT, "format": "byte"}, "", (Sent("YQ=="), no("?"))),
    Row("a moment", "Time", {**TEXT, "format": "date-time"}, "",
        (Sent("2026-01-01T00:00:00Z"), no("yesterday"))),
    Row("a length of time", "Duration", TEXT, "", (Sent("1h30m"),)),
    Row("examples, a mark that it is old", 'Annotated[str, Field(deprecated=True, examples=["x"])]', TEXT,
        "deprecated"),
    Row("a pattern", 'Annotated[str, Field(pattern="^[a-z]+$")] = "a"',
        {**TEXT, "default": "a", "pattern": "^[a-z]+$"}, "", (Sent("abc"), no("ABC"))),
    Row("a model within itself", "Tree",
        holding("name", name=TEXT, children=listed({"type": "object", **KEEP})), "$defs",
        (Sent({"name": "a", "children": [{"name": "b", "children": [{"c": 1}]}]}),)),
    Row("a keyed list", 'Annotated[list[Item], Field(json_schema_extra=list_map("name", "size"))]',
        listed(ITEM, "map", "name", "size"), "$defs",
        (Sent([{"name": "a", "size": 1}, {"name": "a", "size": 2}]), no([{"name": "a"}, {"name": "a"}]))),
    Row("a keyed list whose key may be left out",
        'Annotated[list[Named], Field(json_schema_extra=list_map("name"))]',
        listed(holding(name={**TEXT, "default": ""}, size={**INT, "default": 1}), "map", "name"), "$defs",
        (Sent([{}], [{"name": "", "size": 1}]), no([{}, {}]))),
    Row("an atomic list", "Annotated[list[str], Field(json_schema_extra=ATOMIC)]", listed(TEXT, "atomic")),
    Row("models told apart by a field", 'Annotated[Cat | Dog | Cow, Field(discriminator="kind")]', ANIMALS,
        "discriminator",
        (Sent({"kind": "lion", "lives": 9}), Sent({"kind": "dog", "namespace": "a"}), Sent({"kind": "cow"}),
         no({"kind": "cat", "namespace": "a"}), no({"kind": "dog"}), no({"kind": "fish"}))),
    Row("a rule of a model", "list[Checked]", listed(CHECKED), "$defs",
        (Sent([{}], [{"least": 0, "most": 9}]), no([{"least": 10}]))),
    Row("a rule of a field",
        'Annotated[int, Field(json_schema_extra=ruled(Rule("self % 2 == 0", "it is odd")))]',
        {**INT, "x-kubernetes-validations": [rule("self % 2 == 0", "it is odd")]}, "", (Sent(2), no(3))),
    Row("a rule about changes in a keyed list",
        'Annotated[list[Fixed], Field(max_length=8, json_schema_extra=list_map("name"))]',
        listed(FIXED, "map", "name") | {"maxItems": 8}, "$defs"),
    Row("a published type", 'Annotated[Manifest, Embedded("Pod")]', POD, "type",
        (Sent({"a": 1, "b": 2}, {"a": 1}),)),
)  # fmt: skip

REFUSED: tuple[Bad, ...] = (
    Bad("a tuple", "tuple[int, str]", "prefixItems"),
    Bad("a timedelta", "timedelta"),
    Bad("a plain datetime", "datetime"),
    Bad("a union of scalars", "float | str", "type"),
    Bad("a union of models", "Cat | Dog", "type"),
    Bad("variants that disagree", 'Annotated[Cat | Fish, Field(discriminator="kind")]', "discriminator"),
    Bad("variants with rules", 'Annotated[RuledVariant | Dog, Field(discriminator="kind")]', "discriminator"),
    Bad("words and numbers", 'Literal["x", 1]', "type"),
    Bad("some numbers or a text", "Literal[1, 2] | str", "type"),
    Bad("look-ahead", 'Annotated[str, Field(json_schema_extra={"pattern": "(?!a)b"})]',
        "must be a valid regular expression"),
    Bad("a default below the minimum", "Annotated[int, Field(ge=1)] = 0", "default"),
    Bad("a default on the bound", "Annotated[int, Field(gt=1)] = 1", "default"),
    Bad("a default of another type", 'int = "x"', "default"),
    Bad("true for a number", "int = True", "default"),
    Bad("a default with a bad item", 'list[Literal["a", "b"]] = ["c"]', "default"),
    Bad("a list-map key that no item has",
        'Annotated[list[Checked], Field(json_schema_extra=list_map("name"))]', "x-kubernetes-list-map-keys"),
    Bad("a list-map key that may be absent",
        'Annotated[list[Loose], Field(json_schema_extra=list_map("name"))]',
        "must have a default or be a required property"),
    Bad("a list-map key that is no scalar",
        'Annotated[list[Loose], Field(json_schema_extra=list_map("names"))]', "must be a scalar type"),
    Bad("a list-map of texts", 'Annotated[list[str], Field(json_schema_extra=list_map("name"))]',
        "must be object if parent array"),
    Bad("a list-map key named twice",
        'Annotated[list[Item], Field(json_schema_extra=list_map("name", "name"))]',
        "must not contain duplicate entries"),
    Bad("a set of models", "set[Item]", "must be atomic as item of a list with x-kubernetes-list-type=set"),
    Bad("extra fields of one type", "OpenNumbers  # __pydantic_extra__: dict[str, int]",
        "additionalProperties and properties are mutual exclusive"),
    Bad("keys of several patterns",
        'Annotated[dict[str, int], Field(json_schema_extra={"patternProperties": {"^a": {}, "^b": {}}})]',
        "patternProperties"),
    Bad("a word of later JSON Schema",
        'Annotated[list[str], Field(json_schema_extra={"contains": {"type": "string"}})]', "contains"),
    Bad("always null", "None", "null"),
    Bad("a rule about changes in a list without keys", "list[Fixed]",
        "oldSelf cannot be used on the uncorrelatable portion"),
)  # fmt: skip
EMBEDDED: Mapping[str, Manifest] = {"Pod": POD}
MARKS = ("x-moment", "x-implied", "x-embedded")

NAMES: Mapping[str, Any] = (
    vars(model) | globals() | {"Base64Bytes": Base64Bytes, "datetime": datetime, "timedelta": timedelta}
)
"""What the rows' texts may name."""


@cache
def spec_with(text: str) -> type[Part]:
    """Return a model of a spec with the field `it`, written so."""
    found = dict(NAMES)
    exec(compile(f"class Spec(Plain):\n    it: {text}", "rows", "exec", dont_inherit=True), found)
    made: type[Part] = found["Spec"]
    return made


def kind_with(text: str) -> Kind[Any]:
    """Return a kind whose spec has one field `it`, written so."""
    thing = create_model("Thing", __base__=(Plain, CustomResource), spec=(spec_with(text), ...))
    return Kind("example.org", "v1", "Thing", "things", thing)


def unchecked(text: str) -> Manifest:
    """Return the spec as generated if no construct were refused."""
    spec = spec_with(text).model_json_schema()
    whole = inline(spec, spec.get("$defs", {}), ())
    return rewritten(whole, "spec", EMBEDDED, [lenient(one) for one in REWRITERS])


def lenient(rewriter: Rewriter) -> Rewriter:
    """Return a rewriter that does not refuse constructs."""

    def rewrite(node: Manifest, path: str) -> Manifest:
        try:
            return rewriter(node, path)
        except UnsupportedSchema:
            return node

    return rewrite


def pydantics_own(text: str) -> Manifest:
    """Return Pydantic's schema of a spec with the field `it`, without the marks of kube.crd."""
    found: Manifest = unmarked(spec_with(text).model_json_schema())
    return {key: value for key, value in found.items() if key != "title"}


def unmarked(node: Any) -> Any:
    """Return a schema without the words that only the generator reads."""
    if isinstance(node, list):
        return [unmarked(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: unmarked(item) for key, item in node.items() if key not in MARKS}
