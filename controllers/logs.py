"""Log lines of the operator: one per decision that changed something, for people or as JSON."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

import structlog

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


def configure(*, json: bool, verbose: bool) -> None:
    """Send the log of this process to stderr, as one line per entry."""
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
        else [structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
