"""Some stories of `make dropin`, with scripts that import no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.story
def test_quick_stories_have_no_difference_that_the_docs_do_not_explain() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.dropin", "--quick"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
