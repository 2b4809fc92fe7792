"""The plot of a run as SVG: loss, speed and world size over one time axis, with events marked.

The SVG carries its own style (light and dark), so it works inside the report and alone, in a README.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from itertools import pairwise

from elasticjob.cli.report.scales import Point, Scale, rows, stairs, thin

WIDTH, LEFT, RIGHT = 1080.0, 60.0, 20.0
LABEL_HEIGHT, LETTER, PADDING = 26.0, 6.7, 9.0
GAP, AXIS = 40.0, 34.0
BREAK = 1.0
"""Seconds without a value after which a line is broken."""


@dataclass(frozen=True)
class Event:
    """Something that happened at a time; `mark` selects its colour."""

    at: float
    label: str
    mark: str
    note: str = ""


@dataclass(frozen=True)
class Band:
    """A shaded time range: `still` (no steps) or `pause` (requested by the user)."""

    began: float
    ended: float
    kind: str
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """One series over time; `form` is line, area or stairs; `faint` is drawn below it, thin."""

    title: str
    series: str
    form: str
    points: tuple[Point, ...]
    height: float
    logarithmic: bool = False
    whole: bool = False
    faint: tuple[Point, ...] = ()

    def ticks(self, value: Scale) -> tuple[float, ...]:
        """Return the values that get a line and a number: all of them if they are few integers."""
        if self.whole:
            return tuple(float(tick) for tick in range(int(value.domain[1]) + 1))
        return value.ticks(int(self.height / 40))


@dataclass(frozen=True)
class Figure:
    """The content of one plot; times are seconds since the beginning, or in another `unit`."""

    seconds: float
    panels: tuple[Panel, ...]
    events: tuple[Event, ...] = ()
    bands: tuple[Band, ...] = ()
    unit: str = "s"


def draw(figure: Figure, *, title: str) -> str:
    """Return `figure` as one SVG element with its own style."""
    time = Scale((0.0, figure.seconds), (LEFT, WIDTH - RIGHT))
    placed = place_labels(figure.events, time)
    top = LABEL_HEIGHT * (1 + max((row for _, row in placed), default=0)) + 30
    tops = _tops(figure.panels, top)
    bottom = tops[-1] + figure.panels[-1].height
    parts = [
        *_bands(figure.bands, time, tops[0], bottom),
        *_events(figure.events, placed, time, bottom),
        *(line for y, panel in zip(tops, figure.panels, strict=True) for line in _panel(panel, time, y)),
        *_time_axis(time, bottom, figure.unit),
    ]
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {bottom + AXIS:g}" '
        f'role="img" class="run"'
        f' aria-label="{escape(title)}" data-seconds="{figure.seconds:.3f}" data-left="{LEFT:g}"'
        f' data-right="{WIDTH - RIGHT:g}">\n<title>{escape(title)}</title>\n<style>{style()}</style>\n'
        f'<rect class="paper" width="{WIDTH:g}" height="{bottom + AXIS:g}" rx="8"/>\n{body}\n</svg>'
    )


def place_labels(events: Sequence[Event], time: Scale) -> tuple[tuple[float, int], ...]:
    """Return (left, row) of each event's label: centred on its time, inside the plot, without overlaps."""
    spans = []
    for event in events:
        width = label_width(event.label)
        left = min(max(time(event.at) - width / 2, 4.0), WIDTH - 4.0 - width)
        spans.append((left, left + width))
    return tuple((left, row) for (left, _), row in zip(spans, rows(spans, 6.0), strict=True))


def style() -> str:
    """Return the style of the picture; every rule is under the class `run`."""
    return resources.files(__package__).joinpath("run.css").read_text()


def label_width(label: str) -> float:
    """Return the width of a label with its padding, from the average width of a letter."""
    return len(label) * LETTER + 2 * PADDING


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last `width` values as a row of block characters, the highest as the tallest."""
    blocks = "▁▂▃▄▅▆▇█"
    shown = values[-width:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    spread = (high - low) or 1.0
    return "".join(blocks[round((value - low) / spread * (len(blocks) - 1))] for value in shown)


def _tops(panels: Sequence[Panel], top: float) -> tuple[float, ...]:
    tops = [top]
    for panel in panels[:-1]:
        tops.append(tops[-1] + panel.height + GAP)
    return tuple(tops)


def _panel(panel: Panel, time: Scale, top: float) -> Iterator[str]:
    bottom = top + panel.height
    value = Scale(_domain(panel), (bottom, top), panel.logarithmic)
    yield f'<text class="title" x="{LEFT:g}" y="{top - 10:g}">{escape(panel.title)}</text>'
    for tick in panel.ticks(value):
        y = value(tick)
        yield f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{LEFT - 10:g}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
    if panel.faint:
        yield f'<path class="faint {panel.series}" d="{_path(panel.faint, time, value)}"/>'
    if panel.points:
        yield from _series(panel, time, value, bottom)


def _series(panel: Panel, time: Scale, value: Scale, bottom: float) -> Iterator[str]:
    points = stairs(panel.points) if panel.form == "stairs" else panel.points
    line = _path(points, time, value) if panel.form == "line" else _whole_path(points, time, value)
    if panel.form != "line":
        first, last = time(points[0][0]), time(points[-1][0])
        yield f'<path class="fill {panel.series}" d="{line}L{last:.1f},{bottom:g}L{first:.1f},{bottom:g}Z"/>'
    yield f'<path class="line {panel.series}" d="{line}"/>'


def _domain(panel: Panel) -> tuple[float, float]:
    values = [value for _, value in (*panel.points, *panel.faint)] or [1.0]
    if panel.logarithmic:
        positive = [value for value in values if value > 0] or [1.0]
        return min(positive) * 0.8, max(positive) * 1.25
    return 0.0, max(values) * 1.08 + (0.25 if panel.whole else 0.0)


def _path(points: Sequence[Point], time: Scale, value: Scale) -> str:
    """Return the path of a line, broken at gaps of more than BREAK seconds."""
    kept = thin(points, int(WIDTH))
    begins = [0, *(place for place in range(1, len(kept)) if kept[place][0] - kept[place - 1][0] > BREAK)]
    runs = (kept[begin:end] for begin, end in pairwise([*begins, len(kept)]))
    return "".join(
        "M" + "L".join(f"{time(at):.1f},{value(height):.1f}" for at, height in run) for run in runs
    )


def _whole_path(points: Sequence[Point], time: Scale, value: Scale) -> str:
    return "M" + "L".join(f"{time(at):.1f},{value(height):.1f}" for at, height in thin(points, int(WIDTH)))


def _bands(bands: Sequence[Band], time: Scale, top: float, bottom: float) -> Iterator[str]:
    for band in bands:
        left, right = time(band.began), time(band.ended)
        yield (
            f'<rect class="band {band.kind}" x="{left:.1f}" y="{top:g}" width="{max(1.5, right - left):.1f}"'
            f' height="{bottom - top:g}"><title>{escape(band.note)}</title></rect>'
        )


def _time_axis(time: Scale, bottom: float, unit: str) -> Iterator[str]:
    yield f'<line class="axis" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{bottom:g}" y2="{bottom:g}"/>'
    for tick in time.ticks(10):
        place = f'x="{time(tick):.1f}" y="{bottom + 20:g}" text-anchor="middle"'
        yield f'<text class="tick" {place}>{tick:g} {unit}</text>'


def _events(
    events: Sequence[Event], placed: Sequence[tuple[float, int]], time: Scale, bottom: float
) -> Iterator[str]:
    for event, (left, row) in zip(events, placed, strict=True):
        x, y, width = time(event.at), 8 + row * LABEL_HEIGHT, label_width(event.label)
        middle = f'x="{left + width / 2:.1f}" y="{y + 14:g}" text-anchor="middle"'
        yield (
            f'<g class="event {event.mark}"><title>{escape(event.note or event.label)}</title>'
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y + 20:g}" y2="{bottom:g}"/>'
            f'<rect x="{left:.1f}" y="{y:g}" width="{width:.1f}" height="20" rx="10"/>'
            f"<text {middle}>{escape(event.label)}</text></g>"
        )
