"""A dashboard as a page of its own, drawn from the same queries: for pictures where there is no Grafana."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from math import isfinite, nan
from typing import Any, Final, Protocol

from hack.dashboards.boards import FOLDER, filled

HEIGHT, HEAD = 28, 70
"""Pixels of a row of the grid, as the page has them, and of what is around."""
POINTS: Final = 180
"""Of each line."""
LABEL: Final = re.compile(r"{{\s*(\w+)\s*}}")
Json = Mapping[str, Any]


class Server(Protocol):
    """Answers PromQL, as Prometheus does."""

    async def query(self, expr: str) -> list[Json]: ...
    async def course(self, expr: str, start: float, end: float, step: float) -> list[Json]: ...


@dataclass(frozen=True)
class Span:
    """The time that is shown, in seconds since 1970."""

    start: float
    end: float

    @property
    def step(self) -> float:
        """Seconds from one point to the next."""
        return (self.end - self.start) / POINTS

    def aligned(self, values: Sequence[tuple[float, str]]) -> list[float | None]:
        """Return one value for each point, None where there is none."""
        known = {round((at - self.start) / self.step): float(value) for at, value in values}
        return [known[number] if isfinite(known.get(number, nan)) else None for number in range(POINTS)]


def height(name: str) -> int:
    """Return the height of a dashboard's page, in pixels."""
    places = [each["gridPos"] for each in json.loads((FOLDER / f"{name}.json").read_text())["panels"]]
    return HEAD + HEIGHT * max(int(place["y"]) + int(place["h"]) for place in places)


async def page(name: str, server: Server, variables: Mapping[str, str], span: Span) -> str:
    """Return the HTML of a dashboard, with its variables at these values."""
    board = json.loads((FOLDER / f"{name}.json").read_text())
    drawn = [await _panel(panel, server, variables, span) for panel in board["panels"]]
    shown = {
        "title": board["title"] + "".join(f"  ·  {value}" for value in variables.values() if value != ".*"),
        "about": board["description"],
        "times": [span.start + number * span.step for number in range(POINTS)],
        "panels": drawn,
    }
    text = resources.files(__package__).joinpath("picture.html").read_text()
    charts = resources.files("elasticjob.page").joinpath("static")
    parts = {
        "/*uplot.css*/": charts.joinpath("uPlot.min.css").read_text(),
        "/*uplot.js*/": charts.joinpath("uPlot.iife.min.js").read_text(),
        "/*data*/": json.dumps(shown).replace("<", "\\u003c"),
    }
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return text


async def _panel(panel: Json, server: Server, variables: Mapping[str, str], span: Span) -> dict[str, Any]:
    about = {"kind": panel["type"], "title": panel["title"], "place": panel["gridPos"]}
    if panel["type"] == "row":
        return about
    targets = [(filled(each["expr"], variables), each["legendFormat"]) for each in panel["targets"]]
    if panel["type"] == "table":
        return about | await _table(panel, server, targets)
    defaults = panel["fieldConfig"]["defaults"]
    series = [
        {"name": _named(legend, found["metric"]), "values": span.aligned(found["values"])}
        for expr, legend in targets
        for found in await server.course(expr, span.start, span.end, span.step)
    ]
    stacking = defaults.get("custom", {}).get("stacking", {}).get("mode")
    return about | {
        "unit": defaults["unit"],
        "series": series,
        "stacked": stacking == "normal",
        "signed": panel["type"] == "timeseries" and "min" not in defaults,
        "steps": defaults.get("thresholds", {}).get("steps", []),
    }


async def _table(panel: Json, server: Server, targets: Sequence[tuple[str, str]]) -> dict[str, Any]:
    units = {
        each["matcher"]["options"]: each["properties"][0]["value"]
        for each in panel["fieldConfig"]["overrides"]
        if each["properties"][0]["id"] == "unit"
    }
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for expr, name in targets:
        for found in await server.query(expr):
            labels = found["metric"]
            row = rows.setdefault((labels["namespace"], labels["job"]), {})
            row[name] = float(found["value"][1])
    names = [name for _, name in targets]
    return {
        "columns": [
            {"name": "namespace"},
            {"name": "job"},
            *({"name": name, "unit": units[name]} for name in names),
        ],
        "rows": [[*key, *(row.get(name) for name in names)] for key, row in sorted(rows.items())],
    }


def _named(legend: str, labels: Mapping[str, str]) -> str:
    return LABEL.sub(lambda found: labels.get(found[1], ""), legend)
