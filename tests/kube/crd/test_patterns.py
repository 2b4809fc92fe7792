"""Patterns that servers read, and those that they do not: RE2, row by row."""

from __future__ import annotations

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.crd.patterns import find_all, matches, pattern_problem
from tests.kit.crd.posting import answer_to, with_spec

_READ = r"""
^a$ (?P<n>a) (?<n>a) a*? a+? a?? a{2,3}? a{1000} a{,3} a{x} \d\D\s\S\w\W \p{L}+ \pL \P{Greek} \Aab\z
\bfoo\B [\d-] [\w.-] [^]a] []a] [[:alpha:]]+ \x41 \x{1F600} \Q.+\E (?i)abc (?i:abc) (?-i:a) (?ims)a
(?:a|b) \. \- \_ \/ \0 \07 $^ \\1 [(?=] \(?= x{0} (?P<n>a)|(?P<n>b) (?P<1>a) (?s).* (?U)a+ é+
[[.a.]] ((((((((((a)))))))))) a{2 \z? [+--] [a&&b||c~~d] [\<\>] \p{^L}
"""
READ = (*_READ.split(), r"\ ", r"")
_UNREAD = r"""
(?!a)b (?=a)b (?<=a)b (?<!a)b (a)\1 (?P<n>a)(?P=n) (?>a) (?#c)a (?(1)a|b) a++ a*+ a?+ a** a{2}{3}
a{2}+ a{1001} a{3,2} ab\Z [\b] \u0041 \h \K \R \X \G \e \cA \N (?a)a (?u)a (?L)a (a a) [a *a + a|*
[z-a] \8 \é [\Q] ^(?:(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)(?:\.(?!$))?)+$ (?'n'a) (?P>n) (?R) (?&n)
\k<n> \g1 a\C (?|a|b) (a{500}){3} {2} a|{2} (*a) (?i [[:foo:]] [a-\d] \p{Foo} \x4 \x{110000} (?-:a)
"""
UNREAD = (*_UNREAD.split(), r"(?x) a")


def test_what_servers_read_is_taken_and_the_rest_refused() -> None:
    assert {pattern: problem for pattern in READ if (problem := pattern_problem(pattern))} == {}
    assert [pattern for pattern in UNREAD if not pattern_problem(pattern)] == []


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
