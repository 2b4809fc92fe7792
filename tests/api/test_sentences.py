"""The first of many parts, and how many more there are."""

import pytest

from elasticjob.api.sentences import few


@pytest.mark.parametrize(
    ("count", "names", "sentences"),
    [
        (0, "", ""),
        (1, "a", "a"),
        (3, "a, b, c", "a; b; c"),
        (4, "a, b, c and 1 more", "a; b; c; and 1 more"),
        (6, "a, b, c and 3 more", "a; b; c; and 3 more"),
    ],
)
def test_three_are_named_and_the_others_counted(count: int, names: str, sentences: str) -> None:
    assert few("abcdef"[:count]) == names
    assert few("abcdef"[:count], separator="; ") == sentences


def test_as_many_are_named_as_the_caller_says() -> None:
    assert few(["a", "b"], most=1) == "a and 1 more"
