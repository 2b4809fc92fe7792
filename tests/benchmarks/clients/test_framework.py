"""What the benchmark of the framework computes."""

from __future__ import annotations

import pytest

from benchmarks.clients.framework import QUICK, ROWS, Size, lateness, sheet
from benchmarks.programs import ProgramFailed


@pytest.mark.parametrize(
    ("started", "late"),
    [
        ([("a", "5", 10.5)], [0.5]),
        ([("a", "5", 9.5)], [-0.5]),
        ([("a", "4", 10.1), ("b", "5", 10.2), ("a", "5", 10.3)], [0.3]),
        ([("a", "9", 10.4), ("a", "5", 10.7)], [0.4]),
    ],
    ids=["after", "before the answer", "another version, another object", "a newer version counts"],
)
def test_lateness_is_from_the_answer_to_the_first_handling(
    started: list[tuple[str, str, float]], late: list[float]
) -> None:
    assert lateness([("a", "5", 10.0)], started) == pytest.approx(late)


def test_a_change_that_was_never_handled_is_no_figure() -> None:
    with pytest.raises(ProgramFailed, match="version 5 of a was never handled"):
        lateness([("a", "5", 10.0)], [("a", "4", 10.1)])


def test_the_table_has_a_row_per_figure_and_a_column_per_peer() -> None:
    found = sheet({"events/s": {"aiohttp": [5.0]}}, ["kubernetes_asyncio", "aiohttp"])
    assert [head.partition(" ")[0] for head in found.heads] == ["", "kubernetes_asyncio", "aiohttp"]
    assert found.rows == [["events/s", "–", "5.00"]]


def test_quick_is_small_in_every_way() -> None:
    assert all(
        getattr(QUICK, name) <= getattr(Size(), name) for name in ("pods", "rounds", "maps", "seconds")
    )
    assert list(ROWS) == ["cache", "watch", "replay", "reconcile", "start", "operator"]
