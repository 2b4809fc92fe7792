"""docs/metrics.md: every metric of every program, as the code declares it."""

from __future__ import annotations

from typing import Final

from hack.generate.pages import filled, table
from lab.metrics import PARTS, declared
from lab.paths import ROOT

PAGE: Final = ROOT / "docs" / "metrics.md"


def metrics_docs() -> str:
    """Return the text of the page with its tables as the code is now."""
    return filled(PAGE, {f"table: {part}": _table(part) for part in PARTS})


def _table(part: str) -> str:
    rows = (
        (f"`{each.name}`", each.type, each.unit, ", ".join(f"`{label}`" for label in each.labels), each.help)
        for each in declared(part)
    )
    return table(("metric", "type", "unit", "labels", "help"), rows)
