"""Patterns that servers read, and those that they do not: RE2, row by row."""

from __future__ import annotations

import pytest

from elasticjob.kube.client import Client
from elasticjob.kube.re2 import matches, re2_problem
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
    ("pattern", "text", "found"),
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
    ],
)
def test_patterns_find_what_servers_find(pattern: str, text: str, found: bool) -> None:
    assert matches(pattern, text) is found
