"""Pages of docs/ with parts from the code: what is between `<!-- name -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

MARK: Final = re.compile(r"(<!-- ([\w: ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: Path, parts: Mapping[str, str]) -> str:
    """Return the text of a page with its marked parts as the code is now."""
    return MARK.sub(lambda found: f"{found[1]}{parts[found[2]]}{found[3]}", page.read_text())


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    rule = tuple("---" for _ in head)
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def cell(text: str) -> str:
    """Return a text as it stands in a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|")
