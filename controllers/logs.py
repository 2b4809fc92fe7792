"""Log lines of operators: one per decision that changed something, for people or as JSON."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any, Final

import structlog
from structlog.typing import EventDict

from elasticjob.api.escapes import as_line, as_text

QUIET: Final = ("aiohttp.access", "asyncio", "kubernetes_asyncio")
SHOWN: Final = (
    "object",
    "reason",
    "controller",
    "key",
    "kind",
    "error",
    "again_in_seconds",
    "operator",
    "request",
)


def configure(
    *, json: bool = False, verbose: bool = False, quiet: bool = False, file: Path | None = None
) -> None:
    """Send the log of this process to stderr, or to `file`, one line per entry; `quiet`: warnings only."""
    render: Any = (
        structlog.processors.JSONRenderer()
        if json
        else structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.ExtraAdder(allow=SHOWN),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            render,
        ]
        if json
        else [structlog.stdlib.ProcessorFormatter.remove_processors_meta, _on_one_line, render, _escape],
    )
    handler = logging.FileHandler(file) if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _on_one_line(_: Any, __: str, entry: EventDict) -> EventDict:
    """Keep other people's words within their own entry, and their own value."""
    return {name: as_line(value) if isinstance(value, str) else value for name, value in entry.items()}


def _escape(_: Any, __: str, text: Any) -> str:
    """Let no traceback command a terminal."""
    return as_text(text)
