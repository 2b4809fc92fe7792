"""The reference in docs/cli.md: each command's help, arguments and options, and the exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import typer

from elasticjob.cli.errors import Exit
from elasticjob.cli.main import COMMANDS, Row, application

MARK: Final = re.compile(r"<!-- (commands|exit codes) -->\n.*?<!-- end -->", re.DOTALL)
HIDDEN: Final = frozenset({"help", "install_completion", "show_completion"})


def cli_docs(page: Path) -> str:
    """Return the text of the page with its tables as the commands are now."""
    made = {"commands": "\n".join(_commands()), "exit codes": "\n".join(_exit_codes())}
    return MARK.sub(lambda found: f"<!-- {found[1]} -->\n{made[found[1]]}\n<!-- end -->", page.read_text())


def _exit_codes() -> Iterator[str]:
    yield "| code | meaning |"
    yield "| --- | --- |"
    for code in Exit:
        yield f"| {int(code)} | {code.meaning} |"


def _commands() -> Iterator[str]:
    for panel, rows in groupby(COMMANDS, lambda row: row.panel):
        yield from (f"## {panel}", "")
        for row in rows:
            yield from _command(row)


def _command(row: Row) -> Iterator[str]:
    root: Any = typer.main.get_command(application([row.name]))
    command = root.commands[row.name]
    yield from (f"### elasticjob {row.name}", "")
    yield from (text(command.help or row.summary), "")
    for name, below in getattr(command, "commands", {}).items():
        yield from (f"#### elasticjob {row.name} {name}", "", text(below.help or ""), "")
        yield from _parameters(below, f"{row.name} {name}")
    if not hasattr(command, "commands"):
        yield from _parameters(command, row.name)


def _parameters(command: Any, name: str) -> Iterator[str]:
    shown = [
        each for each in command.params if not getattr(each, "hidden", False) and each.name not in HIDDEN
    ]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    words = [_argument(each) for each in arguments]
    yield from ("```", " ".join(["elasticjob", name, "[OPTIONS]", *words]), "```", "")
    rows = [
        *(_row(f"`{_argument(each)}`", each) for each in arguments),
        *map(_option, _others(shown, arguments)),
    ]
    if rows:
        yield from ("| argument or option | default | meaning |", "| --- | --- | --- |", *rows, "")


def _others(shown: Iterable[Any], arguments: Iterable[Any]) -> list[Any]:
    taken = {each.name for each in arguments}
    return [each for each in shown if each.name not in taken]


def _argument(each: Any) -> str:
    name = each.name.rstrip("_").upper()
    whole = f"{name}..." if each.nargs == -1 else name
    return whole if each.required else f"[{whole}]"


def _option(each: Any) -> str:
    names = [*each.opts, *each.secondary_opts]
    dashed = [name for name in names if "_" not in name] or names
    return _row(", ".join(f"`{name}`" for name in dashed), each)


def _row(name: str, each: Any) -> str:
    return f"| {name} | {_default(each)} | {cell(text(each.help or ''))} |"


def _default(each: Any) -> str:
    if isinstance(each.show_default, str):
        return cell(each.show_default)
    value = each.default
    if each.required or not each.show_default or value in (None, "", False, ()) or callable(value):
        return ""
    return f"`{getattr(value, 'value', value)}`" if value is not True else "yes"


def text(help_: str) -> str:
    """Return a help text as Markdown: bold words, which are commands, become code."""
    plain = re.sub(r"\[bold\](.*?)\[/(?:bold)?\]", r"`\1`", help_.replace("\b", ""), flags=re.DOTALL)
    return re.sub(r"[ \t]*\n[ \t]*", "\n", plain).strip().replace("\\[", "[")


def cell(words: str) -> str:
    """Return a text as it stands in a cell of a table."""
    return " ".join(words.split()).replace("|", r"\|").replace("<", "&lt;")
