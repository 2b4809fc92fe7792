"""Commands of elasticjob in this process: what a user types, and what is answered."""

from __future__ import annotations

from typing import Any

import typer.main
from typer.testing import CliRunner, Result

from elasticjob.cli.main import application
from tests.kit.logs import restored


def invoke(*words: object, given: str | None = None) -> Result:
    """Run a command, `given` on its stdin."""
    line = [*map(str, words)]
    with restored():
        return CliRunner().invoke(application(line), line, input=given)


def click_command(name: str) -> Any:
    """Return a command as click has it, with its parameters and its parser."""
    group: Any = typer.main.get_command(application([name]))
    return group.commands[name]
