"""Patterns that servers read, and those that they do not: RE2, row by row."""

from __future__ import annotations

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.crd.patterns import find_all, matches, pattern_problem
from tests.kit.crd.posting import answer_to, with_spec

READ = (
    r"^a$",
    r"(?P<n>a)",
    r"(?<n>a)",
    r"a*?",
    r"a+?",
    r"a??",
    r"a{2,3}?",
    r"a{1000}",
    r"a{,3}",
    r"a{x}",
    r"\d\D\s\S\w\W",
    r"\p{L}+",
    r"\pL",
    r"\P{Greek}",
    r"\Aab\z",
    r"\bfoo\B",
    r"[\d-]",
    r"[\w.-]",
    r"[^]a]",
    r"[]a]",
    r"[[:alpha:]]+",
    r"\x41",
    r"\x{1F600}",
    r"\Q.+\E",
    r"(?i)abc",
    r"(?i:abc)",
    r"(?-i:a)",
    r"(?ims)a",
    r"(?:a|b)",
    r"\.",
    r"\-",
    r"\_",
    r"\ ",
    r"\/",
    r"\0",
    r"\07",
    r"$^",
    r"",
    r"\\1",
    r"[(?=]",
    r"\(?=",
    r"x{0}",
    r"(?P<n>a)|(?P<n>b)",
    r"(?P<1>a)",
    r"(?s).*",
    r"(?U)a+",
    r"é+",
    r"[[.a.]]",
    r"((((((((((a))))))))))",
    r"a{2",
    r"\z?",
    r"[+--]",
    r"[a&&b||c~~d]",
    r"[\<\>]",
    r"\p{^L}",
)
UNREAD = (
    r"(?!a)b",
    r"(?=a)b",
    r"(?<=a)b",
    r"(?<!a)b",
    r"(a)\1",
    r"(?P<n>a)(?P=n)",
    r"(?>a)",
    r"(?#c)a",
    r"(?(1)a|b)",
    r"a++",
    r"a*+",
    r"a?+",
    r"a**",
    r"a{2}{3}",
    r"a{2}+",
    r"a{1001}",
    r"a{3,2}",
    r"ab\Z",
    r"[\b]",
    r"\u0041",
    r"\h",
    r"\K",
    r"\R",
    r"\X",
    r"\G",
    r"\e",
    r"\cA",
    r"\N",
    r"(?x) a",
    r"(?a)a",
    r"(?u)a",
    r"(?L)a",
    r"(a",
    r"a)",
    r"[a",
    r"*a",
    r"+",
    r"a|*",
    r"[z-a]",
    r"\8",
    r"\é",
    r"[\Q]",
    r"^(?:(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)(?:\.(?!$))?)+$",
    r"(?'n'a)",
    r"(?P>n)",
    r"(?R)",
    r"(?&n)",
    r"\k<n>",
    r"\g1",
    r"a\C",
    r"(?|a|b)",
    r"(a{500}){3}",
    r"{2}",
    r"a|{2}",
    r"(*a)",
    r"(?i",
    r"[[:foo:]]",
    r"[a-\d]",
    r"\p{Foo}",
    r"\x4",
    r"\x{110000}",
    r"(?-:a)",
)


@pytest.mark.parametrize("pattern", READ)
def test_what_servers_read_is_taken(pattern: str) -> None:
    assert pattern_problem(pattern) == ""


@pytest.mark.parametrize("pattern", UNREAD)
def test_what_servers_do_not_read_is_refused(pattern: str) -> None:
    assert pattern_problem(pattern)


async def test_servers_agree(client: Client) -> None:
    wrong = []
    for pattern in READ + UNREAD:
        spec = {"type": "object", "properties": {"it": {"type": "string", "pattern": pattern}}}
        answer = await answer_to(client, with_spec(spec))
        if (answer == "") != (pattern in READ) or (answer and "regular expression" not in answer):
            wrong.append((pattern, answer))
    assert wrong == []


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        (r"\Aabc\z", "abc\n", False),
        ("^[a-z]+$", "abc\n", False),
        ("^[[:alpha:]]+$", "abc", True),
        (r"^\p{L}+$", "été", True),
        (r"^\d$", "٣", False),
        (r"^\w$", "é", False),
        (r"\bfoo\b", "éfoo", True),
        (r"^\Qa.b\E$", "axb", False),
        (r"^\x{1F600}$", "\U0001f600", True),
    ],
)
def test_patterns_find_what_servers_find(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(.*)*(.*)*(.*)*x"])
def test_no_text_makes_a_pattern_take_long(pattern: str) -> None:
    assert not matches(pattern, "a" * 100_000 + "b")  # an engine that tries again would not come back


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\d+", "a12b3٣", ["12", "3"]),
        ("a$", "a\n", []),
        ("[0-9]*", "a1b22", ["", "1", "22"]),
        ("(|a)*", "aa", ["", "", ""]),
        (r"\p{L}+", "été 1", ["été"]),
    ],
)
def test_all_matches(pattern: str, text: str, expected: list[str]) -> None:
    assert find_all(pattern, text) == expected


def test_a_pattern_that_cannot_be_read_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="invalid"):
        matches("(?=a)(", "a")
