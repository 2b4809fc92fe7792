"""The demo while it runs: one screen in a terminal, one line per event elsewhere. No decisions here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from elasticjob.cli.report.plot import sparkline
from elasticjob.cli.story.acts import Mark
from elasticjob.cli.story.runner import ActResult, Story
from elasticjob.cli.story.seen import Message, Seen
from elasticjob.cli.story.steps import Step, standstills

COLOURS = {Mark.LIFE: "white", Mark.FAULT: "red", Mark.SCALE: "magenta", Mark.PAUSE: "yellow"}
RECENT = 2.0
"""Seconds over which the shown speed is computed."""


@dataclass(frozen=True)
class Scene:
    """The state to show at one time; all times in seconds of the same clock."""

    story: Story
    seen: Seen
    steps: Sequence[Step]
    messages: Sequence[Message]
    began: float
    now: float


def screen(scene: Scene) -> RenderableType:
    """Return the whole screen."""
    title = f"[b]elasticjob demo[/]  {scene.now - scene.began:.0f} s"
    left = Panel(Group(*acts(scene)), title=title, title_align="left", border_style="dim", width=54)
    right = Panel(
        Group(training(scene), Text(), pods(scene.seen)), title="training", title_align="left", width=54
    )
    messages = Panel(
        Group(*sentences(scene, 6)), title="the operator says", title_align="left", border_style="dim"
    )
    return Group(Columns([left, right]), messages)


def acts(scene: Scene) -> Iterator[Text]:
    """Yield a line for each act: done, running or still to come."""
    done = {one.act.title: one for one in scene.story.played}
    for act in scene.story.acts:
        line = Text()
        if one := done.get(act.title):
            line.append("✓ ", "green").append(act.title, COLOURS[act.mark]).append(
                f"  {stood(one, scene.steps)}", "dim"
            )
        elif act is scene.story.current:
            line.append("▶ ", "bold cyan").append(act.title, f"bold {COLOURS[act.mark]}")
            line.append(f"  until {act.expects}", "cyan")
        else:
            line.append(f"· {act.title}", "dim")
        yield line


def stood(one: ActResult, steps: Sequence[Step]) -> str:
    """Return how long training stood still during an act, so far as it is over."""
    during = [still for still in standstills(steps) if one.began < still.ended <= one.ended]
    if not during or one.act.mark is Mark.PAUSE:
        return f"{one.ended - one.began:.1f} s"
    return "stood still " + " + ".join(f"{still.seconds:.2f} s" for still in during)


def training(scene: Scene) -> RenderableType:
    """Return step, speed, loss and world size."""
    table = Table.grid(padding=(0, 2))
    losses = [step.loss for step in scene.steps if step.loss is not None]
    last = f"{losses[-1]:.4f}" if losses else "–"
    table.add_row("step", f"[b]{scene.seen.step:,}[/]", f"{speed(scene.steps, scene.now):.0f} steps/s")
    table.add_row("workers", f"[b]{'●' * scene.seen.world or '–'}[/]", f"round {scene.seen.round}")
    table.add_row("loss", f"[b]{last}[/]", f"[blue]{sparkline(losses[:: max(1, len(losses) // 24)], 24)}[/]")
    return table


def speed(steps: Sequence[Step], now: float) -> float:
    """Return the recent steps per second."""
    recent = sum(1 for _ in takewhile(lambda step: now - step.at < RECENT, reversed(steps)))
    return recent / RECENT


def pods(seen: Seen) -> RenderableType:
    """Return the pods of the job with their phases."""
    table = Table.grid(padding=(0, 2))
    for pod in seen.pods:
        phase = "Terminating" if pod.leaving else pod.phase
        table.add_row(pod.name, Text(phase, "green" if phase == "Running" else "yellow"))
    return table


def sentences(scene: Scene, count: int) -> Iterator[Text]:
    """Yield the last messages of the operator."""
    for message in scene.messages[-count:]:
        yield (
            Text()
            .append(f"{message.at - scene.began:6.1f} s  ", "dim")
            .append(message.sentence, "red" if message.warning else "")
        )


@dataclass
class Lines:
    """The same for a log: prints what is new since the last call."""

    write: Callable[[str], object]
    acts: int = 0
    messages: int = 0
    announced: str = ""

    def show(self, scene: Scene) -> None:
        """Write a line for each message and each act that ended or began, in order of time."""
        new = [(message.at, f"    {message.sentence}") for message in scene.messages[self.messages :]]
        done = scene.story.played[self.acts :]
        new += [(one.ended, f"✓ {one.act.title}: {stood(one, scene.steps)}") for one in done]
        new += [(scene.now, line) for line in self._announcement(scene.story)]
        for at, line in sorted(new, key=lambda one: one[0]):
            self.write(f"{at - scene.began:6.1f} s  {line}")
        self.messages, self.acts = len(scene.messages), len(scene.story.played)

    def _announcement(self, story: Story) -> Iterator[str]:
        """Yield the line of an act that has begun and was not announced yet."""
        if story.current and story.did and story.current.title != self.announced:
            self.announced = story.current.title
            yield f"▶ {story.current.title}: {story.did}"
