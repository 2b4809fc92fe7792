"""The demo from beginning to end: sets the stage, plays the story, shows it, writes down what happened."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from elasticjob.api.logs import configure
from elasticjob.api.rpc.nodes import Progress
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.cli.demo.screen import COLOURS, Lines, Scene, screen
from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.laptop.laptop import Laptop, laptop
from elasticjob.cli.output import Output, hand_over_json
from elasticjob.cli.report.page import Setting, outcome, page, picture
from elasticjob.cli.report.plot import draw
from elasticjob.cli.story.acts import STORY
from elasticjob.cli.story.example import Example, load
from elasticjob.cli.story.runner import ActFailed, Story, play
from elasticjob.cli.story.seen import Seen
from elasticjob.cli.story.stage import Real
from elasticjob.cli.story.timeline import Result, tell
from elasticjob.cli.story.watched import JobView
from elasticjob.cli.versions import versions
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import POD

WIDE = 150
SUCCEEDED = "Succeeded"
REFRESH = 0.1
"""Seconds between two pictures of the live screen."""


@dataclass(frozen=True)
class Options:
    """The flags of the command."""

    report: Path
    epochs: int
    picture: Path | None = None
    keep: bool = False
    output: Output = Output.TEXT
    plain: bool = False


def run(options: Options) -> int:
    """Run the demo; return its exit code."""
    state = Path(tempfile.mkdtemp(prefix="elasticjob-demo-"))
    configure(file=state / "cluster.log")  # the cluster is part of this process; the screen is the story's
    try:
        code = asyncio.run(until_signal(perform(options, state)))
    except ActFailed as failure:
        raise Failure(str(failure), next_step=f"the files of the cluster are kept in {state}") from failure
    except BaseException:
        shutil.rmtree(state, ignore_errors=True)
        raise
    shutil.rmtree(state, ignore_errors=True)
    return code


def console_for(output: Output) -> Console:
    """Return where to print: stderr if stdout is for JSON; wide lines if the width is unknown."""
    console = Console(stderr=output is Output.JSON)
    return console if console.is_terminal else Console(stderr=output is Output.JSON, width=WIDE)


async def until_signal(work: Coroutine[Any, Any, int]) -> int:
    """Run `work`; SIGTERM ends it as Ctrl-C does, with everything cleaned up."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return Exit.INTERRUPTED


async def perform(options: Options, state: Path) -> int:
    """Set the stage, play, tell."""
    console = console_for(options.output)
    record = state / "steps.jsonl"
    example = load().recording(record).training(options.epochs)
    console.print("starting a cluster and its operator …", style="dim")
    async with laptop(state) as here, following(here.client, example.key, record) as watched:
        story = Story(STORY)
        stage = Real(here.client, example, lambda: watched.seen)
        try:
            async with showing(story, watched, console, plain=options.plain or options.output is Output.JSON):
                await play(story, stage, watched, time.time)
        except ActFailed as failure:
            await explain(failure, here, watched, console)
            raise
        words = await last_words(here.client, watched.seen, example.key.namespace)
        accuracy = words.progress.metrics.get("accuracy")
        result = tell(story.played, watched.steps, watched.messages, accuracy, words.account)
        write_report(options, result, example)
        announce(result, options, console)
        if options.keep:
            await stay(here, console)
    return Exit.DONE


@asynccontextmanager
async def following(
    client: Client, key: Key, record: Path, look: Callable[[Seen], object] = bool
) -> AsyncIterator[JobView]:
    """Follow a job from now on; `look` sees every moment of it."""
    watched = JobView(client, key, record, time.time, look)
    task = asyncio.create_task(watched.run())
    try:
        await watched.sync()
        yield watched
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def showing(story: Story, watched: JobView, console: Console, *, plain: bool) -> AsyncIterator[None]:
    """Show the story while it is played: as a screen in a terminal, else (or if `plain`) as lines."""
    began = time.time()

    def scene() -> Scene:
        return Scene(story, watched.seen, watched.steps, watched.messages, began, time.time())

    with screens(console, scene, plain=plain or not console.is_terminal) as show:
        task = asyncio.create_task(every_change(watched, show))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            show()


async def every_change(watched: JobView, show: Callable[[], None]) -> None:
    """Call `show` when something changed, at most every REFRESH seconds, and once a second in any case."""
    while True:
        show()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await watched.change()
        await asyncio.sleep(REFRESH)


@contextmanager
def screens(console: Console, scene: Callable[[], Scene], *, plain: bool) -> Iterator[Callable[[], None]]:
    """Yield what shows the scene of this moment."""
    if plain:
        lines = Lines(lambda line: console.print(line, highlight=False, markup=False, soft_wrap=True))
        yield lambda: lines.show(scene())
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda: live.update(screen(scene()), refresh=True)


def write_report(options: Options, result: Result, example: Example) -> None:
    """Write the report, and the picture if it is wished. Failure if that cannot be."""
    setting = Setting(example.key.name, example.text(), versions())
    try:
        options.report.write_text(page(result, setting))
        if options.picture:
            options.picture.write_text(draw(picture(result), title=f"{example.key.name}: {outcome(result)}"))
    except OSError as error:
        raise Failure(
            f"the report cannot be written: {error}", next_step="name another file with --report"
        ) from error


def announce(result: Result, options: Options, console: Console) -> None:
    """Print the timeline and, as the last line, what came out; or all of it as JSON on stdout."""
    if options.output is Output.JSON:
        hand_over_json("DemoReport", as_json(result, options.report))
        return
    console.print()
    console.print(table(result))
    console.print(f"\nreport: {options.report.resolve()}", highlight=False, soft_wrap=True)
    console.print(result.sentence(), style="bold green", highlight=False, soft_wrap=True)


def table(result: Result) -> Table:
    """Return the timeline: what happened, how long training stood still, what the operator said."""
    shown = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name, justify in (("at", "right"), ("what", "left"), ("workers", "left"), ("stood still", "right")):
        shown.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # a literal
    shown.add_column("what the operator said", style="dim")
    for line in result.lines:
        stills = " + ".join(f"{seconds:.2f}" for seconds in line.pauses)
        shown.add_row(
            f"{line.at:.1f} s",
            f"[{COLOURS[line.act.mark]}]{line.act.title}[/]",
            " → ".join(map(str, line.worlds)),
            f"{stills} s" if stills else "–",
            "\n".join(message.sentence for message in line.messages),
        )
    return shown


def as_json(result: Result, report: Path) -> dict[str, Any]:
    """Return what came out, for programs."""
    return {
        "succeeded": True,
        "accuracy": result.accuracy,
        "steps": result.step,
        "seconds": round(result.seconds, 3),
        "report": str(report.resolve()),
        "sentence": result.sentence(),
        "timeline": [
            {
                "at": round(line.at, 3),
                "act": line.act.title,
                "did": line.did,
                "workers": list(line.worlds),
                "stoodStill": [round(seconds, 4) for seconds in line.pauses],
                "operator": [message.sentence for message in line.messages],
            }
            for line in result.lines
        ],
    }


async def explain(failure: ActFailed, here: Laptop, watched: JobView, console: Console) -> None:
    """Print what helps to understand a failed act: conditions, and the last lines of every log."""
    show = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    show(f"\n✗ {failure.act.title}", style="bold red")
    for condition in failure.seen.conditions:
        show(f"  {condition.type}={condition.status} {condition.reason}: {condition.message}")
    for pod in failure.seen.pods:
        show(f"\nlast lines of pod {pod.name}:", style="bold")
        show(await tail(here.client, pod.name, watched.key.namespace))
    show("\nlast lines of the operator:", style="bold")
    show("\n".join(here.operator.log.read_text().splitlines()[-10:]))


async def tail(client: Client, pod: str, namespace: str) -> str:
    """Return the last lines of a pod's log, or why there are none."""
    try:
        return b"".join([chunk async for chunk in client.logs(pod, namespace, tail=10)]).decode(
            errors="replace"
        )
    except KubeError as error:
        return str(error)


async def last_words(client: Client, seen: Seen, namespace: str) -> LastWords:
    """Return the last words of the master that saw the end; empty ones if there are none."""
    for pod in seen.pods:
        found = await client.find(POD, pod.name, namespace)
        for status in found.status.container_statuses if found else ():
            words = LastWords.of(status.state.terminated.message if status.state.terminated else "")
            if words.verdict == SUCCEEDED:
                return words
    return LastWords()


class LastWords(msgspec.Struct):
    """The training's results, from a master's termination message."""

    verdict: str = ""
    progress: Progress = Progress(step=0)
    account: dict[str, float] = {}

    @classmethod
    def of(cls, message: str) -> LastWords:
        """Return the words in a message; empty ones if it is of another kind."""
        try:
            return msgspec.json.decode(message or "{}", type=cls)
        except UNREADABLE:
            return cls()


async def stay(here: Laptop, console: Console) -> None:
    """Leave the cluster up until Ctrl-C."""
    console.print(
        f"\nThe cluster is still up. In another terminal:\n\n  export KUBECONFIG={here.kubeconfig}\n"
        "  kubectl get elasticjobs,pods\n  kubectl describe elasticjob digits\n\nCtrl-C ends it.",
        highlight=False,
        soft_wrap=True,
    )
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
