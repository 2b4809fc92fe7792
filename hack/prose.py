"""Wrap the prose of pages at 110 characters: `python -m hack.prose` (make fix), or with files that are meant.

Only a paragraph or list item with a longer line is wrapped anew. Front matter, tables, code, HTML, headings,
admonitions, lines with a hard break, and what `make generate` writes stay as they are. No link, code or tag
is broken, and no line begins with what Markdown would take for more than a word.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

WIDTH: Final = 110
OTHERS: Final = ("docs/design/", "CHANGELOG.md")
GENERATED: Final = "<!-- Made by `make generate`"
FENCE: Final = re.compile(r"\s*(```+|~~~+)")
ITEM: Final = re.compile(r"(\s*)([-*+]|\d+[.)])(\s+)(?=\S)")
NO_PROSE: Final = re.compile(
    r"\s*(#|\||>|<[!/a-zA-Z]|!!!|\?\?\?|===|\[[^\]]+\]:|\*\[|[-=*_]{3,}\s*$)|.*(\\|  )$"
)
NO_BEGINNING: Final = re.compile(
    r"([-+*>|:]|#+|=+|-+|\d+[.)])$|[#>|<~`]{3,}|[|#>]|!!!|\?\?\?|</?[a-z]+[ >]|\[[^\]]+\]:"
)
ATOM: Final = re.compile(
    r"(?:(?P<code>`+)(?!`).+?(?<!`)(?P=code)(?!`)|!?\[(?:[^][]|\[[^]]*\])*\](?:\([^)]*\)|\[[^]]*\])?(?:\{[^}]*\})?"
    r"|<[^>]+>|\\.|\S)+"
)


def pages() -> list[Path]:
    """Return the pages whose prose is wrapped."""
    names = subprocess.run(
        ["git", "ls-files", "*.md"], capture_output=True, text=True, check=True
    ).stdout.split()
    return [Path(name) for name in names if not name.startswith(OTHERS)]


def wrap(text: str) -> str:
    """Return a page with its long paragraphs wrapped."""
    if GENERATED in text[:1000]:
        return text
    return "\n".join(
        line for prose, block in blocks(text.split("\n")) for line in (fill(block) if prose else block)
    )


def blocks(lines: list[str]) -> Iterator[tuple[bool, list[str]]]:
    """Yield the lines in groups, and whether a group is prose: a paragraph or a list item, else one line."""
    paragraph: list[str] = []
    until: re.Pattern[str] | None = re.compile(r"---$") if lines[0] == "---" else None
    in_list = False
    for number, line in enumerate(lines):
        item = ITEM.match(line)
        indent = len(line) - len(line.lstrip())
        verbatim = until or NO_PROSE.match(line) or FENCE.match(line) or not line.strip()
        if not verbatim and not paragraph and indent >= 4 and not (in_list and item):
            verbatim = True  # code, or the inside of an admonition
        if paragraph and (verbatim or item):
            yield True, paragraph
            paragraph = []
        if not verbatim:
            paragraph.append(line)
            in_list = bool(item) or (in_list and (len(paragraph) > 1 or indent > 0))
            continue
        yield False, [line]
        if until:
            until = None if number and until.match(line) else until
        elif fence := FENCE.match(line):
            until = re.compile(rf"\s*{fence[1]}\s*$")
        elif re.match(r"<!-- (?!end)[\w: ]+ -->$", line):
            until = re.compile("<!-- end -->$")
        elif line.lstrip().startswith("<!--") and "-->" not in line:
            until = re.compile(".*-->")
    if paragraph:
        yield True, paragraph


def fill(block: list[str]) -> list[str]:
    """Return the lines of a block, wrapped if one is too long."""
    if all(len(line) <= WIDTH for line in block):
        return block
    item = ITEM.match(block[0])
    head = item[0] if item else block[0][: len(block[0]) - len(block[0].lstrip())]
    rest = " " * len(head)
    lines, line = [], head
    for word in words(" ".join(block)[len(head) :]):
        if line in (head, rest):
            line += word
        elif len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = rest + word
        else:
            line += f" {word}"
    return [*lines, line]


def words(text: str) -> list[str]:
    """Return what may begin a line: words, links and the like, with what must not begin one."""
    found: list[str] = []
    for each in ATOM.finditer(text):
        if found and NO_BEGINNING.match(each[0]):
            found[-1] += f" {each[0]}"
        else:
            found.append(each[0])
    return found


def main(files: list[Path]) -> None:
    """Wrap the files that need it."""
    for path in files or pages():
        before = path.read_text()
        if (after := wrap(before)) != before:
            path.write_text(after)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
