"""Laws of server-side apply, on objects that hypothesis makes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.devcluster.server.model.errors import StatusError
from elasticjob.devcluster.server.model.schemas import custom_schema
from elasticjob.devcluster.server.model.store import Manifest
from elasticjob.devcluster.server.write.fields import (
    HOLDER,
    alike,
    from_fields_v1,
    leaves,
    nodes,
    to_fields_v1,
)
from elasticjob.devcluster.server.write.managed import Writer, apply, fields_of_update
from tests.kit.devcluster.api import THING_SCHEMA

SCHEMA = custom_schema(THING_SCHEMA)
NAMES = st.sampled_from("abc")
PART = st.fixed_dictionaries({"name": NAMES}, optional={"size": st.integers(0, 2), "color": NAMES})
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 2),
        "mode": st.sampled_from(["fast", "slow"]),
        "labels": st.dictionaries(NAMES, NAMES, max_size=2),
        "tags": st.lists(NAMES, unique=True, max_size=3),
        "parts": st.lists(PART, unique_by=lambda part: str(part["name"]), max_size=3),
        "free": st.dictionaries(
            NAMES,
            st.recursive(
                st.integers(0, 1), lambda inner: st.dictionaries(NAMES, inner, max_size=2), max_leaves=4
            ),
            max_size=2,
        ),
    },
)

LAW = settings(max_examples=50)


def manifest(spec: dict[str, Any]) -> Manifest:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec}


def writer(name: str) -> Writer:
    return Writer(name, "example.com/v1", "", "2026-01-01T00:00:00Z")


def applied(live: Manifest, spec: dict[str, Any], name: str, *, force: bool = True) -> Manifest:
    return apply(live, manifest(spec), SCHEMA, writer(name), force=force)


EMPTY: Manifest = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}


@LAW
@given(SPECS)
def test_field_sets_survive_being_written_down(spec: dict[str, Any]) -> None:
    paths = set(leaves(manifest(spec), SCHEMA))
    assert from_fields_v1(to_fields_v1(paths)) == paths


@LAW
@given(SPECS, SPECS)
def test_what_is_applied_is_there(first: dict[str, Any], second: dict[str, Any]) -> None:
    live = applied(applied(EMPTY, first, "one"), second, "two")
    there = leaves(live, SCHEMA)
    for path, value in leaves(manifest(second), SCHEMA).items():
        filled = value in ({}, []) and any(other[: len(path)] == path for other in there)
        assert filled or (path in there and (value is HOLDER or there[path] == value))


@LAW
@given(SPECS, SPECS)
def test_applying_twice_changes_nothing(first: dict[str, Any], second: dict[str, Any]) -> None:
    live = applied(applied(EMPTY, first, "one"), second, "two")
    assert applied(live, second, "two") == live


@LAW
@given(SPECS, SPECS)
def test_a_lone_manager_gets_what_the_last_apply_says(first: dict[str, Any], second: dict[str, Any]) -> None:
    live = applied(applied(EMPTY, first, "one"), second, "one")
    assert leaves(live, SCHEMA) == leaves(manifest(second), SCHEMA)


@LAW
@given(SPECS, SPECS)
def test_without_force_nobody_loses_a_value(first: dict[str, Any], second: dict[str, Any]) -> None:
    live = applied(EMPTY, first, "one")
    before = leaves(manifest(first), SCHEMA)
    with suppress(StatusError):
        after = leaves(applied(live, second, "two", force=False), SCHEMA)
        for path, value in before.items():
            assert after.get(path) == value or value in ({}, [])


@LAW
@given(SPECS, SPECS)
def test_an_update_owns_exactly_what_it_changed(first: dict[str, Any], second: dict[str, Any]) -> None:
    live = applied(EMPTY, first, "one")
    new = manifest(second) | {"metadata": live["metadata"]}
    entries = fields_of_update(live, new, SCHEMA, writer("two"))
    owned = {entry["manager"]: from_fields_v1(entry["fieldsV1"]) for entry in entries}
    before, after = nodes(live, SCHEMA), nodes(new, SCHEMA)
    changed = {path for path, value in after.items() if path not in before or not alike(before[path], value)}
    assert owned.get("two", set()) == changed
    mine = leaves(manifest(first), SCHEMA)
    kept = {path for path in mine if path in after and path not in changed}
    assert owned.get("one", set()) == kept
