"""Executes the `console` blocks of a Markdown page and compares their output with the page.

    ```console
    $ kubectl get elasticjobs
    NAME     PHASE     …
    digits   Running   …
    ```

Everything behind `$ ` is a command for bash (a line that ends with a backslash goes on in the next one); what
follows is its output. `…` stands for any text within a line, a line that is only `…` for any number of lines,
and spaces in a row for any number of spaces. `$ command  # exits N` expects that exit code instead of 0.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lab import processes

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXITS = re.compile(r"\s+# exits (\d+)$")
ANY = "…"
SLOWEST = 960.0
"""Seconds that a command may take: the longest wait of a page and some."""

LOOK = "kubectl get elasticjobs,jobresources,scaleplans,pods,events --all-namespaces --output wide"
"""A look at the cluster, which shows why a command of a page did not end as it should."""


@dataclass(frozen=True)
class Command:
    """One command of a page: its line, the output that the page shows, the exit code that it promises."""

    line: int
    command: str
    output: tuple[str, ...]
    exits: int = 0


async def follow(
    page: Path,
    folder: Path,
    environment: Mapping[str, str],
    before: Callable[[Command], object] = lambda command: None,
) -> None:
    """Run all commands of a page in `folder`, each after `before` was told of it.

    AssertionError for the first that does not do what the page shows.
    """
    for command in of_page(page):
        before(command)
        code, printed = await run(command, folder, environment)
        place = f"{page.name}, line {command.line}: $ {command.command}"
        if code != command.exits:
            _, cluster = await run(replace(command, command=LOOK), folder, environment)
            raise AssertionError(f"{place}\nexited with {code}:\n{printed}\nThe cluster then:\n{cluster}")
        shown = "\n".join(command.output)
        assert matches(command.output, printed), f"{place}\nprinted:\n{printed}\nbut the page shows:\n{shown}"


async def run(command: Command, folder: Path, environment: Mapping[str, str]) -> tuple[int | None, str]:
    """Run one command of a page; return its exit code and all that it printed."""
    async with asyncio.timeout(SLOWEST):
        return await processes.run("bash", "-c", command.command, environ=environment, cwd=folder)


def of_page(page: Path) -> list[Command]:
    """Return the commands of a page."""
    return [*commands(page.read_text())]


def commands(page: str) -> Iterator[Command]:
    """Yield the commands of all console blocks, in order. ValueError for a block without a command."""
    for block in BLOCK.finditer(page):
        first = page.count("\n", 0, block.start(1)) + 1
        yield from _commands(block.group(1).splitlines(), first)


def _commands(lines: list[str], first: int) -> Iterator[Command]:
    if not lines or not lines[0].startswith("$ "):
        raise ValueError(f"line {first}: a console block begins with a command: '$ …'")
    starts = [place for place, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield _command(lines[start:end], first + start)


def _command(lines: list[str], line: int) -> Command:
    length = next(count for count, text in enumerate(lines, 1) if not text.endswith("\\"))
    text = "\n".join(lines[:length]).removeprefix("$ ")
    exits = EXITS.search(text)
    return Command(line, EXITS.sub("", text), tuple(lines[length:]), int(exits.group(1)) if exits else 0)


def matches(expected: tuple[str, ...], printed: str) -> bool:
    """Whether `printed` matches the page."""
    return (
        re.fullmatch(pattern(expected), "".join(f"{line.rstrip()}\n" for line in printed.splitlines()))
        is not None
    )


def pattern(expected: tuple[str, ...]) -> str:
    """Return the regular expression of an output with `…` in it."""
    return "".join(r"(?:.*\n)*?" if line.strip() == ANY else _line(line) for line in expected)


def _line(line: str) -> str:
    parts = re.split(r"(…|\s+)", line.rstrip())
    return (
        "".join({ANY: ".*?"}.get(part) or (r"\s+" if part.isspace() else re.escape(part)) for part in parts)
        + r"\n"
    )
