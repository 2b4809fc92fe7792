"""Some stories of `make dropin`, with scripts that import no torch; and how ranks are compared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab.dropin.compare import ORACLE
from lab.incumbents.compare import differences, explanation


@pytest.mark.story
def test_quick_stories_have_no_difference_that_the_docs_do_not_explain() -> None:
    command = [sys.executable, "-m", "lab.dropin", "--quick"]
    told = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
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
    name = ORACLE.stories[0]
    found = differences(ORACLE, name, {"torchrun": {**torchrun}, "ours": {**ours}})
    assert [(each.key, each.where, explanation(ORACLE, each) is None) for each in found] == [
        ("code", "", False),
        ("cwd", "0.0, 1.0", True),
    ]
    assert [
        *differences(ORACLE, name, {"python": {**ours}, "torchrun": {**torchrun}, "ours": {**ours}})
    ] == []
