"""What no expression does, whatever its text and its values: fill the memory, or never come to an end."""

from __future__ import annotations

from typing import Any, Final

import pytest

from elasticjob.kube.cel import CelError, Meter, TooCostly, compiled, reader, refusal, shape_of

MANY: Final = 100_000
SHAPE: Final = shape_of({"type": "object", "properties": {"n": {"type": "integer"}}})


def evaluated(text: str, value: Any, limit: int = 1_000_000) -> Any:
    return compiled(text).evaluate({"self": value}, Meter(limit))


def deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("text", "value", "why"),
    [
        ("duration(self)", "9" * 1_000_000, "type conversion error"),
        ("duration(self)", "1s" * 100_000 + "!", "type conversion error"),
        ("quantity(self)", "9" * 5_000, "unable to parse numeric part of quantity"),
        ("quantity(self)", "1e" + "9" * 5_000, "unable to parse numeric part of quantity"),
        ("quantity(self)", "1e999999999", "unable to parse quantity's suffix"),
        ("'%.999999999f'.format([self])", 1.0, "at most 9999 digits"),
        ("'%.999999999e'.format([self])", 1.0, "at most 9999 digits"),
        ("self.replace('', self)", "a" * 1_000_000, "the text would be longer"),
        ("self == [self][0]", deep(3_000), "nested too deeply"),
        ("'%s'.format([self])", deep(3_000), "nested too deeply"),
    ],
)
def test_what_would_take_long_or_much_has_no_value(text: str, value: Any, why: str) -> None:
    with pytest.raises(CelError, match=why):
        evaluated(text, value)


@pytest.mark.parametrize(
    "text",
    ["self.distinct()", "self.sort()", "sets.contains(self, self)", "sets.equivalent(self, self)"],
)
def test_what_compares_all_with_all_costs_before_it_is_done(text: str) -> None:
    with pytest.raises(TooCostly):
        evaluated(f"{text} == []", list(range(MANY)))


@pytest.mark.parametrize("keyed", [False, True])
def test_long_lists_without_an_order_are_compared_and_joined(keyed: bool) -> None:
    scalar = {"type": "string"}
    item = {"type": "object", "properties": {"k": scalar}} if keyed else scalar
    kind = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    node = {"type": "array", "items": item, **(kind if keyed else {"x-kubernetes-list-type": "set"})}
    read = reader(node)
    assert read is not None
    items = [{"k": str(each)} if keyed else str(each) for each in range(MANY)]
    values = {"self": read(items), "oldSelf": read(items[::-1])}
    assert compiled("self == oldSelf && self + oldSelf == self").evaluate(values) is True


def test_a_text_as_long_as_servers_read_is_refused_in_their_words() -> None:
    rule = " && ".join(["self.n > 1"] * 10_000)
    assert SHAPE is not None
    found = refusal({"rule": rule}, "rule", SHAPE)
    assert found is not None
    told = f"expression code point size exceeds limit: size: {len(rule)}, limit 100000"
    assert told in found.message
