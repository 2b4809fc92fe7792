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
    ("'abc\\n'.matches('^[a-z]+$')", False),
    ("'٣'.matches('^[0-9]+$') || '٣'.matches(r'^\\d+$')", False),
    ("'abc'.matches('^[[:alpha:]]+$')", True),
    ("'ab12'.find('[0-9]+')", "12"),
    ("'ab'.find('[0-9]+')", ""),
    ("[1, 2].indexOf(2) == 1 && [1, 2].indexOf(3) == -1 && 'ab'.indexOf('c') == -1", True),
    ("'abc'.substring(3) == '' && 'abc'.substring(1, 2) == 'b'", True),
    ("'abc'.charAt(3)", ""),
    ("int('-7') == -7 && int(1.9) == 1 && uint(7) == 7", True),
    ("9223372036854775807 - 1 + 1 > 0", True),
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
        "9223372036854775807 + 1",
        "self.n * 9223372036854775807",
        "int('9223372036854775808')",
        "int('1_0')",
        "int(' 1')",
        "int(1e300)",
        "uint(-1)",
        "true + true",
        "'a' in 'abc'",
        "'abc'.substring(-1)",
        "'abc'.substring(2, 9)",
        "'abc'.substring(2, 1)",
        "'abc'.charAt(-1)",
        "'abc'.charAt(4)",
        "'abc'.matches('(')",
        "'abc'.find('(')",
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
        "self.?n.optMap(x, x + 1)",
        "self.m.all(k, v, v > 0)",
        "'open",
        "a ? b",
        "(" * 5_000,
        "!(" * 5_000 + "true",
        "self" + ".a" * 5_000,
        "1" + " + 1" * 5_000,
        "[" * 100 + "]" * 100,
    ],
    ids=lambda text: text[:20],
)
def test_what_does_not_compile_says_where(text: str) -> None:
    with pytest.raises(CelSyntaxError) as error:
        compiled(text)
    assert str(error.value)


def test_many_terms_are_not_deep() -> None:
    assert compiled(" && ".join(["self.n == 3"] * 1_000)).evaluate({"self": SELF}) is True


def test_no_text_makes_a_pattern_take_long() -> None:
    text = "a" * 100_000 + "b"
    assert compiled("self.matches('^(a+)+$')").evaluate({"self": text}) is False


def test_a_program_names_its_free_variables_only() -> None:
    assert compiled("self.l.all(x, x == oldSelf.n && y > 0)").names == {"self", "oldSelf", "y"}
