"""The page shows what the command really prints, and lists all systems."""

from __future__ import annotations

from pathlib import Path

from elasticjob.cli.convert.conversion import lines
from elasticjob.cli.convert.systems import SYSTEMS
from elasticjob.cli.jobs.options import Format
from elasticjob.cli.jobs.table import dump
from tests.cli.convert.converted import converted
from tests.kit.blocks import ROOT, blocks

PAGE: Path = ROOT / "docs" / "convert.md"


def test_the_example_of_the_page_is_real() -> None:
    given, made, told = [block.text for block in blocks(PAGE) if block.language in ("text", "yaml")]
    found = converted(given, "pytorchjob.yaml")
    assert found.converted is not None
    assert made == dump(found.converted.job, Format.YAML)
    assert told.splitlines() == list(lines([found]))


def test_the_page_lists_all_systems() -> None:
    page = PAGE.read_text()
    assert [system.name for system in SYSTEMS if f"| {system.name} |" not in page] == []
