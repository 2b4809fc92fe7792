"""The rewrite table, from both sides: the generator writes and refuses as it says, and servers agree."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.crd.generate import crd_manifest
from elasticjob.kube.crd.model import Declaration
from elasticjob.kube.crd.schemas import UnsupportedSchema
from elasticjob.kube.errors import Invalid
from elasticjob.kube.objects.kinds import Kind, Manifest
from tests.kit.crd.posting import answer_to, established, with_spec
from tests.kit.crd.rows import (
    ABSENT,
    EMBEDDED,
    REFUSED,
    REFUSED_VALUE,
    WRITTEN,
    Bad,
    Row,
    Sent,
    kind_with,
    pydantics_own,
    unchecked,
)

each_row = pytest.mark.parametrize("row", WRITTEN, ids=lambda row: row.name)
each_bad = pytest.mark.parametrize("bad", REFUSED, ids=lambda bad: bad.name)
pydantic_warns = pytest.mark.filterwarnings("ignore::UserWarning")  # on defaults that do not fit: our subject


@cache
def written(text: str) -> Manifest:
    return crd_manifest(Declaration(kind_with(text)), EMBEDDED)


def field_of(manifest: Manifest) -> Manifest:
    spec = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return {key: value for key, value in spec["properties"]["it"].items() if key != "description"}


@each_row
def test_constructs_are_written_as_the_table_says(row: Row) -> None:
    assert field_of(written(row.text)) == row.schema


async def test_servers_take_what_is_written(client: Client) -> None:
    answers = [(row.name, await answer_to(client, written(row.text))) for row in WRITTEN]
    assert [(name, answer) for name, answer in answers if answer] == []


async def test_servers_say_to_pydantics_own_schema_what_the_table_says(client: Client) -> None:
    wrong = []
    for row in WRITTEN:
        answer = await answer_to(client, with_spec(pydantics_own(row.text)))
        if bool(answer) != bool(row.answer) or row.answer not in answer:
            wrong.append((row.name, row.answer, answer))
    assert wrong == []


@pydantic_warns
@each_bad
def test_bad_constructs_are_refused_where_they_stand(bad: Bad) -> None:
    with pytest.raises(UnsupportedSchema, match=r"^Thing\.spec\.it"):
        written(bad.text)


@pytest.mark.plane  # devcluster does not check definitions as closely
@pydantic_warns
async def test_servers_refuse_what_the_generator_refuses(client: Client) -> None:
    wrong = []
    for bad in REFUSED:
        answer = await answer_to(client, with_spec(unchecked(bad.text)))
        if bool(answer) != bool(bad.answer) or bad.answer not in answer:
            wrong.append((bad.name, bad.answer, answer))
    assert wrong == []


ALL = kind_with("int")


def all_rows() -> Manifest:
    """One definition whose spec has each row that has objects, as an optional field f0, f1, …."""
    manifest = deepcopy(written("int"))
    spec = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"] = {f"f{index}": field_of(written(row.text)) for index, row in enumerate(WRITTEN)}
    del spec["required"]
    return manifest


async def test_objects_are_defaulted_pruned_and_checked_as_the_table_says(
    client: Client, namespace: str
) -> None:
    kind: Kind[Manifest] = ALL.untyped()
    await established(client, all_rows(), kind)
    wrong = []
    for index, row in enumerate(WRITTEN):
        for place, sent in enumerate(row.objects):
            stored = await stored_value(client, kind, namespace, f"f{index}", place, sent)
            expected = sent.value if sent.stored is ... else sent.stored
            if stored != expected:
                wrong.append((row.name, sent.value, expected, stored))
    assert wrong == []


async def stored_value(
    client: Client, kind: Kind[Manifest], namespace: str, field: str, place: int, sent: Sent
) -> Any:
    """Return what becomes of a value that is sent in a field."""
    spec = {} if sent.value is ABSENT else {field: sent.value}
    manifest = {"metadata": {"name": f"{field}-{place}"}, "spec": spec}
    try:
        found = await client.create(kind, manifest, namespace)
    except Invalid:
        return REFUSED_VALUE
    return found["spec"].get(field, ABSENT)


async def test_the_pages_example_is_taken(client: Client) -> None:
    page = (Path(__file__).parents[3] / "docs" / "crd-generation.md").read_text()
    found: dict[str, Any] = {"__name__": __name__}
    example = page.split("```python\n")[1].split("```")[0]
    exec(compile(example, "crd-generation.md", "exec", dont_inherit=True), found)
    assert await answer_to(client, found["manifest"]) == ""
