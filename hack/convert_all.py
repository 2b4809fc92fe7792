"""How `elasticjob convert` does on all manifests of a folder: python hack/convert_all.py [--why] FOLDER...

It reads YAML and JSON files, and the YAML blocks of pages, that have a kind which a system knows. A row is
a system of a folder: documents that came out without a loss, with one, or that were refused (no job can be
made of them, or admission would refuse it). `--why` adds each refusal.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from elasticjob.cli.convert.conversion import Outcome, outcome
from elasticjob.cli.convert.reading import sources
from elasticjob.cli.convert.system import Source
from elasticjob.cli.convert.systems import SYSTEMS
from elasticjob.cli.errors import Failure

ENDINGS: Final = (".yaml", ".yml", ".json", ".md", ".rst")
LARGEST: Final = 1024 * 1024
BLOCK: Final = re.compile(r"^([ \t]*)```[ \t]*(?:ya?ml|json)?[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
NAMES: Final = "|".join(sorted({kind.name for system in SYSTEMS for kind in system.kinds}))
KIND: Final = re.compile(rf"^\s*[\"']?kind[\"']?\s*:\s*[\"']?({NAMES})\b", re.MULTILINE)
UNREADABLE: Final = "(cannot be read)"
COLUMNS: Final = ("converted", "lossy", "refused")


def main(arguments: list[str]) -> None:
    """Print the table, and with --why what was refused."""
    folders = [Path(each) for each in arguments if not each.startswith("--")]
    counts: dict[tuple[str, str], Counter[str]] = {}
    reasons: list[str] = []
    for folder in folders:
        for system, verdict, why in judged(folder):
            counts.setdefault((folder.name, system), Counter())[verdict] += 1
            reasons += [why] if why else []
    for line in table(counts):
        print(line)
    if "--why" in arguments:
        print(*reasons, sep="\n")


def judged(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the system of each document, what became of it, and why it was refused."""
    for place, text in texts(folder):
        try:
            found = sources(place, text)
        except Failure as error:
            yield UNREADABLE, "refused", str(error)
            continue
        for source in found:
            if source.manifest:
                yield from _judged(outcome(source, SYSTEMS))


def _judged(found: Outcome) -> Iterator[tuple[str, str, str]]:
    if not found.system:
        return
    if found.is_refusal:
        why = found.refusal or "; ".join(map(str, found.problems))
        yield found.system, "refused", f"{_place(found.source)} {why}"
    else:
        yield found.system, "lossy" if found.lossy else "converted", ""


def _place(source: Source) -> str:
    return f"{source.file}:{source.first}"


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts of files, and of the blocks of pages, that name a kind; with where they are."""
    for path in sorted(folder.rglob("*")):
        if path.suffix not in ENDINGS or not path.is_file() or path.stat().st_size > LARGEST:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix in (".md", ".rst"):
            for block in BLOCK.finditer(text):
                if KIND.search(block[2]):
                    line = text.count("\n", 0, block.start()) + 1
                    yield f"{path}:{line}", re.sub(f"^{block[1]}", "", block[2], flags=re.MULTILINE)
        elif KIND.search(text):
            yield str(path), text


def table(counts: dict[tuple[str, str], Counter[str]]) -> Iterator[str]:
    """Yield the rows of a Markdown table."""
    yield f"| folder | system | {' | '.join(COLUMNS)} |"
    yield f"| {' | '.join(['---'] * (len(COLUMNS) + 2))} |"
    for (folder, system), found in counts.items():
        yield f"| {folder} | {system} | {' | '.join(str(found[name]) for name in COLUMNS)} |"
    total = sum(counts.values(), Counter())
    yield f"| all | | {' | '.join(str(total[name]) for name in COLUMNS)} |"


if __name__ == "__main__":
    main(sys.argv[1:])
