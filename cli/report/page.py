"""The report of a run: one self-contained HTML page. Pure: a result in, a string out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from importlib import resources

from elasticjob.cli.report.plot import Band, Event, Figure, Panel, draw
from elasticjob.cli.report.scales import Point, thin
from elasticjob.cli.report.spent import spent
from elasticjob.cli.story.acts import Mark
from elasticjob.cli.story.seen import Message
from elasticjob.cli.story.steps import Standstill, rate, smooth, standstills
from elasticjob.cli.story.timeline import Line, Result

SMOOTHING = 0.04
"""The weight of a new loss in the moving average."""
WINDOW = 0.5
"""Seconds over which the speed is computed."""


@dataclass(frozen=True)
class Setting:
    """The environment of the run: the applied manifest, and versions by name."""

    job: str
    manifest: str
    versions: Mapping[str, str]


def page(result: Result, setting: Setting) -> str:
    """Return the whole page."""
    figure = picture(result)
    title = f"{setting.job}: {outcome(result)}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{asset("page.css")}</style>
</head>
<body>
<main>
<header><h1>{escape(title)}</h1>
<p>{escape(story(result))}</p></header>
<dl class="facts">{"".join(facts(result))}</dl>
<figure class="card" tabindex="0">
{draw(figure, title=title)}
<div id="cursor"></div><div id="readout"></div>
<figcaption>Time since the job was applied.<span class="swatch still"></span>no step was made
<span class="swatch pause"></span>suspended, as asked</figcaption>
</figure>
<h2>What happened, and how long training stood still</h2>
<div class="card scroll" role="region" aria-label="What happened" tabindex="0"><table>
<thead><tr><th class="number">at</th><th>what</th><th>workers</th><th class="number">stood still</th>
<th>what the operator said</th></tr></thead>
<tbody>
{"".join(row(line) for line in result.lines)}</tbody>
</table></div>
<p class="said">Stood still: from the last step before to the first step after, as the workers counted them.
Where there are two numbers, training went on between them with fewer workers.</p>
{spent(result.account)}<h2>What it ran</h2>
<details class="card" open><summary>The job</summary>
<pre tabindex="0">{escape(setting.manifest)}</pre></details>
<details class="card"><summary>Everything the operator said</summary><table><tbody>
{"".join(sentence(message, result.began) for message in result.messages)}</tbody></table></details>
<details class="card"><summary>Versions</summary><table><tbody>
{"".join(pair(*item) for item in setting.versions.items())}</tbody></table>
</details>
</main>
<script type="application/json" id="series">{series(figure)}</script>
<script>
{asset("page.js")}</script>
</body>
</html>
"""


def picture(result: Result) -> Figure:
    """Return loss, speed and workers over the time since the job was applied, with every act marked."""
    began, steps = result.began, result.steps
    raw = [(step.at - began, step.loss) for step in steps if step.loss is not None]
    loss = [(at - began, value) for at, value in smooth(steps, SMOOTHING)]
    speed = [(at - began, value) for at, value in rate(steps, WINDOW)]
    return Figure(
        result.seconds,
        (
            Panel("loss", "loss", "line", tuple(loss), 170, logarithmic=True, faint=tuple(raw)),
            Panel("steps per second", "speed", "area", tuple(speed), 120),
            Panel("workers", "world", "stairs", tuple(world(result)), 80, whole=True),
        ),
        tuple(Event(line.at, line.act.title, line.act.mark, line.did) for line in result.lines),
        tuple(bands(result)),
    )


def world(result: Result) -> Iterator[Point]:
    """Yield the size of the world over time, 0 while the job was suspended."""
    stills = {still.round: still for still in standstills(result.steps)}
    before = None
    for step in result.steps:
        if step.round != before and (still := stills.get(step.round)) and pause(still, result):
            yield still.began - result.began, 0.0
        if step.round != before:
            yield step.at - result.began, float(step.world)
        before = step.round
    yield result.steps[-1].at - result.began, float(result.steps[-1].world)


def bands(result: Result) -> Iterator[Band]:
    """Yield a band for each standstill, and one for the requested pause."""
    for still in standstills(result.steps):
        began, ended = still.began - result.began, still.ended - result.began
        asked = pause(still, result)
        if asked:
            yield Band(began, asked, "pause", f"suspended for {asked - began:.1f} s, as asked")
        begins = asked or began
        change = f"{still.before} → {still.after} workers"
        yield Band(begins, ended, "still", f"stood still {ended - begins:.2f} s ({change})")


def pause(still: Standstill, result: Result) -> float | None:
    """Return the end of the pause inside a standstill, in seconds of the story; None without a pause."""
    asked = [line.at for line in result.lines if line.act.mark is Mark.PAUSE]
    inside = [at for at in asked if still.began - result.began < at < still.ended - result.began]
    return inside[-1] if inside else None


def outcome(result: Result) -> str:
    """Return the headline with the outcome."""
    accuracy = "" if result.accuracy is None else f", {result.accuracy:.1%} accurate"
    return f"Succeeded after {result.step:,} steps{accuracy}"


def story(result: Result) -> str:
    """Return one sentence about the course of the job."""
    acts = ", ".join(line.act.title for line in result.lines if line.act.mark is not Mark.LIFE)
    again = len(result.steps) - len({step.step for step in result.steps})
    missing = result.step - len({step.step for step in result.steps})
    lost = "Every step was counted once" if not again else f"{again} steps were done again"
    return f"While it trained: {acts}. {lost}, {missing or 'none'} is missing: the job kept its work."


def facts(result: Result) -> Iterator[str]:
    """Yield the most important numbers, as tiles."""
    stills = [(pause, line.act.title) for line in result.lines for pause in line.pauses]
    total = sum(seconds for seconds, _ in stills)
    longest, cause = max(stills, default=(0.0, "never"))
    if result.accuracy is not None:
        yield tile("test accuracy", f"{result.accuracy:.1%}", "on images it never saw")
    yield tile("steps", f"{result.step:,}", f"in {result.seconds:.0f} s, start and pause included")
    yield tile("stood still", f"{total:.2f} s", f"in all, over {len(stills)} changes of the world")
    yield tile("longest", f"{longest:.2f} s", cause)
    yield tile("first step", f"{first_step(result):.1f} s", "after the job was applied")


def first_step(result: Result) -> float:
    """Return the seconds from the start to the first step."""
    return result.steps[0].at - result.began if result.steps else 0.0


def tile(name: str, value: str, note: str) -> str:
    """Return one number with its name and explanation."""
    shown = f"{escape(value)}<small>{escape(note)}</small>"
    return f'<div class="card"><dt>{escape(name)}</dt><dd>{shown}</dd></div>'


def row(line: Line) -> str:
    """Return one act as a row of the timeline."""
    stills = " + ".join(f"{seconds:.2f}" for seconds in line.pauses)
    messages = "".join(f"<p{warning(one)}>{escape(one.sentence)}</p>" for one in line.messages)
    workers = " → ".join(map(str, line.worlds))
    return (
        f'<tr class="{line.act.mark}"><td class="number">{line.at:.1f} s</td>'
        f'<td class="what"><b>{escape(line.act.title)}</b><span>{escape(line.did)}</span></td>'
        f'<td>{workers}</td><td class="number still">{stills + " s" if stills else "–"}</td>'
        f'<td class="said">{messages}</td></tr>\n'
    )


def sentence(message: Message, began: float) -> str:
    """Return one message of the operator as a row."""
    return (
        f'<tr><td class="number">{message.at - began:.1f} s</td><td>{escape(message.reason)}</td>'
        f"<td{warning(message)}>{escape(message.sentence)}</td></tr>\n"
    )


def warning(message: Message) -> str:
    """Return the class attribute of a warning."""
    return ' class="warning"' if message.warning else ""


def series(figure: Figure) -> str:
    """Return the series as JSON for the readout, thinned, safe inside a script element."""
    panels = [
        {"name": panel.title, "points": [short(point) for point in thin(panel.points, 600)]}
        for panel in figure.panels
    ]
    return json.dumps(panels, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def short(point: Point) -> Point:
    """Return a point rounded to visible digits."""
    return round(point[0], 2), float(f"{point[1]:.4g}")


def pair(name: str, value: str) -> str:
    """Return a name and its value as a row."""
    return f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>"


def asset(name: str) -> str:
    """Return a file from this directory."""
    return resources.files(__package__).joinpath(name).read_text()
