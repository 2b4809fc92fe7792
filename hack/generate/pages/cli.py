"""The reference in docs/cli.md: each command's help, arguments and options, and the exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

import typer
from typer.cli import get_docs_for_click

from elasticjob.cli.errors import Exit
from elasticjob.cli.main import COMMANDS, Row, application
from hack.generate.pages import filled, table

LEFT_OUT: Final = re.compile(
    r"\* `--help`: .*\n|, --\w+_\w+|\*\*Options\*\*:\n\n(?=\* `--help`.*\n\n)"
    r"|\*\*Usage\*\*:\n\n(?:```console\n.* COMMAND \[ARGS\]\.\.\.\n```\n\n)?|(?<=```)console|^\$ ",
    re.MULTILINE,
)
"""What each command has, torchrun's other spelling of each option, and headlines of one line."""


def cli_docs(page: Path) -> str:
    """Return the text of the page with its tables as the commands are now."""
    codes = table(("code", "meaning"), ((str(int(code)), code.meaning) for code in Exit))
    return filled(page, {"commands": "\n".join(_commands()), "exit codes": codes})


def _commands() -> Iterator[str]:
    for panel, rows in groupby(COMMANDS, lambda row: row.panel):
        yield f"## {panel}\n"
        yield from map(_command, rows)


def _command(row: Row) -> str:
    root = typer.main.get_group(application([row.name]))
    context = typer.Context(root.commands[row.name], info_name=row.name)
    docs = get_docs_for_click(
        obj=context.command, ctx=context, indent=2, name=row.name, call_prefix="elasticjob"
    )
    return re.sub(r"\n{3,}", "\n\n", LEFT_OUT.sub("", _code(docs)).strip() + "\n")


def _code(docs: str) -> str:
    """Return a text with commands, which are bold on a terminal, as code."""
    return re.sub(r"\[bold\](.*?)\[/(?:bold)?\]", r"`\1`", docs, flags=re.DOTALL).replace("\b", "")
