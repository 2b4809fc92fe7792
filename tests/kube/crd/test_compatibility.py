"""A changed definition: each difference is told, with what happens to stored objects, as servers show."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.crd.compatibility import Change, Effect, breaking, changes
from elasticjob.kube.errors import Invalid
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import CRD
from tests.kit.crd.posting import crd_of, established

TEXT: Manifest = {"type": "string"}
INT: Manifest = {"type": "integer"}
KEEP: Manifest = {"x-kubernetes-preserve-unknown-fields": True}
ITEM: Manifest = {"type": "object", "required": ["n"], "properties": {"n": TEXT}}
KEYED: Manifest = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"]}
GONE = "gone"


@dataclass(frozen=True)
class Row:
    """A field `it` of an object with another field `other`: before, after, and what is stored in between.

    `read` is what is read after the change; `near` whether a ratcheting server lets `other` be edited then;
    `bad` another value that the new schema refuses, `good` one that it takes.
    """

    name: str
    old: Manifest
    new: Manifest | None
    effect: Effect
    what: str
    value: Any = None
    read: Any = ...
    near: bool = True
    bad: Any = None
    good: Any = None
    required: tuple[str, ...] = ()
    rules: tuple[str, ...] = field(default=())


def changed(schema: Manifest, **more: Any) -> Manifest:
    return {**schema, **more}


ROWS: tuple[Row, ...] = (
    Row("a field is gone", TEXT, None, Effect.BREAKING, "the field is gone", "x", GONE),
    Row(
        "another type",
        TEXT,
        INT,
        Effect.BREAKING,
        "string became integer",
        "x",
        bad="y",
        good=1,
    ),
    Row(
        "a wider type",
        INT,
        {"x-kubernetes-int-or-string": True},
        Effect.SAFE,
        "which holds it",
        3,
        good="50%",
    ),
    Row("a wider number", INT, {"type": "number"}, Effect.SAFE, "which holds it", 3, good=1.5),
    Row(
        "a word less",
        changed(TEXT, enum=["a", "b"]),
        changed(TEXT, enum=["a"]),
        Effect.BREAKING,
        "b not allowed any more",
        "b",
        bad="c",
        good="a",
    ),
    Row(
        "a word more",
        changed(TEXT, enum=["a"]),
        changed(TEXT, enum=["a", "b"]),
        Effect.SAFE,
        "b allowed, too",
        "a",
        good="b",
    ),
    Row(
        "only some words",
        TEXT,
        changed(TEXT, enum=["a"]),
        Effect.BREAKING,
        "only a are allowed",
        "b",
        bad="c",
        good="a",
    ),
    Row(
        "a lower bound",
        changed(TEXT, maxLength=9),
        changed(TEXT, maxLength=3),
        Effect.BREAKING,
        "maxLength 9 became 3",
        "abcdef",
        bad="abcdefg",
        good="abc",
    ),
    Row(
        "a new bound",
        INT,
        changed(INT, minimum=5),
        Effect.BREAKING,
        "minimum none became 5",
        1,
        bad=2,
        good=5,
    ),
    Row(
        "an exclusive bound",
        changed(INT, minimum=1),
        changed(INT, minimum=1, exclusiveMinimum=True),
        Effect.BREAKING,
        "exclusiveMinimum is true now",
        1,
        bad=0,
        good=2,
    ),
    Row(
        "a looser bound",
        changed(INT, minimum=5),
        changed(INT, minimum=1),
        Effect.SAFE,
        "5 became 1",
        5,
        good=1,
    ),
    Row("a multiple", INT, changed(INT, multipleOf=2), Effect.BREAKING, "multipleOf none", 3, bad=5, good=4),
    Row(
        "a pattern",
        TEXT,
        changed(TEXT, pattern="^a"),
        Effect.BREAKING,
        "pattern none became ^a",
        "b",
        bad="c",
        good="a",
    ),
    Row(
        "a pattern less",
        changed(TEXT, pattern="^a"),
        TEXT,
        Effect.SAFE,
        "pattern ^a became none",
        "a",
        good="b",
    ),
    Row(
        "a format",
        TEXT,
        changed(TEXT, format="date-time"),
        Effect.BREAKING,
        "format none became date-time",
        "x",
        bad="y",
        good="2026-01-01T00:00:00Z",
    ),
    Row(
        "null no more",
        changed(TEXT, nullable=True),
        TEXT,
        Effect.BREAKING,
        "null is not allowed",
        None,
        GONE,
        good="x",
    ),
    Row(
        "fields are pruned",
        changed({"type": "object"}, **KEEP),
        {"type": "object", "properties": {"a": INT}},
        Effect.BREAKING,
        "unknown fields are pruned now",
        {"a": 1, "b": 2},
        {"a": 1},
        good={"a": 2},
    ),
    Row(
        "fields are kept",
        {"type": "object", "properties": {"a": INT}},
        {"type": "object", "properties": {"a": INT}, **KEEP},
        Effect.SAFE,
        "unknown fields are kept now",
        {"a": 1},
        good={"a": 1, "b": 2},
    ),
    Row(
        "a list becomes a set",
        {"type": "array", "items": TEXT},
        {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        Effect.BREAKING,
        "x-kubernetes-list-type atomic became set",
        ["a", "a"],
        good=["b", "b"],  # what was wrong as a whole may stay wrong
    ),
    Row(
        "a list becomes keyed",
        {"type": "array", "items": ITEM},
        {"type": "array", "items": ITEM, **KEYED},
        Effect.BREAKING,
        "x-kubernetes-list-map-keys none became ['n']",
        [{"n": "a"}, {"n": "a"}],
        good=[{"n": "b"}, {"n": "b"}],
    ),
    Row(
        "a rule",
        INT,
        changed(INT, **{"x-kubernetes-validations": [{"rule": "self > 5"}]}),
        Effect.BREAKING,
        "a new rule: self > 5",
        1,
        bad=2,
        good=6,
    ),
    Row(
        "a rule less",
        changed(INT, **{"x-kubernetes-validations": [{"rule": "self > 5"}]}),
        INT,
        Effect.SAFE,
        "a rule less: self > 5",
        6,
        good=1,
    ),
    Row(
        "a rule around it",
        INT,
        INT,
        Effect.BREAKING,
        "a new rule: self.it > 5",
        1,
        near=False,
        bad=2,
        good=6,
        rules=("self.it > 5",),
    ),
    Row(
        "required",
        TEXT,
        TEXT,
        Effect.BREAKING,
        "required now, without a default",
        GONE,
        GONE,
        near=False,
        good="x",
        required=("it",),
    ),
    Row(
        "a default",
        TEXT,
        changed(TEXT, default="x"),
        Effect.NOTED,
        "the default none became x",
        GONE,
        "x",
        good="y",
    ),
    Row(
        "another default",
        changed(INT, default=1),
        changed(INT, default=2),
        Effect.NOTED,
        "the default 1 became 2",
        GONE,
        1,
        good=3,
    ),
)


def holder(it: Manifest | None, required: tuple[str, ...] = (), rules: tuple[str, ...] = ()) -> Manifest:
    """An object with `it` and another field."""
    fields = {"other": INT} | ({} if it is None else {"it": it})
    more: Manifest = {"required": list(required)} if required else {}
    more |= {"x-kubernetes-validations": [{"rule": rule} for rule in rules]} if rules else {}
    return {"type": "object", "properties": fields, **more}


def definition(holders: Mapping[str, Manifest], *, marked: bool = False) -> Manifest:
    """Things with these objects in their spec; who reads one while a marked schema is in force sees it."""
    spec = {"type": "object", "properties": {"far": INT, **holders}}
    state = {"type": "object", "properties": {"seen": INT}}
    fields = {"spec": spec, "status": state} | ({"marked": {**INT, "default": 1}} if marked else {})
    return crd_of({"type": "object", "properties": fields}, subresources={"status": {}})


def before_and_after(rows: tuple[Row, ...]) -> tuple[Manifest, Manifest]:
    old = {f"f{index}": holder(row.old) for index, row in enumerate(rows)}
    new = {f"f{index}": holder(row.new, row.required, row.rules) for index, row in enumerate(rows)}
    return definition(old), definition(new, marked=True)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_difference_of_schemas_is_told(row: Row) -> None:
    old, new = before_and_after((row,))
    found = [change for change in changes(old, new) if change.path != "v1.marked"]
    assert any(change.effect is row.effect and row.what in change.what for change in found), found
    assert bool(breaking(found)) == (row.effect is Effect.BREAKING)
    assert all(change.stored and change.instead for change in breaking(found))
    assert all(change.path.startswith("v1.spec.f0") for change in found)


THING: Kind[Manifest] = Kind("example.org", "v1", "Thing", "things", dict)


async def test_stored_objects_live_through_changes_as_the_table_says(client: Client, namespace: str) -> None:
    old, new = before_and_after(ROWS)
    await established(client, old, THING)
    for index, row in enumerate(ROWS):
        spec = {f"f{index}": {"other": 1} | ({} if row.value == GONE else {"it": row.value})}
        await client.create(THING, {"metadata": {"name": f"f{index}"}, "spec": spec}, namespace)
    await established(client, new, THING)
    await in_force(client, namespace)
    listed = {found["metadata"]["name"] for found in await client.list(THING, namespace)}
    assert listed == {f"f{index}" for index in range(len(ROWS))}
    wrong = [
        (row.name, misfit)
        for index, row in enumerate(ROWS)
        async for misfit in misfits(client, namespace, index, row)
    ]
    assert wrong == []


async def in_force(client: Client, namespace: str) -> None:
    """Return when the marked schema is in force."""
    async with asyncio.timeout(60):
        while "marked" not in await client.get(THING, "f0", namespace):  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0)


async def misfits(client: Client, namespace: str, index: int, row: Row) -> Any:
    """Yield what is not as the row says, after reading and editing its object in every way."""
    name = f"f{index}"
    found = (await client.get(THING, name, namespace))["spec"][name].get("it", GONE)
    if found != (row.value if row.read is ... else row.read):
        yield f"it reads {found!r}"

    async def taken(subresource: str = "", **patch: Any) -> bool:
        try:
            await client.merge_patch(THING, name, patch, namespace, subresource=subresource)
        except Invalid:
            return False
        return True

    if not await taken("status", status={"seen": 1}):
        yield "its status cannot be written"
    if not await taken(metadata={"labels": {"a": "b"}}):
        yield "it cannot be labelled"
    if not await taken(spec={"far": 2}):
        yield "a field far from it cannot be edited"
    if await taken(spec={name: {"other": 2}}) != row.near:
        yield f"a field beside it can{'not' if row.near else ''} be edited"
    if row.bad is not None and await taken(spec={name: {"it": row.bad}}):
        yield "another bad value is taken"
    if row.good is not None and not await taken(spec={name: {"it": row.good}}):
        yield "a good value is refused"


# The definition around the schema

BASE = crd_of(
    {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": TEXT, "n": INT}}}},
    subresources={
        "status": {},
        "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"},
    },
    selectableFields=[{"jsonPath": ".spec.a"}],
)
BASE["spec"]["names"] |= {"shortNames": ["th"], "categories": ["all"]}


def other(*steps: tuple[tuple[Any, ...], Any]) -> Manifest:
    """BASE with values at paths replaced, or taken away where the value is GONE."""
    found = deepcopy(BASE)
    for path, value in steps:
        here: Any = found
        for step in path[:-1]:
            here = here[step]
        if value == GONE:
            del here[path[-1]]
        else:
            here[path[-1]] = value
    return found


V = ("spec", "versions", 0)


def second(**more: Any) -> Manifest:
    return {**deepcopy(BASE["spec"]["versions"][0]), "name": "v2", **more}


DEFINITIONS: list[tuple[str, Manifest, Effect | None, str]] = [
    ("the same", other(), None, ""),
    ("another scope", other((("spec", "scope"), "Cluster")), Effect.BREAKING, "Namespaced became Cluster"),
    ("another kind", other((("spec", "names", "kind"), "Stuff")), Effect.BREAKING, "Thing became Stuff"),
    (
        "another group",
        other((("spec", "group"), "example.com")),
        Effect.BREAKING,
        "example.org became example.com",
    ),
    ("no short name", other((("spec", "names", "shortNames"), [])), Effect.NOTED, "th is gone"),
    ("a category", other((("spec", "names", "categories"), ["all", "b"])), Effect.SAFE, "b is new"),
    ("no status", other(((*V, "subresources", "status"), GONE)), Effect.BREAKING, "it is gone"),
    ("no scale", other(((*V, "subresources", "scale"), GONE)), Effect.BREAKING, "it is gone"),
    (
        "another scale",
        other(((*V, "subresources", "scale", "specReplicasPath"), ".spec.m")),
        Effect.BREAKING,
        "became",
    ),
    ("a selectable field less", other(((*V, "selectableFields"), [])), Effect.BREAKING, ".spec.a is gone"),
    ("not served", other(((*V, "served"), False)), Effect.BREAKING, "it is not served any more"),
    ("deprecated", other(((*V, "deprecated"), True)), Effect.SAFE, "it is deprecated"),
    (
        "a second version",
        other((("spec", "versions"), [BASE["spec"]["versions"][0], second(storage=False)])),
        Effect.SAFE,
        "a new version",
    ),
    (
        "stored in a second version",
        other((("spec", "versions"), [{**BASE["spec"]["versions"][0], "storage": False}, second()])),
        Effect.NOTED,
        "objects are stored in this version from now on, not in v1",
    ),
    ("another version", other((("spec", "versions"), [second()])), Effect.BREAKING, "the version is gone"),
]


@pytest.mark.parametrize(
    ("new", "effect", "what"), [row[1:] for row in DEFINITIONS], ids=[row[0] for row in DEFINITIONS]
)
def test_a_difference_of_definitions_is_told(new: Manifest, effect: Effect | None, what: str) -> None:
    found = changes(BASE, new)
    assert (found == []) == (effect is None)
    assert not found or (found[0].effect, what in found[0].what) == (effect, True)


def test_who_adds_a_status_hears_what_becomes_of_writes() -> None:
    [change] = changes(other(((*V, "subresources", "status"), GONE)), BASE)
    assert change.effect is Effect.BREAKING
    assert "a status in a write of the whole object is ignored" in change.stored


def test_a_stored_version_is_given_up_in_steps() -> None:
    gone, stored, _ = changes(BASE, other((("spec", "versions"), [second()])))
    assert "served: false until all objects were written again" in gone.instead
    assert "storedVersions to ['v2']" in stored.instead


async def test_servers_refuse_what_is_said_to_be_refused(client: Client) -> None:
    await established(client, BASE, THING)
    answers = [
        await refusal(client, new)
        for name, new, *_ in DEFINITIONS
        if name in ("another scope", "another version")
    ]
    assert "field is immutable" in answers[0]
    assert "status.storedVersions[0]" in answers[1]


async def refusal(client: Client, manifest: Manifest) -> str:
    try:
        await client.apply(CRD.untyped(), manifest, manager="test")
    except Invalid as error:
        return str(error)
    return ""


def test_a_change_is_read_as_three_lines() -> None:
    change = Change(Effect.BREAKING, "v1.spec.a", "the field is gone", "it is pruned", "keep it")
    assert change.sentence().splitlines() == [
        "breaking v1.spec.a: the field is gone",
        "           stored objects: it is pruned",
        "           instead: keep it",
    ]


def strings(found: list[Change]) -> Iterator[str]:
    yield from (change.sentence() for change in found)


def test_breaking_changes_come_first_and_a_retyped_field_is_told_once() -> None:
    old = definition({"f0": holder(changed(TEXT, maxLength=9, pattern="^a"))})
    new = definition({"f0": holder(changed(INT, minimum=3)), "f1": holder(INT)})
    assert [text.split(":")[0] for text in strings(changes(old, new))] == [
        "breaking v1.spec.f0.it",
        "safe     v1.spec.f1",
    ]


MAP: Manifest = {"type": "object", "additionalProperties": TEXT}
OBJECT: Manifest = {"type": "object"}


@pytest.mark.parametrize(
    ("old", "new", "effect", "what"),
    [
        (MAP, OBJECT, Effect.BREAKING, "keys that it does not name go"),
        (MAP, OBJECT | {"properties": {"a": TEXT}}, Effect.BREAKING, "keys that it does not name go"),
        (MAP, OBJECT | KEEP | {"properties": {"a": INT}}, Effect.BREAKING, "keys that it does not name go"),
        (MAP, OBJECT | KEEP, Effect.SAFE, "map became object"),
        (
            OBJECT | {"required": ["a"], "properties": {"a": TEXT | {"default": "x"}}},
            OBJECT | {"required": ["a"], "properties": {"a": TEXT}},
            Effect.BREAKING,
            "required now, without a default",
        ),
        (
            OBJECT | {"required": ["a"], "properties": {"a": TEXT}},
            OBJECT | {"required": ["a"], "properties": {"a": TEXT | {"default": "x"}}},
            Effect.NOTED,
            "the default none became x",
        ),
        (
            {"type": "number", "multipleOf": 0.3},
            {"type": "number", "multipleOf": 0.1},
            Effect.SAFE,
            "multipleOf 0.3 became 0.1",
        ),
        (
            {"type": "number", "multipleOf": 0.1},
            {"type": "number", "multipleOf": 0.3},
            Effect.BREAKING,
            "multipleOf 0.1 became 0.3",
        ),
    ],
)
def test_what_looks_wider_and_is_not(old: Manifest, new: Manifest, effect: Effect, what: str) -> None:
    found = changes(definition({"f0": holder(old)}), definition({"f0": holder(new)}))
    assert (found[0].effect, what in found[0].what) == (effect, True), found
