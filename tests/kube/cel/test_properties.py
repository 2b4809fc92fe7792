"""Laws of expressions of chance: what is well-typed never fails for its types, and is what its type says."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from hypothesis import assume, given
from hypothesis import strategies as st

from elasticjob.kube.cel import (
    NO_OVERLOAD,
    CelError,
    CelSyntaxError,
    Meter,
    TooCostly,
    compiled,
    parsed,
    shape_of,
)
from elasticjob.kube.cel.checker import Checked, checked
from elasticjob.kube.cel.cost import cost_of
from elasticjob.kube.cel.declared import variables
from elasticjob.kube.cel.natives import reader
from elasticjob.kube.cel.seen import UNBOUNDED
from elasticjob.kube.cel.types import Type
from elasticjob.kube.cel.values import kind

TEXT: Final = {"type": "string", "maxLength": 9}
NUMBER: Final = {"type": "integer"}
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "n": NUMBER,
        "d": {"type": "number"},
        "t": {"type": "boolean"},
        "s": TEXT,
        "l": {"type": "array", "maxItems": 3, "items": NUMBER},
        "ls": {"type": "array", "maxItems": 3, "items": TEXT},
        "map": {"type": "object", "maxProperties": 3, "additionalProperties": NUMBER},
        "when": {"type": "string", "format": "date-time"},
        "span": {"type": "string", "format": "duration"},
    },
}
SHAPE: Final = shape_of(SCHEMA)
LEAVES: Final = (
    *("self.n", "self.d", "self.t", "self.s", "self.l", "self.ls", "self.map", "self.when", "self.span"),
    *("1", "0", "2.5", "'a'", "true", "[1]", "['a']", "{'a': 1}", "[]", "self.?n", "duration('1s')", "x"),
)
FORMS: Final = (
    *("({0} + {1})", "({0} - {1})", "({0} / {1})", "({0} == {1})", "({0} < {1})", "({0} in {1})"),
    *("({0} && {1})", "({0} || !({1}))", "({0} ? {1} : {0})", "-{0}", "{0}[{1}]", "{0}[?{1}]"),
    *(
        "{0}.all(x, {1})",
        "{0}.exists(x, {1})",
        "{0}.filter(x, {1})",
        "{0}.map(x, {1})",
        "{0}.exists_one(x, {1})",
    ),
    *("{0}.size()", "{0}.contains({1})", "{0}.split({1})", "{0}.join({1})", "{0}.indexOf({1})", "{0}.max()"),
    *(
        "{0}.orValue({1})",
        "{0}.hasValue()",
        "{0}.sort()",
        "{0}.isSorted()",
        "{0}.getHours()",
        "{0}.reverse()",
    ),
    *(
        "string({0})",
        "int({0})",
        "double({0})",
        "type({0})",
        "optional.of({0})",
        "[{0}, {1}]",
        "{{'a': {0}}}",
    ),
    *("{0}.substring({1})", "{0}.matches({1})", "quantity({0})", "sets.contains({0}, {1})", "{0}.first()"),
)


def composed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(str.format, st.sampled_from(FORMS), inner, inner)


EXPRESSIONS: Final = st.recursive(st.sampled_from(LEAVES), composed, max_leaves=5)
OBJECTS: Final = st.fixed_dictionaries(
    {
        "n": st.integers(-3, 3),
        "d": st.sampled_from([0, 1.5, -2]),
        "t": st.booleans(),
        "s": st.sampled_from(["", "a", "b,a", "7"]),
        "l": st.lists(st.integers(-2, 2), max_size=3),
        "ls": st.lists(st.sampled_from(["", "a", "b"]), max_size=3),
        "map": st.dictionaries(st.sampled_from(["a", "b"]), st.integers(-2, 2)),
        "when": st.sampled_from(["2024-02-29T13:14:15Z", "1999-01-01T00:00:00.5+02:00"]),
        "span": st.sampled_from(["1h", "-5ms"]),
    }
)


def well_typed(text: str) -> Checked:
    assert SHAPE is not None
    found = checked(parsed(text), variables(SHAPE))
    assume(not found.mistakes)
    assume(not any("dyn" in str(each) for each in found.kinds.values()))
    return found


def is_of(value: Any, wanted: Type) -> bool:
    """Whether a value is of a type, down to its elements."""
    if wanted.name == "list":
        return isinstance(value, list) and all(is_of(each, wanted.parameters[0]) for each in value)
    if wanted.name == "map":
        return isinstance(value, dict) and all(is_of(each, wanted.parameters[1]) for each in value.values())
    return str(kind(value)) == wanted.name


NO_VALUE: Final = object()


def valued(text: str, self: dict[str, Any], meter: Meter) -> Any:
    """The value of an expression; NO_VALUE where it fails, which it must not for the types in it."""
    read = reader(SCHEMA)
    assert read is not None
    failures: list[str] = []
    try:
        return compiled(text).evaluate({"self": read(self)}, meter)
    except CelError as error:
        failures.append(str(error))
    assert not failures[0].startswith(NO_OVERLOAD)
    return NO_VALUE


@given(EXPRESSIONS, OBJECTS)
def test_what_is_well_typed_never_fails_for_its_types(text: str, self: dict[str, Any]) -> None:
    found = well_typed(text)
    value = valued(text, self, Meter())
    assert value is NO_VALUE or is_of(value, found.kind)


@given(EXPRESSIONS, OBJECTS)
def test_nothing_costs_more_than_was_estimated(text: str, self: dict[str, Any]) -> None:
    """But for scalars that are compared: servers estimate that at nothing, and count one."""
    well_typed(text)
    assert SHAPE is not None
    estimate, meter = cost_of(parsed(text), SHAPE), Meter()
    value = valued(text, self, meter)
    compared = text.count("==") + text.count("!=")
    most = 2 * estimate + compared if compared else estimate
    assert value is NO_VALUE or meter.spent <= most or estimate == UNBOUNDED


@given(EXPRESSIONS, OBJECTS, st.integers(0, 30))
def test_a_limit_ends_what_would_cost_more(text: str, self: dict[str, Any], limit: int) -> None:
    well_typed(text)
    free, meter = Meter(), Meter(limit)
    valued(text, self, free)
    try:
        valued(text, self, meter)
    except TooCostly:
        assert meter.spent > limit
    else:
        assert meter.spent == free.spent <= limit


@given(st.text(max_size=30))
def test_no_text_breaks_the_reader(text: str) -> None:
    with suppress(CelSyntaxError):
        parsed(text)
