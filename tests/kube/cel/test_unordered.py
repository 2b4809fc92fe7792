"""Lists whose order says nothing, as rules compare and join them: (expression → value), as servers do."""

from __future__ import annotations

from typing import Any, Final

import pytest

from elasticjob.kube.cel import compiled, reader

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "keyed": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}},
        },
        "list": {"type": "array", "items": {"type": "string"}},
    },
}
A: Final = {"k": "a", "v": 1}
B: Final = {"k": "b", "v": 2}
SELF: Final = {"set": ["a", "b"], "keyed": [A, B], "list": ["b", "a"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("self.set == ['b', 'a']", True),
        ("['b', 'a'] == self.set", False),
        ("self.set == self.list", True),
        ("self.list == self.set", False),
        ("self.set == ['a']", False),
        ("self.set + ['c', 'a']", ["a", "b", "c"]),
        ("self.set + ['c'] == ['c', 'b', 'a']", True),
        ("self.list + self.set", ["b", "a", "a", "b"]),
        ("self.set.map(x, x) == ['b', 'a']", False),
        ("type(self.set) == list && 'a' in self.set", True),
        ("self.keyed == [self.keyed[1], self.keyed[0]]", True),
        ("self.keyed + [self.keyed[1], self.keyed[0]]", [A, B]),
        ("self.keyed + [{'k': 'b', 'v': '3'}]", [A, {"k": "b", "v": "3"}]),
        ("self.keyed.filter(x, x.v > 1) + self.keyed", [B, A, B]),
    ],
)
def test_lists_without_an_order(text: str, expected: Any) -> None:
    read = reader(SCHEMA)
    assert read is not None
    assert compiled(text).evaluate({"self": read(SELF)}) == expected
