"""Each link and each path in pages and docstrings leads to a file that is there, each anchor to a heading."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
ALL: Final = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.split()
TRACKED: Final = [name for name in ALL if name.endswith((".md", ".py"))]
PAGES: Final = [name for name in TRACKED if name.endswith(".md")]
LINK: Final = re.compile(r"\]\(([^)#\s:]*)(?:#([^)\s]+))?\)")
FOLDERS: Final = "|".join(sorted({re.escape(name.partition("/")[0]) for name in ALL if "/" in name}))
KINDS: Final = {Path(name).suffix for name in ALL} - {""}
NO_WORDS: Final = re.compile(r"\[`?[\w./-]+\.(?:md|py|ya?ml|toml|json)`?\]\(")
PATH: Final = re.compile(rf"(?<![\w/.@}}-])(?:{FOLDERS})/(?:[\w.-]+/)*[\w.-]*\w/?")
BARE: Final = re.compile(r"`([a-z_0-9]+\.py)\b")
ROOTS: Final = [ROOT, *(ROOT / name for name in ("docs", "kube", "config"))]
EXAMPLES: Final = {"jax.py", "mine.py", "thing.py", "thing"}
"""Files that a page tells its reader to write."""
ELSEWHERE: Final = {"a.yaml", "manifests.yaml", "swagger.json", "commit.txt"}
"""Files of other repositories, and what a build writes."""


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    here = ROOT / page
    links = [(here.parent / name if name else here, at) for name, at in LINK.findall(here.read_text())]
    assert [str(file) for file, _ in links if not file.exists()] == []
    assert [f"{file}#{at}" for file, at in links if at and at not in anchors(file)] == []


def test_a_link_has_words_in_place_of_the_name_of_a_file() -> None:
    found = {page: NO_WORDS.findall((ROOT / page).read_text()) for page in PAGES}
    assert {page: links for page, links in found.items() if links} == {}


def test_paths_in_pages_and_code_are_those_of_files() -> None:
    """In pages also those without a suffix: scripts, and modules without .py."""
    named = {(name, path) for name in TRACKED for path in PATH.findall((ROOT / name).read_text())}
    paths = {(name, path) for name, path in named if is_path(path, in_page=name in PAGES)}
    assert sorted((name, path) for name, path in paths if not is_there(path)) == []


def test_files_that_a_design_names_are_there() -> None:
    """A page that says in its first lines that it is a record may name what is gone."""
    designs = {name: (ROOT / name).read_text() for name in PAGES if name.startswith("docs/design/")}
    named = {(name, file) for name, text in designs.items() for file in BARE.findall(text)}
    files = {Path(name).name for name in TRACKED}
    assert (
        sorted(
            (name, file)
            for name, file in named
            if file not in files and "A record" not in designs[name][:300]
        )
        == []
    )


def test_each_package_is_on_the_map_of_the_readme() -> None:
    packages = [path.name for path in (ROOT / "elasticjob").iterdir() if path.is_symlink()]
    assert [name for name in packages if f"`{name}/`" not in (ROOT / "README.md").read_text()] == []


def is_path(text: str, *, in_page: bool) -> bool:
    """Whether a text is a path and not a label, an image, or a job with its namespace."""
    return (
        text.endswith("/") or Path(text).suffix in KINDS or (in_page and not text.startswith("elasticjob/"))
    )


def is_there(path: str) -> bool:
    """Whether a file is there, in the repository or in one of the folders that pages leave out."""
    name = Path(path).name
    return name in EXAMPLES | ELSEWHERE or any(
        (root / each).exists() for root in ROOTS for each in (path, f"{path}.py")
    )


@pytest.mark.parametrize("page", [name for name in PAGES if re.fullmatch(r"docs/[^/]+", name)])
def test_each_page_has_one_title_and_a_line_in_the_list_of_pages(page: str) -> None:
    prose = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    assert len(re.findall(r"^# ", prose, re.MULTILINE)) == 1
    name = Path(page).name
    assert name == "README.md" or f"]({name})" in (ROOT / "docs" / "README.md").read_text()
