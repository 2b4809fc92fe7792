"""What the suite itself promises."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from lab.dropin.compare import ORACLE as TORCHRUN
from lab.incumbents.compare import Difference, differences, explanation, missing_rows
from lab.incumbents.oracle import INCUMBENT, OURS, Explained, Oracle, Play
from lab.incumbents.oracles import ORACLES
from lab.paths import DOCS


@pytest.mark.parametrize("oracle", [*ORACLES, TORCHRUN], ids=lambda oracle: oracle.name)
def test_stories_have_names_of_their_own_and_each_explanation_has_a_row(oracle: Oracle) -> None:
    assert len({*oracle.stories}) == len(oracle.stories)
    assert [*missing_rows(oracle), *oracle.gaps()] == []


def test_what_differs_is_told_unless_it_is_masked_and_explained_by_its_row() -> None:
    one = Explained("evicted*", "end", "a row that no page has", "none")
    oracle = Oracle("none", DOCS / "kueue.md", ("evicted",), no_stage, (one,), (("when*", "the clock's"),))
    seen = {
        INCUMBENT: {"pods": 2, "end": "Failed", "when": 1, "x": [1]},
        OURS: {"pods": 3, "end": "none", "x": [1]},
    }
    pods, end = differences(oracle, "evicted", seen)
    assert pods == Difference("evicted", "pods", {INCUMBENT: 2, OURS: 3})
    assert [explanation(oracle, each) for each in (pods, end)] == [None, one]
    assert explanation(replace(oracle, explained=[replace(one, ours="Failed")]), end) is None
    assert [*missing_rows(oracle)] == ["no row of kueue.md has 'a row that no page has'"]


def no_stage(folder: Path, stories: Sequence[str]) -> AbstractAsyncContextManager[Play]:
    raise AssertionError(f"{stories} are not played")
