"""What Go's engine says of a pattern that it does not take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.devcluster.server.regexps import go_problem
from elasticjob.kube.re2 import re2_problem


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("^a+(b|c){2,3}?$", ""),
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("(|*)", "missing argument to repetition operator: `*`"),
        ("[a", "missing closing ]: `[a`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("(" * 3000 + ")" * 3000, f"expression nests too deeply: `{'(' * 3000 + ')' * 3000}`"),
    ],
)
def test_a_pattern_is_refused_in_the_words_of_go(pattern: str, problem: str) -> None:
    assert go_problem(pattern) == problem


@given(st.text(alphabet="ab(){}[]*+?|^$\\.-:=!<>Pd1,", max_size=12))
def test_something_is_said_of_each_pattern_that_is_refused(pattern: str) -> None:
    assert bool(go_problem(pattern)) == (re2_problem(pattern) is not None)
