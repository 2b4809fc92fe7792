"""The files of config/grafana: each dashboard as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from hack.dashboards import brain, fleet, job, operator
from hack.dashboards.panels import Board

FOLDER: Final = Path(__file__).parents[2] / "config" / "grafana"
BOARDS: Final = (fleet.BOARD, job.BOARD, operator.BOARD, brain.BOARD)


def outputs() -> Mapping[Path, Callable[[], str]]:
    """Return the dashboards' files: path → content."""
    return {FOLDER / f"{board.name}.json": lambda board=board: text(board) for board in BOARDS}  # type: ignore[misc]


def text(board: Board) -> str:
    """Return a dashboard as JSON, always the same."""
    return JSONEncoder(sort_keys=True, indent=1, ensure_ascii=False).encode(board.build()) + "\n"


def filled(expr: str, variables: Mapping[str, str], interval: str = "15s") -> str:
    """Return an expression with Grafana's variables replaced, $__rate_interval by `interval`."""
    for name, value in {**variables, "__rate_interval": interval}.items():
        expr = expr.replace(f"${name}", value)
    return expr
