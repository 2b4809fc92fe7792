"""Arguments and options of commands about jobs, and the client that they mean."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Coroutine, Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.jobs.completion import jobs, namespaces
from elasticjob.cli.output import say

if TYPE_CHECKING:
    from elasticjob.client import Client

T = TypeVar("T")

UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

Name = Annotated[str, typer.Argument(help="The name of the job.", autocompletion=jobs, show_default=False)]
Names = Annotated[
    list[str] | None, typer.Argument(help="The names of jobs.", autocompletion=jobs, show_default=False)
]
Selector = Annotated[
    str, typer.Option("--selector", "-l", help="The jobs with these labels: team=vision,stage!=test.")
]
IgnoreNotFound = Annotated[bool, typer.Option("--ignore-not-found", help="A job that is gone is no error.")]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        help="The namespace. Default: that of the kubeconfig's context.",
        autocompletion=namespaces,
        show_default=False,
    ),
]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="The jobs of all namespaces.")]


class Dry(StrEnum):
    """Who looks at a change that is not made."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"

    @property
    def remark(self) -> str:
        """What is said after what would have been done."""
        return {Dry.NONE: "", Dry.CLIENT: " (dry run)", Dry.SERVER: " (server dry run)"}[self]


class Format(StrEnum):
    """How objects are printed."""

    TABLE = "table"
    WIDE = "wide"
    YAML = "yaml"
    JSON = "json"
    NAME = "name"


Timeout = Annotated[
    str, typer.Option(help="How long it waits at most: 90s, 5m or 2h.", show_default="without end")
]
DryRun = Annotated[
    Dry,
    typer.Option("--dry-run", help="Change nothing, and say what would be: server asks the API server, too."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it has happened.")]
Formatted = Annotated[Format, typer.Option("--output", "-o", help="The output format.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on with each change, until Ctrl-C.")]


def client(namespace: str, kubeconfig: Path | None, context: str | None, dry_run: Dry = Dry.NONE) -> Client:
    """Return the client that the options mean, not open yet; it says on stderr that a server is away."""
    from elasticjob.client import Client

    def tell(sentence: str) -> None:
        say(sentence, err=True)

    dry = dry_run is not Dry.NONE
    return Client(namespace, kubeconfig=kubeconfig, context=context, tell=tell, dry_run=dry)


def seconds(text: str, flag: str = "--timeout") -> float | None:
    """Return a duration in seconds; None for "". Raises Failure."""
    if not text:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if found is None:
        raise Failure(f"{flag} {text!r} is no duration", next_step="write 90s, 5m or 2h", code=Exit.USAGE)
    return float(found.group(1)) * UNITS[found.group(2)]


def whole_seconds(text: str, flag: str) -> int | None:
    """Return the same in whole seconds."""
    found = seconds(text, flag)
    return None if found is None else round(found)


def pairs(flag: str, given: Iterable[str], *, from_here: bool = False) -> dict[str, str]:
    """Return NAME=VALUE texts as a mapping; `from_here`: NAME alone means its value here. Raises Failure."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals and from_here and name in os.environ:
            value = os.environ[name]
        elif not (name and equals):
            raise Failure(
                f"{flag} {text} has no value", next_step=f"write {flag} NAME=VALUE", code=Exit.USAGE
            )
        found[name] = value
    return found


def run(verb: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns. Warnings of what carries requests are our errors, told better."""
    loggers = [logging.getLogger(name) for name in ("kubernetes_asyncio", "elasticjob.kube")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        return asyncio.run(verb)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
