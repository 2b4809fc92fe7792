"""Patterns that servers read, and those that they do not: RE2, row by row."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.kube.client import Client
from elasticjob.kube.re2 import found, matches, re2_problem
from tests.kube.crd.posting import said, with_spec

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
    assert re2_problem(pattern) is None


@pytest.mark.parametrize("pattern", UNREAD)
def test_what_servers_do_not_read_is_refused(pattern: str) -> None:
    assert re2_problem(pattern)


def test_an_octal_number_is_refused_though_servers_read_it() -> None:
    assert re2_problem(r"\12") == "RE2 knows no back-references"  # as Python does: to it, it is one


async def test_servers_agree(client: Client) -> None:
    wrong = []
    for pattern in READ + UNREAD:
        spec = {"type": "object", "properties": {"it": {"type": "string", "pattern": pattern}}}
        answer = await said(client, with_spec(spec))
        if (answer == "") != (pattern in READ) or (answer and "regular expression" not in answer):
            wrong.append((pattern, answer))
    assert wrong == []


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        (r"\Aabc\z", "abc", True),
        (r"\Aabc\z", "abc\n", False),
        ("^[[:alpha:]]+$", "abc", True),
        ("^[[:^alpha:]x]$", "x", True),
        ("^(?<n>a)$", "a", True),
        (r"^\p{L}+$", "été", True),
        (r"^\p{Lu}$", "a", False),
        (r"^[\p{N}.]+$", "1.5", True),
        ("^[a[]$", "[", True),
        ("(?i)ABC", "abc", True),
        ("a(?i)BC", "abc", True),
        ("^[a-z]+$", "abc\n", False),
        ("(?m)^a$", "a\nb", True),
        (r"^\d$", "٣", False),
        (r"^\w$", "é", False),
        (r"^\W$", "é", True),
        (r"^[\w.]$", "é", False),
        (r"^[^\D]$", "1", True),
        (r"\bfoo\b", "éfoo", True),
        (r"^\Qa.b\E$", "a.b", True),
        (r"^\Qa.b\E$", "axb", False),
        (r"^a{,3}$", "a{,3}", True),
        ("^[]a]+$", "a]", True),
        ("^[^]a]$", "]", False),
        ("^[a&&b]+$", "a&b", True),
        ("^[+--]+$", "+,-", True),
        ("^[a~~b]+$", "a~b", True),
        (r"^\<a\>$", "<a>", True),
        ("(?U)^a+$", "aa", True),
        (r"^\x{1F600}$", "\U0001f600", True),
        (r"^\p{^L}$", "a", False),
        (r"^[\p{^L}]$", "1", True),
        (r"^[\<\>]$", "<", True),
    ],
)
def test_patterns_find_what_servers_find(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@pytest.mark.parametrize("pattern", READ)
def test_what_servers_read_can_be_asked(pattern: str) -> None:
    assert matches(pattern, "a") in (True, False)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(.*)*(.*)*(.*)*x"])
def test_no_text_makes_a_pattern_take_long(pattern: str) -> None:
    assert not matches(pattern, "a" * 100_000 + "b")  # an engine that tries again would not come back


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\d+", "a12b3٣", ["12", "3"]),
        ("[[:alpha:]]+", "ab1c", ["ab", "c"]),
        ("a$", "a\n", []),
        (r"\x{41}(?P<n>b)|(?P<n>c)", "Abc", ["Ab", "c"]),
        (r"[\x{41}-\x{43}&&+--]+", "ABxC&,", ["AB", "C&,"]),
        ("(|a)*", "aa", ["", "", ""]),
        ("(|a)+", "aa", ["", "", ""]),
        ("a*?", "aa", ["", "", ""]),
        ("[0-9]*", "a1b22", ["", "1", "22"]),
        (r"\p{L}+", "été 1", ["été"]),
        (r"[^\p{Lu}\s]+", "aÉ b", ["a", "b"]),
        ("(?i)é|[à-ü]{2}", "ÉÀÜ", ["É", "ÀÜ"]),
        ("(?i)[^é]", "Éa", ["a"]),
        (r"(?i)\w+", "aBé", ["aB"]),
        (r"\Q.{\E}", "a.{}", [".{}"]),
        (r"[\[&&\]]+", "[&]a", ["[&]"]),
        ("(?:a|bc){2,3}?", "abcabc", ["abc", "abc"]),
    ],
)
def test_texts_that_match(pattern: str, text: str, expected: list[str]) -> None:
    assert list(found(pattern, text)) == expected


@pytest.mark.parametrize("pattern", ["(a+)+$|b", "(a|a)*b", "(a|aa)+b", "(.*)*(.*)*b"])
def test_no_text_makes_a_search_take_long(pattern: str) -> None:
    assert list(found(pattern, "a" * 2_000 + "b")) in (["b"], ["a" * 2_000 + "b"])


PIECES = (
    "a",
    "b",
    ".",
    "[ab]",
    "[^a]",
    "(a|b)",
    "(?:ab|a)",
    "^",
    "$",
    r"\b",
    r"\w",
    "(a*)",
    "(?i:B)",
    "(|a)",
)
TIMES = ("", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?", "{1,}")


@given(
    st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(TIMES)), min_size=1, max_size=4),
    st.text("abB\n", max_size=8),
)
def test_texts_are_found_as_by_an_engine_that_tries_again(parts: list[tuple[str, str]], text: str) -> None:
    pattern = "".join(piece if piece in ("^", "$", r"\b") else piece + times for piece, times in parts)
    first = re.search(pattern.replace("$", r"\Z"), text)
    assert next(found(pattern, text), None) == (first and first[0])


@pytest.mark.parametrize("ask", [matches, found])
def test_a_pattern_that_cannot_be_read_is_a_value_error(ask: Callable[[str, str], object]) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        ask("(?=a)(", "a")
