"""Hooks of mkdocs: the list of pages as navigation, files that pages link to as pages, diagrams as pictures.

A page of `docs/` links to a script, a manifest or a page beside `docs/` as it does on a code host. On the
site, which stands alone, each such file becomes a page below `repository/`.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import mmdr
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from elasticjob import __version__

ROOT: Final = Path(__file__).parent.parent
LINK: Final = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
FENCE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".md": "markdown", ".toml": "toml"}
SECTION: Final = re.compile(r"^\*\*([^*\n]+)\*\*$", re.MULTILINE)
ENTRY: Final = re.compile(r"^- \[[^\]]+\]\(([^)]+)\)", re.MULTILINE)
TITLES: Final = {"api": "Kinds and their fields", "design": "Design notes"}
MERMAID: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OWN: Final = re.compile(r"(id=\"|#)merman")
"""Names within a picture, which must differ between the pictures of a page."""
BESIDE: Final = "repository"
"""The folder of the site in which files from outside of `docs/` are."""
MARK: Final = ROOT / "page" / "static" / "mark.svg"
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Say the version and the repository, and navigate as docs/README.md does: a tab for each bold line."""
    config.site_name = f"elasticjob {__version__}"
    config.copyright = f"{config.site_name} · {PROJECT['license']}"
    config.repo_url = PROJECT.get("urls", {}).get("Repository")
    config.nav = [{"Home": "README.md"}, *navigation(Path(config.docs_dir))]
    return config


def navigation(docs: Path) -> list[dict[str, list[Any]]]:
    """Return the pages by the headings of docs/README.md; a folder stands for all of its pages."""
    text = (docs / "README.md").read_text()
    parts = SECTION.split(text)[1:]
    return [
        {title: [entry for name in ENTRY.findall(lines) for entry in _entries(name, docs)]}
        for title, lines in zip(parts[::2], parts[1::2], strict=True)
    ]


def _entries(name: str, docs: Path) -> Iterator[Any]:
    if not (folder := docs / name).is_dir():
        yield place_of(Path(posixpath.normpath(docs / name)), docs) or name
        return
    pages = [page.relative_to(docs).as_posix() for page in sorted(folder.glob("*.md"))]
    yield {TITLES.get(folder.name, folder.name.capitalize()): pages}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the mark, the files that pages link to, and those that these link to in turn."""
    files.append(File.generated(config, f"images/{MARK.name}", content=MARK.read_bytes()))
    docs = Path(config.docs_dir)
    waiting = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path]
    while waiting:
        page = waiting.pop()
        for target in _targets(page):
            place = place_of(target, docs)
            if place is None or files.get_file_from_path(place) is not None:
                continue
            files.append(
                File.generated(
                    config, place, content=_text(target, docs), inclusion=InclusionLevel.NOT_IN_NAV
                )
            )
            if target.suffix == ".md":
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have the links of a page of `docs/` lead to the pages of such files."""
    if page.file.generated_by:
        return markdown
    docs = Path(config.docs_dir)
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
    elif MERMAID.search(markdown):
        page.meta["hide"] = ["toc"]
    return drawn(relinked(markdown, docs / page.file.src_uri, docs))


def drawn(text: str) -> str:
    """Return a page's text with its diagrams as pictures: no reader's browser loads a program for them."""

    def picture(found: re.Match[str]) -> str:
        svg = OWN.sub(lambda name: f"{name[1]}diagram-{found.start()}", mmdr.render(found[1]).svg())
        return f'<div class="diagram">{" ".join(svg.split())}</div>'

    return MERMAID.sub(picture, text)


def relinked(text: str, page: Path, docs: Path) -> str:
    """Return a page's text with links that are right on the site."""
    here = posixpath.dirname(place_of(page, docs) or page.relative_to(docs).as_posix())

    def link(found: re.Match[str]) -> str:
        target = _resolved(page, found[1])
        place = place_of(target, docs)
        if place is None and not target.is_relative_to(docs):
            return found[0]
        shown = place or target.relative_to(docs).as_posix()
        return posixpath.relpath(shown, here or ".") + (found[2] or "")

    return LINK.sub(link, text)


def place_of(target: Path, docs: Path) -> str | None:
    """Return the page of the site that shows a file of the repository; None for what mkdocs shows itself."""
    if target.is_dir():
        return f"{BESIDE}/{target.relative_to(ROOT).as_posix()}/index.md"
    if not target.is_file() or target.is_relative_to(docs) or not target.is_relative_to(ROOT):
        return None
    name = target.relative_to(ROOT).as_posix()
    return f"{BESIDE}/{name}" if target.suffix in (".md", ".png", ".svg") else f"{BESIDE}/{name}.md"


def _text(target: Path, docs: Path) -> str | bytes:
    if target.is_dir():
        return _listing(target, docs)
    if target.suffix in (".png", ".svg"):
        return target.read_bytes()
    if target.suffix == ".md":
        return relinked(target.read_text(), target, docs)
    name = target.relative_to(ROOT).as_posix()
    return f"# {name}\n\n````{LANGUAGES.get(target.suffix, 'text')}\n{target.read_text()}````\n"


def _listing(folder: Path, docs: Path) -> str:
    """A page with the names of a folder's files."""
    name = folder.relative_to(ROOT).as_posix()
    files = [each for each in sorted(folder.iterdir()) if each.is_file()]
    lines = (_entry(each, docs) for each in files if not each.name.startswith((".", "__")))
    return f"# {name}/\n\n{''.join(lines)}"


def _entry(file: Path, docs: Path) -> str:
    if not file.is_relative_to(docs) or file.suffix != ".md":
        return f"- `{file.name}`\n"
    way = posixpath.relpath(
        file.relative_to(docs).as_posix(), posixpath.dirname(place_of(file.parent, docs) or "")
    )
    title = file.read_text().partition("\n")[0].removeprefix("# ")
    return f"- [{title}]({way})\n"


def _targets(page: Path) -> Iterator[Path]:
    for name, _ in LINK.findall(FENCE.sub("", page.read_text())):
        yield _resolved(page, name)


def _resolved(page: Path, name: str) -> Path:
    return Path(posixpath.normpath(page.parent / name))
