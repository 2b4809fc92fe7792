"""Pages: each link and each path leads to a file that is there, and each anchor to a heading."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FILES: Final = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split()
PAGES: Final = [ROOT / name for name in FILES if name.endswith(".md") and (ROOT / name).exists()]
LINK: Final = re.compile(r"\]\(([^)#\s:]*)(?:#([^)\s]+))?\)")
PATH: Final = re.compile(r"`((?:[a-z0-9_-]+/)+[A-Za-z0-9_-]+\.(?:py|md|yaml))\b")
EXAMPLES: Final = {"api/v1alpha1/thing.py", "brain/algorithms/mine.py", "controllers/parts/frameworks/jax.py"}
"""Files that a page tells its reader to write."""
FOLDERS: Final = {name.partition("/")[0] for name in FILES}


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_of_a_page_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    targets = [((page.parent / name) if name else page, anchor) for name, anchor in LINK.findall(text)]
    dead = [str(target) for target, _ in targets if not target.exists()]
    dead += [f"{target}#{at}" for target, at in targets if at and at not in anchors(target)]
    paths = [name for name in PATH.findall(text) if name.partition("/")[0] in FOLDERS]
    dead += [name for name in paths if not (ROOT / name).exists() and name not in EXAMPLES]
    assert dead == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_each_page_has_one_title_and_a_line_in_the_list_of_pages(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert len(re.findall(r"^# ", prose, re.MULTILINE)) == 1
    assert page.name == "README.md" or f"]({page.name})" in (ROOT / "docs" / "README.md").read_text()
