"""Runbooks as somebody on call needs them: who acts, a command that names the cause, how to see the end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from lab.paths import ROOT

PAGES: Final = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
DOCTOR: Final = "$ elasticjob doctor JOB -n NAMESPACE"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_runbook_says_who_acts_which_command_is_first_and_when_it_is_over(page: Path) -> None:
    text = page.read_text()
    assert re.search(r"^## Impact\n\n\*\*Who acts\*\*: who (trains|runs)", text, re.MULTILINE)
    assert text.rpartition("\n\n")[2].startswith("**Over when** ")
    about_a_job = "labels `namespace` and `job`" in " ".join(text.split())
    assert not about_a_job or text.partition("```\n")[2].startswith(DOCTOR)
    assert "port-forward" not in text  # it races with the next command
