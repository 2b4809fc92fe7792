"""The three patch formats as pure functions: (object, patch → object); refusals are in tests/conformance."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.devcluster.server.model.schemas import Schema, builtin_definitions
from elasticjob.devcluster.server.write.patches import json_patch, merge_patch
from elasticjob.devcluster.server.write.strategic import strategic_merge

# RFC 7386, appendix A
MERGES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "foo"}, None, None),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("value", "patch", "expected"), MERGES)
def test_merge_patch(value: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy(value)
    assert merge_patch(value, patch) == expected
    assert value == before


JSON = st.recursive(
    st.integers(0, 9), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)


@settings(max_examples=50)
@given(JSON, JSON)
def test_merge_patch_is_idempotent(value: Any, patch: Any) -> None:
    once = merge_patch(value, patch)
    assert merge_patch(once, patch) == once


OPERATIONS: list[tuple[Any, list[dict[str, Any]], Any]] = [
    ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
    ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
    ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
    (
        {"a": {"x/y": 1, "m~n": 2}},
        [{"op": "remove", "path": "/a/x~1y"}, {"op": "remove", "path": "/a/m~0n"}],
        {"a": {}},
    ),
    ({"a": 1}, [{"op": "replace", "path": "/a", "value": [2]}], {"a": [2]}),
    ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
    ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
    ({"a": 1}, [{"op": "test", "path": "/b", "value": None}], {"a": 1}),
]


@pytest.mark.parametrize(("value", "operations", "expected"), OPERATIONS)
def test_json_patch(value: Any, operations: list[dict[str, Any]], expected: Any) -> None:
    before = copy.deepcopy(value)
    assert json_patch(value, operations) == expected
    assert value == before


POD: Schema = builtin_definitions()["io.k8s.api.core.v1.PodSpec"]
TWO = {
    "containers": [
        {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]},
        {"name": "b", "image": "2"},
    ]
}
STRATEGIC: dict[str, tuple[Any, Any]] = {
    "merge by name": ({"containers": [{"name": "b", "image": "3"}]}, [("a", "1"), ("b", "3")]),
    "append": ({"containers": [{"name": "c", "image": "3"}]}, [("c", "3"), ("a", "1"), ("b", "2")]),
    "delete by directive": ({"containers": [{"name": "a", "$patch": "delete"}]}, [("b", "2")]),
    "replace the list": ({"containers": [{"$patch": "replace"}, {"name": "z", "image": "9"}]}, [("z", "9")]),
    "order": ({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}, [("b", "2"), ("a", "1")]),
    "order with a new one": (
        {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}],
            "containers": [{"name": "c", "image": "3"}],
        },
        [("c", "3"), ("a", "1"), ("b", "2")],
    ),
}


@pytest.mark.parametrize(("patch", "expected"), STRATEGIC.values(), ids=STRATEGIC)
def test_strategic_merge_of_containers(patch: Any, expected: Any) -> None:
    before = copy.deepcopy(TWO)
    merged = strategic_merge(TWO, patch, POD)
    assert [(each["name"], each["image"]) for each in merged["containers"]] == expected
    assert before == TWO


def test_strategic_merge_below_a_keyed_element() -> None:
    env = {
        "containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "$patch": "delete"}]}]
    }
    assert strategic_merge(TWO, env, POD)["containers"][0]["env"] == [{"name": "Y", "value": "2"}]


def test_strategic_merge_replaces_atomic_lists_and_retains_keys() -> None:
    value = {"containers": [{"name": "a", "args": ["1", "2"]}], "volumes": [{"name": "v", "emptyDir": {}}]}
    merged = strategic_merge(value, {"containers": [{"name": "a", "args": ["3"]}]}, POD)
    assert merged["containers"][0]["args"] == ["3"]
    patch = {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}
    assert strategic_merge(value, patch, POD)["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]
