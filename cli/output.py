"""The one door of commands to the terminal, and the option `--output` that they share."""

from __future__ import annotations

import sys
from enum import StrEnum

import typer

from elasticjob.api.escapes import as_text


class Output(StrEnum):
    """Output for people, or for programs."""

    TEXT = "text"
    JSON = "json"


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print a text for people."""
    typer.echo(as_text(str(text)), err=err, nl=nl)


def hand_over(text: str, *, nl: bool = True) -> None:
    """Print what programs read, as it is unless a person looks at it."""
    typer.echo(as_text(text) if sys.stdout.isatty() else text, nl=nl)
