"""README.md: its commands are commands that work, its picture is one that every viewer shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.kit.console import of_page

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
PERFORMANCE: Final = (ROOT / "docs" / "performance.md").read_text()
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED: Final = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PNG: Final = b"\x89PNG\r\n\x1a\n"
RUN: Final = {
    command.command.partition("  #")[0]
    for name in ("walkthrough.md", "install.md")
    for command in of_page(ROOT / "docs" / name)
}
"""The commands that other tests run, with their output."""


def typed() -> list[str]:
    """Return the commands of the README, without comments: the blocks that name no language."""
    lines = [line for language, block in FENCED if not language for line in block.splitlines()]
    return [line.partition("  #")[0].rstrip() for line in lines if line]


@pytest.mark.parametrize("command", [each for each in typed() if each.startswith("kubectl ")])
def test_each_kubectl_command_is_one_that_is_run_elsewhere(command: str) -> None:
    assert command in RUN


@pytest.mark.parametrize("command", [each for each in typed() if not each.startswith("kubectl ")])
def test_every_other_command_is_there(command: str) -> None:
    program, *words = command.split()
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    if program == "make":
        assert words[0] in targets
    else:
        assert program == ".venv/bin/elasticjob" or (ROOT / program).is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_wait_ends_after_the_30_seconds_that_kubectl_waits_unless_told(page: Path) -> None:
    waits = re.findall(r"kubectl (?:-n \S+ )?wait (?:\\\n|[^\n])*", page.read_text())
    assert [wait for wait in waits if "--for" in wait and "--timeout" not in wait] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_an_upgrade_knows_the_values_that_are_new(page: Path) -> None:
    """With --reuse-values a chart has the defaults of the one before, and lacks values that came since."""
    upgrades = re.findall(r"helm upgrade (?:\\\n|[^\n])*", page.read_text())
    assert [each for each in upgrades if "--reuse-values" in each] == []


def test_every_viewer_shows_the_picture() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    assert pictures
    assert [name for name in pictures if not (ROOT / name).read_bytes().startswith(PNG)] == []


@pytest.mark.parametrize("page", [README, PERFORMANCE], ids=["README.md", "performance.md"])
def test_figures_say_on_how_many_cores_they_were_taken(page: str) -> None:
    paragraphs = [
        text for text in page.split("\n\n") if re.search(r"`make bench-(training|kube|scale)`", text)
    ]
    assert len(paragraphs) == 3
    assert [text for text in paragraphs if "2 cores" not in " ".join(text.split())] == []
