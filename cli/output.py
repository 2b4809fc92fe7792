"""The one door of commands to the terminal, and the option `--output` that they share."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import typer

from elasticjob.api.escapes import as_text
from elasticjob.cli.errors import sentence

API_VERSION: Final = "cli.elastic.iml.github.io/v1"
"""Of the JSON that commands print where it is no object of Kubernetes: fields are added, never changed."""


class Output(StrEnum):
    """Output for people, or for programs."""

    TEXT = "text"
    JSON = "json"


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print a text for people."""
    typer.echo(as_text(str(text)), err=err, nl=nl)


def say_error(error: Exception) -> None:
    """Tell an expected error as one line on stderr."""
    say(f"error: {sentence(error)}", err=True)


def hand_over(text: str, *, nl: bool = True) -> None:
    """Print what programs read, as it is unless a person looks at it."""
    typer.echo(as_text(text) if sys.stdout.isatty() else text, nl=nl)


def hand_over_json(kind: str, fields: Mapping[str, Any]) -> None:
    """Print an answer of a command as JSON: apiVersion, kind such as DoctorReport, and its fields."""
    whole = {"apiVersion": API_VERSION, "kind": kind, **fields}
    hand_over(json.dumps(whole, indent=2, ensure_ascii=False))
