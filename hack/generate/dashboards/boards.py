"""The files of config/grafana: each dashboard as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from hack.generate.dashboards import brain, fleet, job, operator
from hack.generate.dashboards.panels import Board
from lab.paths import ROOT

FOLDER: Final = ROOT / "config" / "grafana"
BOARDS: Final = (fleet.BOARD, job.BOARD, operator.BOARD, brain.BOARD)


def outputs() -> Mapping[Path, Callable[[], str]]:
    """Return the dashboards' files: path → content."""
    return {FOLDER / f"{board.name}.json": partial(text, board) for board in BOARDS}


def text(board: Board) -> str:
    """Return a dashboard as JSON, always the same."""
    return JSONEncoder(sort_keys=True, indent=1, ensure_ascii=False).encode(board.build()) + "\n"
