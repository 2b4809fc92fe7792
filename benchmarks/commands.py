"""The command line of a benchmark: its flags are the parameters of a function."""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import wraps
from typing import Any

from typer import BadParameter, Typer

from benchmarks.figures import made_by
from elasticjob.api.logs import configure
from lab.clusters.binaries import Missing
from lab.processes import end_on_sigterm


def play(*benchmarks: Callable[..., Coroutine[Any, Any, None] | None]) -> None:
    """Run one of these functions, or coroutines, which the command line names where there are several.

    What it prints ends with the machine, the seconds and the command, also after an error. What it started
    ends with it, also after SIGTERM and ^C.
    """
    end_on_sigterm()
    configure(quiet=True)
    app = Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    for benchmark in benchmarks:
        about = inspect.getdoc(benchmark if len(benchmarks) > 1 else inspect.getmodule(benchmark)) or ""
        app.command(help="\b\n" + about.replace("\n\n", "\n\n\b\n"))(_signed(benchmark))
    app()


def chosen(words: str, known: Collection[str]) -> list[str]:
    """Return the words of a comma-separated list, for an empty one all. Raises BadParameter for others."""
    return some([word for word in words.split(",") if word], known)


def some(words: Sequence[str] | None, known: Collection[str]) -> list[str]:
    """Return these words, for none all. Raises BadParameter for others than are known."""
    if unknown := [word for word in words or () if word not in known]:
        raise BadParameter(f"{unknown[0]!r} is none of: {', '.join(known)}")
    return [*(words or known)]


def numbers(words: str, between: str = ",") -> list[int]:
    """Return the numbers of a list. Raises BadParameter for others than are at least 1."""
    for word in words.split(between):
        if not word.isdecimal() or not int(word):
            raise BadParameter(f"{word!r} of {words!r} is no number from 1 on")
    return [int(word) for word in words.split(between)]


def _signed(benchmark: Callable[..., Coroutine[Any, Any, None] | None]) -> Callable[..., None]:
    @wraps(benchmark)
    def run(**flags: object) -> None:
        began = time.monotonic()
        try:
            if running := benchmark(**flags):
                asyncio.run(running)
        except Missing as error:
            sys.exit(f"error: {error}")
        finally:
            if not isinstance(sys.exception(), BadParameter):
                print(made_by(began), flush=True)

    return run
