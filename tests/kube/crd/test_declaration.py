"""What a declaration says beside the schema, and the field types of Kubernetes as Python reads them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import Field, WithJsonSchema, create_model

from elasticjob.kube.client.client import Client
from elasticjob.kube.crd import generate
from elasticjob.kube.crd.declaration import UnsoundDeclaration
from elasticjob.kube.crd.generate import crd_manifest
from elasticjob.kube.crd.model import (
    Column,
    CustomResource,
    Declaration,
    Duration,
    Metadata,
    MicroTime,
    OneCondition,
    Part,
    Quantity,
    Scale,
    Time,
    list_map,
    restricted,
)
from elasticjob.kube.errors import Invalid
from elasticjob.kube.objects.kinds import Kind, Manifest
from tests.kit.crd.posting import answer_to, crd_of, established


class Item(Part):
    name: str
    size: int = 1
    selector: str = ""


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
        renewed=(MicroTime, ...),
        none=(int | None, None),
    )
    state = {
        "endTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "pause": "1h30m",
        "renewed": "2026-01-01T00:00:00.000001Z",
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


class Spec(Part):
    size: int = 1
    names: list[str] = Field(default_factory=list)
    roles: dict[str, Item] = Field(default_factory=dict)
    limit: Quantity = "1"
    pod: dict[str, Any] = Field(default_factory=dict)


class Status(Part):
    size: int = 1
    selector: str = ""
    since: Time | None = None
    conditions: Annotated[list[OneCondition], Field(json_schema_extra=list_map("type"))] = Field(
        default_factory=list
    )


class Whole(CustomResource):
    spec: Spec
    status: Status = Status()


WHOLE = Kind("example.org", "v1", "Whole", "wholes", Whole)


def declared(**more: Any) -> Declaration:
    return Declaration(**{"kind": WHOLE, **more})


def scaled(spec: str = ".spec.size", status: str = ".status.size") -> Declaration:
    return declared(scale=Scale(spec, status, ".status.selector"))


def named(group: str, version: str) -> Declaration:
    return declared(kind=Kind(group, version, "Whole", "wholes", Whole))


SOUND: dict[str, Declaration] = {
    "nothing": declared(),
    "a column of each type": declared(
        columns=(
            Column("Size", ".spec.size", "integer", format="int32"),
            Column("Limit", ".spec.limit"),
            Column("Since", ".status.since", "date"),
            Column("Age", ".metadata.creationTimestamp", "date"),
            Column("Label", ".metadata.labels.app"),
            Column("Odd", r".metadata.labels.example\.org/app"),
            Column("Names", ".spec.names"),
            Column("First", ".spec.names[0]"),
            Column("All", ".status.conditions[*].type"),
            Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', wide=True),
            Column("Workers", ".spec.roles.worker.size", "integer"),
            Column("Image", ".spec.pod.containers[0].image"),
        )
    ),
    "a scale": scaled(),
    "a scale through a map": scaled(".spec.roles.worker.size"),
    "a scale by key": scaled(".spec.roles['worker'].size"),
    "selectable": declared(selectable=(".spec.size", ".status.selector")),
    "names": declared(short_names=("wh", "w2"), categories=("all", "my-things")),
    "deprecated": declared(deprecated="example.org/v1 Whole is deprecated; use v2"),
    "cluster-wide": declared(kind=Kind("example.org", "v1beta2", "Whole", "wholes", Whole, namespaced=False)),
}

UNSOUND: dict[str, tuple[Declaration, str]] = {
    "a column twice": (declared(columns=(Column("A", ".spec.size"), Column("A", ".spec.limit"))), ""),
    "a column without name": (declared(columns=(Column("", ".spec.size"),)), "name"),
    "a column that leads nowhere": (declared(columns=(Column("A", ".spec.sise"),)), ""),
    "a column of another type": (declared(columns=(Column("A", ".status.selector", "integer"),)), ""),
    "a column of no type": (declared(columns=(Column("A", ".spec.size", "int"),)), "must be one of"),
    "a column of no format": (
        declared(columns=(Column("A", ".spec.size", format="int8"),)),
        "must be one of",
    ),
    "a column without dot": (declared(columns=(Column("A", "spec.size"),)), "path"),
    "a column with a broken path": (declared(columns=(Column("A", ".spec.names[0"),)), ""),
    "a scale of a text": (scaled(".spec.names"), ""),
    "a scale of the status": (scaled(".status.size"), "specReplicasPath"),
    "a scale told by the spec": (scaled(status=".spec.size"), "statusReplicasPath"),
    "a scale of an item": (scaled(".spec.names[0]"), ""),
    "selectable metadata": (declared(selectable=(".metadata.name",)), "metadata"),
    "selectable list": (
        declared(selectable=(".spec.names",)),
        "must point to a field of type string, boolean or integer",
    ),
    "selectable nothing": (declared(selectable=(".spec.sise",)), "is an invalid path"),
    "selectable twice": (declared(selectable=(".spec.size", ".spec.size")), "Duplicate value"),
    "a short name in capitals": (declared(short_names=("Wh",)), "lower case"),
    "a category with a blank": (declared(categories=("my things",)), "lower case"),
    "the plural for a short name": (declared(short_names=("wholes",)), ""),
    "a long deprecation": (declared(deprecated="x" * 300), "deprecationWarning"),
    "a deprecation of two lines": (declared(deprecated="a\nb"), "deprecationWarning"),
    "a version of a date": (named("example.org", "2026-01"), "versions[0].name"),
    "no domain": (named("example", "v1"), "should be a domain with at least one dot"),
    "a group of Kubernetes": (named("example.k8s.io", "v1"), "api-approved.kubernetes.io"),
}


@pytest.mark.parametrize("declaration", SOUND.values(), ids=SOUND)
async def test_sound_declarations_are_taken(declaration: Declaration, client: Client) -> None:
    assert await answer_to(client, crd_manifest(declaration)) == ""


each_unsound = pytest.mark.parametrize(("declaration", "answer"), UNSOUND.values(), ids=UNSOUND)


@each_unsound
def test_unsound_declarations_are_refused(declaration: Declaration, answer: str) -> None:
    with pytest.raises(UnsoundDeclaration, match=r"^Whole: "):
        crd_manifest(declaration)


@pytest.mark.plane  # devcluster does not check definitions as closely
@each_unsound
async def test_servers_refuse_unsound_declarations_or_would_show_nothing(
    declaration: Declaration, answer: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "refuse_unsound", lambda declaration, schema: None)
    refusal = await answer_to(client, crd_manifest(declaration))
    assert bool(refusal) == bool(answer), refusal
    assert answer in refusal


def test_nine_selectable_fields_are_too_many() -> None:
    fields: dict[str, Any] = {f"f{index}": (int, 1) for index in range(9)}
    spec = create_model("Spec", __base__=Part, **fields)
    model = create_model("Many", __base__=CustomResource, spec=(spec, ...))
    many = Kind("example.org", "v1", "Many", "manies", model)
    with pytest.raises(UnsoundDeclaration, match="9 selectable fields: servers take 8"):
        crd_manifest(Declaration(many, selectable=tuple(f".spec.{name}" for name in fields)))


def with_metadata(annotation: Any) -> Kind[Any]:
    model = create_model("Thing", __base__=CustomResource, metadata=(annotation, ...), spec=(Item, ...))
    return Kind("example.org", "v1", "Thing", "things", model)


async def test_names_may_be_restricted(client: Client, namespace: str) -> None:
    kind = with_metadata(restricted({"maxLength": 5}))
    await established(client, crd_manifest(Declaration(kind)), kind.untyped())
    await client.create(kind.untyped(), {"metadata": {"name": "short"}, "spec": {"name": "a"}}, namespace)
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await client.create(
            kind.untyped(), {"metadata": {"name": "longer"}, "spec": {"name": "a"}}, namespace
        )


LABELS: Manifest = {
    "type": "object",
    "properties": {"labels": {"type": "object", "properties": {"a": {"type": "string"}}}},
}


def test_nothing_else_of_metadata_may_be_restricted() -> None:
    with pytest.raises(UnsoundDeclaration, match=r"metadata\.labels cannot be restricted"):
        crd_manifest(Declaration(with_metadata(Annotated[Metadata, WithJsonSchema(LABELS)])))


@pytest.mark.plane
async def test_servers_let_nothing_else_of_metadata_be_restricted(client: Client) -> None:
    whole = crd_of({"type": "object", "properties": {"metadata": LABELS}})
    assert "must not specify anything other than name and generateName" in await answer_to(client, whole)


async def test_a_deprecated_version_warns(client: Client) -> None:
    version = crd_manifest(declared(deprecated="use v2"))["spec"]["versions"][0]
    assert (version["deprecated"], version["deprecationWarning"]) == (True, "use v2")
