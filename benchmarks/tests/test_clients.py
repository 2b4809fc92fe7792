"""How late a handler is, from the answer to a write to the first handling of it."""

from __future__ import annotations

import pytest

from benchmarks.clients.framework import lateness
from lab.processes import ProgramFailed


@pytest.mark.parametrize(
    ("started", "late"),
    [
        ([("a", "5", 9.5)], [-0.5]),
        ([("a", "4", 10.1), ("b", "5", 10.2), ("a", "5", 10.3)], [0.3]),
        ([("a", "9", 10.4), ("a", "5", 10.7)], [0.4]),
    ],
    ids=["before the answer", "another version, another object", "a newer version counts"],
)
def test_lateness_is_from_the_answer_to_the_first_handling(
    started: list[tuple[str, str, float]], late: list[float]
) -> None:
    assert lateness([("a", "5", 10.0)], started) == pytest.approx(late)
    with pytest.raises(ProgramFailed, match="version 5 of a was never handled"):
        lateness([("a", "5", 10.0)], [("a", "4", 10.1)])
