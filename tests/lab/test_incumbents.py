"""Promises of suites beside an incumbent, and stories of `make dropin` whose scripts import no torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from lab.dropin.compare import ORACLE as TORCHRUN
from lab.incumbents.compare import Difference, differences, explanation, missing_rows
from lab.incumbents.oracle import INCUMBENT, OURS, Explained, Oracle, Play
from lab.incumbents.oracles import ORACLES
from lab.paths import DOCS, ROOT


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


@pytest.mark.story
def test_quick_stories_have_no_difference_that_the_docs_do_not_explain() -> None:
    command = [sys.executable, "-m", "lab.dropin", "--quick"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def test_differences_are_told_once_for_all_ranks_and_explained_by_their_rows() -> None:
    torchrun = {
        "code": 1,
        "0.0 cwd": "/a",
        "1.0 cwd": "/a",
        "0.0 env DROPIN": "x",
        "err": "W1128 10:00:00.1 x\nab\n",
    }
    ours = {"code": 3, "0.0 cwd": "/b", "1.0 cwd": "/b", "0.0 env DROPIN": "y", "err": "[default0]:ab\n"}
    name = TORCHRUN.stories[0]
    found = differences(TORCHRUN, name, {"torchrun": {**torchrun}, "ours": {**ours}})
    assert [(each.key, each.where, explanation(TORCHRUN, each) is None) for each in found] == [
        ("code", "", False),
        ("cwd", "0.0, 1.0", True),
    ]
    assert [
        *differences(TORCHRUN, name, {"python": {**ours}, "torchrun": {**torchrun}, "ours": {**ours}})
    ] == []
