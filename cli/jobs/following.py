"""What `submit --follow` shows: each state of a job once, and its progress now and then, until it ends."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from elasticjob.cli.errors import Exit
from elasticjob.cli.output import say
from elasticjob.client.errors import ClientError, NotFound
from elasticjob.client.goals import has_ended, sentence, state

if TYPE_CHECKING:
    from elasticjob.client import Client
    from elasticjob.client.logs import End, Line
    from elasticjob.kube.objects.kinds import Manifest


class Printing(Protocol):
    """How lines of logs and ends of nodes are shown."""

    def line(self, line: Line) -> None: ...

    def end(self, ended: End) -> None: ...


LAST_LINES: Final = 10.0
"""Seconds that the last lines of a job that has ended may take."""
EVERY: Final = 5.0
"""Seconds between two lines about progress."""


@dataclass
class LastReport:
    """What was said of a job last."""

    state: str = ""
    progress: str = ""
    at: float = 0.0

    def lines(self, job: Manifest, now: float) -> Iterator[str]:
        """Yield what is new about a job at a moment, in seconds."""
        if (new := state(job)) != self.state:
            self.state = new
            yield new
        if (new := progress(job)) and new != self.progress and now - self.at >= EVERY:
            self.progress, self.at = new, now
            yield new


def progress(job: Manifest) -> str:
    """Return how far the training is; "" before it has begun."""
    training: dict[str, Any] = (job.get("status") or {}).get("training") or {}
    if not training.get("step"):
        return ""
    parts = [f"step {training['step']}"]
    if done := training.get("progress"):
        parts.append(f"{done:.0%} done")
    if speed := training.get("stepsPerSecond"):
        parts.append(f"{speed:.3g} steps/s")
    if world := training.get("worldSize"):
        parts.append(f"world {world}")
    return ", ".join(parts)


async def follow_logs(client: Client, name: str, printing: Printing, come_back: str) -> int:
    """Print a job's logs, and on stderr its states, until it ends; return the exit code.

    Ctrl-C says how to come back.
    """
    logs = asyncio.create_task(_logs(client, name, printing))
    try:
        last = await _states(client, name)
        with suppress(TimeoutError):
            await asyncio.wait_for(logs, LAST_LINES)
    except asyncio.CancelledError:
        say(f"{name} goes on; look again: {come_back}", err=True)
        raise
    finally:
        logs.cancel()
    return report_end(name, last)


async def _states(client: Client, name: str) -> Manifest:
    told = LastReport()
    last: Manifest = {}
    async with aclosing(client.follow(name)) as states:
        async for last in states:
            for line in told.lines(last, time.monotonic()):
                say(f"{datetime.now(UTC).astimezone():%H:%M:%S}  {line}", err=True)
            if has_ended(last):
                break
    return last


async def _logs(client: Client, name: str, printing: Printing) -> None:
    try:
        await show_lines(client.follow_logs(name), printing)
    except NotFound:
        return
    except ClientError as error:  # the exit code is the job's
        say(f"its logs cannot be shown any more: {error}", err=True)


async def show_lines(lines: AsyncGenerator[Line | End, None], printing: Printing) -> None:
    """Print lines of logs and ends of nodes as they come."""
    from elasticjob.client.logs import Line

    async with aclosing(lines) as found:
        async for each in found:
            if isinstance(each, Line):
                printing.line(each)
                sys.stdout.flush()
            else:
                printing.end(each)


def report_end(name: str, job: Manifest) -> int:
    """Say how a job ended, and return the exit code."""
    if not has_ended(job):
        say(f"{name} was deleted", err=True)
        return Exit.NOT_FOUND
    if job["status"]["phase"] == "Succeeded":
        return Exit.DONE
    say(f"{name} failed: {sentence(job)}; elasticjob describe {name} shows more", err=True)
    return Exit.FAILED
