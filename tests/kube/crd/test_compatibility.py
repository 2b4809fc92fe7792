"""A changed definition: breaking differences are told, and stored objects fare as told on a server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.crd.compatibility import changes
from elasticjob.kube.errors import Invalid
from elasticjob.kube.objects.kinds import Kind, Manifest
from lab.waiting import PATIENCE
from tests.kit.crd.posting import crd_of, established

TEXT: Manifest = {"type": "string"}
INT: Manifest = {"type": "integer"}
ITEM: Manifest = {"type": "object", "required": ["n"], "properties": {"n": TEXT}}
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
    what: str  # part of the sentence; "" where nothing is told
    value: Any = None
    read: Any = ...
    near: bool = True
    bad: Any = None
    good: Any = None
    required: tuple[str, ...] = ()


def changed(schema: Manifest, **more: Any) -> Manifest:
    return {**schema, **more}


ROWS: tuple[Row, ...] = (
    Row("fields are pruned", {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        {"type": "object", "properties": {"a": INT}}, "unknown fields are pruned now", {"a": 1, "b": 2},
        {"a": 1}, good={"a": 2}),
    Row("a field is gone", TEXT, None, "the field is gone", "x", GONE),
    Row("another type", TEXT, INT, "string became integer", "x", bad="y", good=1),
    Row("a wider type", INT, {"x-kubernetes-int-or-string": True}, "", 3, good="50%"),
    Row("a word less", changed(TEXT, enum=["a", "b"]), changed(TEXT, enum=["a"]), "b not allowed any more",
        "b", bad="c", good="a"),
    Row("a word more", changed(TEXT, enum=["a"]), changed(TEXT, enum=["a", "b"]), "", "a", good="b"),
    Row("only some words", TEXT, changed(TEXT, enum=["a"]), "only a are allowed", "b", bad="c", good="a"),
    Row("a lower bound", changed(TEXT, maxLength=9), changed(TEXT, maxLength=3), "maxLength 9 became 3",
        "abcdef", bad="abcdefg", good="abc"),
    Row("a new bound", INT, changed(INT, minimum=5), "minimum none became 5", 1, bad=2, good=5),
    Row("a looser bound", changed(INT, minimum=5), changed(INT, minimum=1), "", 5, good=1),
    Row("a pattern", TEXT, changed(TEXT, pattern="^a"), "pattern none became ^a", "b", bad="c", good="a"),
    Row("required", TEXT, TEXT, "required now, without a default", GONE, GONE, near=False, good="x",
        required=("it",)),
)  # fmt: skip


def holder(it: Manifest | None, required: tuple[str, ...] = ()) -> Manifest:
    """An object with `it` and another field."""
    fields = {"other": INT} | ({} if it is None else {"it": it})
    more: Manifest = {"required": list(required)} if required else {}
    return {"type": "object", "properties": fields, **more}


def definition(holders: Mapping[str, Manifest], *, marked: bool = False) -> Manifest:
    """Things with these objects in their spec; who reads one while a marked schema is in force sees it."""
    spec = {"type": "object", "properties": {"far": INT, **holders}}
    state = {"type": "object", "properties": {"seen": INT}}
    fields = {"spec": spec, "status": state} | ({"marked": {**INT, "default": 1}} if marked else {})
    return crd_of({"type": "object", "properties": fields}, subresources={"status": {}})


def before_and_after(rows: tuple[Row, ...]) -> tuple[Manifest, Manifest]:
    old = {f"f{index}": holder(row.old) for index, row in enumerate(rows)}
    new = {f"f{index}": holder(row.new, row.required) for index, row in enumerate(rows)}
    return definition(old), definition(new, marked=True)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_difference_of_schemas_is_told(row: Row) -> None:
    old, new = before_and_after((row,))
    found = changes(old, new)
    assert [row.what in change.what for change in found] == ([True] if row.what else []), found
    assert all(change.path == "v1.spec.f0.it" for change in found)


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
    async with asyncio.timeout(PATIENCE):
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


def test_a_retyped_field_is_told_once_and_nested_ones_with_their_path() -> None:
    old = {"type": "array", "items": ITEM | {"properties": {"n": changed(TEXT, maxLength=9)}}}
    new = {"type": "array", "items": ITEM | {"properties": {"n": changed(INT, minimum=3)}}}
    found = changes(definition({"f0": holder(old)}), definition({"f0": holder(new)}))
    assert [(change.path, change.what) for change in found] == [
        ("v1.spec.f0.it[].n", "string became integer")
    ]


def test_a_default_that_is_gone_makes_a_required_field_one_that_must_be_written() -> None:
    old = {"type": "object", "required": ["a"], "properties": {"a": TEXT | {"default": "x"}}}
    new = {"type": "object", "required": ["a"], "properties": {"a": TEXT}}
    [change] = changes(definition({"f0": holder(old)}), definition({"f0": holder(new)}))
    assert (change.path, change.what) == ("v1.spec.f0.it.a", "required now, without a default")
