"""CEL: (expression, variables → value), errors, and what does not compile."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.kube.cel import CelError, CelSyntaxError, compiled

SELF: dict[str, Any] = {"n": 3, "s": "hello", "l": [1, 2, 3], "m": {"a": 1, "b.c": 2}, "t": True, "zero": 0}

VALUES: list[tuple[str, Any]] = [
    ("1 + 2 * 3", 7),
    ("(1 + 2) * 3", 9),
    ("7 / 2", 3),
    ("-7 / 2", -3),
    ("-7 % 3", -1),
    ("7.0 / 2", 3.5),
    ("self.n == 3 && self.s != 'x'", True),
    ("self.n > 3 || self.n <= 3", True),
    ("self.n > 2 ? 'big' : 'small'", "big"),
    ("self.n > 5 ? 'a' : self.n > 2 ? 'b' : 'c'", "b"),
    ("!self.t", False),
    ("has(self.n)", True),
    ("has(self.nope)", False),
    ("has(self.m.a) && !has(self.m.z)", True),
    ("!has(self.nope) || self.nope > 3", True),
    ("self.nope > 3 || true", True),
    ("self.nope > 3 && false", False),
    ("2 in self.l", True),
    ("'a' in self.m", True),
    ("'z' in self.m", False),
    ("self.l[0] == 1", True),
    ("self.m['b.c']", 2),
    ("self.l + [4]", [1, 2, 3, 4]),
    ("size(self.l) + self.s.size()", 8),
    ("self.l.all(x, x > 0)", True),
    ("self.l.exists(x, x == 2)", True),
    ("self.l.exists_one(x, x > 2)", True),
    ("self.l.filter(x, x > 1)", [2, 3]),
    ("self.l.map(x, x * 2)", [2, 4, 6]),
    ("self.l.map(x, x > 1, x * 2)", [4, 6]),
    ("self.m.all(k, self.m[k] > 0)", True),
    ("self.l.all(x, self.l.exists(y, y == x))", True),
    ("[].all(x, x)", True),
    ("self.s.startsWith('he') && self.s.endsWith('lo') && self.s.contains('ll')", True),
    ("self.s.matches('^h.*o$')", True),
    ("'A-B'.lowerAscii().split('-').join('+')", "a+b"),
    ("'abc'.substring(1)", "bc"),
    ("'x' + string(3) + string(true)", "x3true"),
    ("int('42') + 1", 43),
    ("double('1.5')", 1.5),
    ("self.?m.?a.orValue(9)", 1),
    ("self.?nope.?a.orValue(9)", 9),
    ("self.?nope.hasValue()", False),
    ("self.m[?'z'].orValue(0)", 0),
    ("optional.of(3).value()", 3),
    ("optional.none().orValue(1)", 1),
    ("{'a': 1}['a']", 1),
    ("'it\\'s' == \"it's\"", True),
    ("r'a\\d'", "a\\d"),
    ("0x10", 16),
    ("true == 1", False),
    ("null == null", True),
    ("dyn(self.n) == 3", True),
    ("type(self.n) == int && type(self.s) == string && type(null) == null_type", True),
    ("self.l.all(int, int > 0)", True),
    ("self.s.findAll('l')", ["l", "l"]),
    ("self.s.lastIndexOf('l')", 3),
    ("[1, 2, 1].lastIndexOf(1)", 2),
    ("self.l.reverse()", [3, 2, 1]),
    ("sets.contains(self.l, [1]) && !sets.contains(self.l, [4])", True),
    ("sets.intersects(self.l, [1, 4]) && sets.equivalent([1, 2], [2, 1, 1])", True),
    ("b'ab' == b\"ab\"", True),
    ("self.l.sum() == 6 && self.l.max() == 3", True),
]


@pytest.mark.parametrize(("text", "expected"), VALUES)
def test_values(text: str, expected: Any) -> None:
    value = compiled(text).evaluate({"self": SELF})
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "self.nope",
        "self.l[9]",
        "self.l[-1]",
        "self.m['z']",
        "1 / 0",
        "'a' + 1",
        "self.n && true",
        "self.nope > 1 || false",
        "'a' < 1",
        "self.n.size()",
        "optional.none().value()",
        "!1",
        "[1] < [2]",
        "nobody",
    ],
)
def test_expressions_without_a_value(text: str) -> None:
    with pytest.raises(CelError):
        compiled(text).evaluate({"self": SELF})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "self ==",
        "(1",
        "a b",
        "self.frob(1)",
        "frob(1)",
        "self.l.all(1, x)",
        "has(self)",
        "1 +* 2",
        "'open",
        "a ? b",
    ],
)
def test_what_does_not_compile_says_where(text: str) -> None:
    with pytest.raises(CelSyntaxError) as error:
        compiled(text)
    assert str(error.value)


def test_a_program_names_its_free_variables_only() -> None:
    assert compiled("self.l.all(x, x == oldSelf.n && y > 0)").names == {"self", "oldSelf", "y"}
