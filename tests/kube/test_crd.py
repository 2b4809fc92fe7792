"""Pydantic models → CustomResourceDefinitions: what each construct becomes, and what is refused with which
advice.

Every schema in WRITTEN was accepted by a kube-apiserver 1.35.4 (`kubectl apply --dry-run=server
--validate=strict`), and so were the three files of config/crd. Beside each row stands what the server says to
Pydantic's own schema.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import Field, create_model

from elasticjob.kube.crd import (
    ATOMIC,
    IMPLIED,
    NULLABLE,
    Column,
    CustomResource,
    Declaration,
    Duration,
    Embedded,
    OneCondition,
    Part,
    Quantity,
    Rule,
    Scale,
    Time,
    crd_manifest,
    list_map,
)
from elasticjob.kube.kinds import Kind, Manifest
from elasticjob.kube.schemas import UnsupportedSchema


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Item(Part):
    name: str
    """Its name."""

    size: int = 1


class Tree(Part):
    name: str
    children: list[Tree] = Field(default_factory=list)


class Cat(Part):
    kind: Literal["cat"]
    lives: int


class Dog(Part):
    kind: Literal["dog"]
    bark: str = ""


class Fish(Part):
    kind: Literal["fish"]
    lives: str


KEEP = {"x-kubernetes-preserve-unknown-fields": True}
ITEM = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"description": "Its name.", "type": "string"},
        "size": {"type": "integer", "default": 1},
    },
}

WRITTEN: list[tuple[str, Any, Any, Manifest]] = [
    ("a model: $ref is refused", Item, ..., ITEM),
    ("optional: anyOf with null is refused", int | None, None, {"type": "integer"}),
    (
        "null allowed",
        Annotated[str, Field(json_schema_extra=NULLABLE)] | None,
        None,
        {"type": "string", "nullable": True},
    ),
    ("optional model", Item | None, None, ITEM),
    ("one literal: const is an unknown field", Literal["x"], ..., {"type": "string", "enum": ["x"]}),
    ("literals", Literal["x", "y"], "x", {"type": "string", "default": "x", "enum": ["x", "y"]}),
    ("enum", Colour, Colour.RED, {"type": "string", "default": "red", "enum": ["red", "blue"]}),
    (
        "exclusive bounds: a number where a bool belongs",
        Annotated[int, Field(gt=0, lt=9)],
        1,
        {
            "type": "integer",
            "default": 1,
            "minimum": 0,
            "maximum": 9,
            "exclusiveMinimum": True,
            "exclusiveMaximum": True,
        },
    ),
    (
        "a set: uniqueItems is quadratic",
        set[str],
        ...,
        {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    ),
    ("anything: a type is required", Any, ..., KEEP),
    ("a plain object", Manifest, ..., {"type": "object", **KEEP}),
    ("a list of anything", list[Any], ..., {"type": "array", "items": KEEP}),
    ("a quantity: anyOf needs a type", int | str, 1, {"default": 1, "x-kubernetes-int-or-string": True}),
    ("our quantity", Quantity, ..., {"x-kubernetes-int-or-string": True}),
    ("a map", dict[str, int], ..., {"type": "object", "additionalProperties": {"type": "integer"}}),
    (
        "a map of short keys: propertyNames is an unknown field",
        dict[Annotated[str, Field(max_length=9)], int],
        ...,
        {"type": "object", "additionalProperties": {"type": "integer"}},
    ),
    ("bytes", bytes, ..., {"type": "string", "format": "binary"}),
    ("a moment", Time, ..., {"type": "string", "format": "date-time"}),
    ("a duration", Duration, ..., {"type": "string"}),
    (
        "deprecated, examples: unknown fields",
        Annotated[str, Field(deprecated=True, examples=["x"])],
        ...,
        {"type": "string"},
    ),
    ("implied default", Annotated[str, Field(json_schema_extra=IMPLIED)], "x", {"type": "string"}),
    ("empty defaults", str, "", {"type": "string"}),
    (
        "a model within itself: no recursion in a schema",
        Tree,
        ...,
        {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"type": "object", **KEEP}},
            },
        },
    ),
    (
        "a keyed list",
        Annotated[list[Item], Field(json_schema_extra=list_map("name", "size"))],
        ...,
        {
            "type": "array",
            "items": ITEM,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "size"],
        },
    ),
    (
        "an atomic list",
        Annotated[list[str], Field(json_schema_extra=ATOMIC)],
        ...,
        {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
    ),
    (
        "models told apart by a field: oneOf with $ref, discriminator are refused",
        Annotated[Cat | Dog, Field(discriminator="kind")],
        ...,
        {
            "type": "object",
            "required": ["kind"],
            "properties": {
                "kind": {"type": "string", "enum": ["cat", "dog"]},
                "lives": {"type": "integer"},
                "bark": {"type": "string"},
            },
            "x-kubernetes-validations": [
                {
                    "rule": "self.kind != 'cat' || has(self.lives)",
                    "message": "lives is required where kind is cat",
                }
            ],
        },
    ),
    (
        "an embedded type",
        Annotated[Manifest, Embedded("Pod")],
        ...,
        {"type": "object", "properties": {"a": KEEP}},
    ),
]


def kind_with(annotation: Any, default: Any = ...) -> Kind[Any]:
    """Return a kind whose spec has one field `it`."""
    spec = create_model("Spec", __base__=Part, it=(annotation, default))
    model = create_model("Thing", __base__=CustomResource, spec=(spec, ...))
    return Kind("example.org", "v1", "Thing", "things", model)


def written(annotation: Any, default: Any = ...) -> Manifest:
    """Return what becomes of a field in the CRD."""
    manifest = crd_manifest(
        Declaration(kind_with(annotation, default)), {"Pod": {"type": "object", "properties": {"a": KEEP}}}
    )
    spec: Manifest = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    field: Manifest = spec["properties"]["it"]
    return {key: value for key, value in field.items() if key != "description"}


@pytest.mark.parametrize(
    ("annotation", "default", "schema"), [row[1:] for row in WRITTEN], ids=[row[0] for row in WRITTEN]
)
def test_constructs_are_written_as_servers_accept_them(
    annotation: Any, default: Any, schema: Manifest
) -> None:
    assert written(annotation, default) == schema


class Unbounded(Part):
    RULES: ClassVar[tuple[Rule, ...]] = (Rule("self.names.all(name, name != '')", "names are not empty"),)
    names: list[str] = Field(default_factory=list)


class Loose(Part):
    name: str | None = None


class Checked(Part):
    RULES: ClassVar[tuple[Rule, ...]] = (Rule("self.least <= self.most", "least is more than most"),)
    least: int = 0
    most: int = 9


def ruled(rule: str) -> Manifest:
    return {"x-kubernetes-validations": [{"rule": rule, "message": "no"}]}


REFUSED: list[tuple[str, Any, Any, str]] = [
    ("a tuple", tuple[int, str], ..., r"spec\.it: a tuple has no CRD equivalent: write list\[T\]"),
    ("a timedelta", timedelta, ..., r"spec\.it: timedelta is written PT5S.*write kube\.crd\.Duration"),
    ("a union of types", bool | str, ..., r"spec\.it: a union has no CRD equivalent: write one model"),
    ("a decimal", Decimal, ..., r"spec\.it: a union has no CRD equivalent"),
    ("a union of models", Cat | Dog, ..., r"spec\.it: a union .* a discriminator"),
    (
        "variants that disagree",
        Annotated[Cat | Fish, Field(discriminator="kind")],
        ...,
        r"spec\.it\.lives: two variants of a union disagree",
    ),
    (
        "look-ahead",
        Annotated[str, Field(json_schema_extra={"pattern": "(?!a)b"})],
        ...,
        r"spec\.it: .*RE2.*: write a Rule",
    ),
    (
        "back-reference",
        Annotated[str, Field(json_schema_extra={"pattern": r"(a)\1"})],
        ...,
        r"spec\.it: .*RE2",
    ),
    ("default below minimum", Annotated[int, Field(ge=1)], 0, r"spec\.it: the default 0 breaks .*minimum: 1"),
    (
        "default on the bound",
        Annotated[int, Field(gt=1)],
        1,
        r"spec\.it: the default 1 breaks .*exclusiveMinimum",
    ),
    ("default of another type", int, "x", r"spec\.it: the default 'x' breaks .*not of type integer"),
    ("true for a number", int, True, r"spec\.it: the default True breaks .*not of type integer"),
    (
        "key that may be absent",
        Annotated[list[Checked], Field(json_schema_extra=list_map("name"))],
        ...,
        r"spec\.it: list_map\('name'\): the items have no field name",
    ),
    (
        "key without default",
        Annotated[list[Loose], Field(json_schema_extra=list_map("name"))],
        ...,
        r"spec\.it: list_map\('name'\): make name required, or give it a default",
    ),
    (
        "a word of later JSON Schema",
        Annotated[list[str], Field(json_schema_extra={"contains": {"type": "string"}})],
        ...,
        r"spec\.it: a CRD does not know contains: .* say it as a Rule",
    ),
    (
        "patterned keys",
        dict[Annotated[str, Field(pattern="^[a-z]+$")], int],
        ...,
        r"spec\.it: a CRD does not know patternProperties: .* say it as a Rule",
    ),
    (
        "a rule under a list",
        list[Checked],
        ...,
        r"spec\.it\[\]: a Rule here .* spec\.it has no maxItems: write Field\(max_length",
    ),
    (
        "a rule under a map",
        dict[str, Checked],
        ...,
        r"spec\.it\[\*\]: a Rule here .* spec\.it has no maxProperties",
    ),
    ("a rule over a list", Unbounded, ..., r"spec\.it: a Rule here .* spec\.it\.names has no maxItems"),
    (
        "a rule on a text",
        Annotated[str, Field(json_schema_extra=ruled("self.matches('^a')"))],
        ...,
        r"spec\.it: a Rule here costs too much: spec\.it has no maxLength",
    ),
]


@pytest.mark.filterwarnings(
    "ignore::UserWarning"
)  # Pydantic on defaults that do not fit their type: our subject
@pytest.mark.parametrize(
    ("annotation", "default", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_has_no_equivalent_is_refused_with_what_to_write(
    annotation: Any, default: Any, message: str
) -> None:
    with pytest.raises(UnsupportedSchema, match=message):
        written(annotation, default)


def test_rules_with_bounds_are_written() -> None:
    assert written(Annotated[list[Checked], Field(max_length=8)])["items"]["x-kubernetes-validations"] == [
        {"rule": "self.least <= self.most", "message": "least is more than most"}
    ]


class Things(CustomResource):
    """Some things."""

    spec: Item
    status: Item = Item(name="")


THINGS = Kind("example.org", "v1", "Things", "things", Things, namespaced=False)


def test_a_declaration_says_the_rest() -> None:
    manifest = crd_manifest(
        Declaration(
            THINGS,
            short_names=("th",),
            categories=("all",),
            columns=(Column("Size", ".spec.size", "integer", "How large.", wide=True),),
            scale=Scale(".spec.size", ".status.size", ".status.selector"),
            selectable=(".spec.name",),
            annotations={"a": "b"},
        )
    )
    assert manifest["metadata"] == {"name": "things.example.org", "annotations": {"a": "b"}}
    assert manifest["spec"]["scope"] == "Cluster"
    assert manifest["spec"]["names"] == {
        "kind": "Things",
        "listKind": "ThingsList",
        "plural": "things",
        "singular": "things",
        "shortNames": ["th"],
        "categories": ["all"],
    }
    [version] = manifest["spec"]["versions"]
    assert version["additionalPrinterColumns"] == [
        {
            "name": "Size",
            "type": "integer",
            "jsonPath": ".spec.size",
            "description": "How large.",
            "priority": 1,
        }
    ]
    assert version["selectableFields"] == [{"jsonPath": ".spec.name"}]
    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.size",
            "statusReplicasPath": ".status.size",
            "labelSelectorPath": ".status.selector",
        },
    }
    assert version["schema"]["openAPIV3Schema"]["required"] == ["spec"]


def test_objects_are_read_and_written_in_their_json_form() -> None:
    model = create_model(
        "State",
        __base__=Part,
        end_time=(Time, ...),
        conditions=(list[OneCondition], ...),
        pause=(Duration, ...),
        none=(int | None, None),
    )
    state = {
        "endTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "pause": "1h30m",
    }
    assert model.model_validate(state).manifest() == state


@pytest.mark.parametrize(
    ("text", "length", "again"),
    [
        ("5s", timedelta(seconds=5), "5s"),
        ("90m", timedelta(minutes=90), "1h30m"),
        ("1.5s", timedelta(seconds=1.5), "1s500ms"),
    ],
)
def test_durations_are_gos(text: str, length: timedelta, again: str) -> None:
    model = create_model("Wait", __base__=Part, it=(Duration, ...))
    read = model.model_validate({"it": text})
    assert read == model.model_validate({"it": length})
    assert read.manifest() == {"it": again}


def test_metadata_is_kubes_own() -> None:
    thing = THINGS.convert(
        {"metadata": {"name": "a", "uid": "u", "creationTimestamp": None}, "spec": {"name": "x"}}
    )
    assert (thing.key.name, thing.metadata.uid, thing.metadata.creation_timestamp) == ("a", "u", None)
