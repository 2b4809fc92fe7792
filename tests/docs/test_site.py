"""The docs site: it builds without a warning, loads nothing from elsewhere, and leads to each page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from elasticjob import __version__
from lab.waiting import PATIENCE

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
LOADED: Final = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(https?:[^\"]+)|<link\b[^>]*href=\"(https?:[^\"]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "not included in the" not in done.stderr, f"name them in docs/README.md: {done.stderr}"
    return folder


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) > len([*DOCS.rglob("*.md")])
    assert [
        (page.name, LOADED.findall(page.read_text())) for page in pages if LOADED.search(page.read_text())
    ] == []


def test_a_page_has_the_mark_and_the_version_and_finds_words_without_a_server(site: Path) -> None:
    page = (site / "runbooks" / "ElasticJobHangs.html").read_text()
    assert f"<title>ElasticJobHangs - elasticjob {__version__}</title>" in page
    assert page.count('src="../images/mark.svg"') == 2
    mark = ROOT / "page" / "static" / "mark.svg"
    assert (site / "images" / "mark.svg").read_bytes() == mark.read_bytes()
    assert "var __index = {" in (site / "search" / "search_index.js").read_text()[:20]
    assert 'src="../javascripts/iframe-worker.js"' in page


def test_every_picture_of_the_docs_is_shown_by_a_page() -> None:
    shown = "".join(page.read_text() for page in (*DOCS.rglob("*.md"), ROOT / "README.md"))
    assert [
        picture.name for picture in (DOCS / "images").iterdir() if f"images/{picture.name}" not in shown
    ] == []
