"""Parts of a process that start together and stop together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol, runtime_checkable

from elasticjob.kube.clock import Clock, deadline

log = logging.getLogger(__name__)


class Group(IntEnum):
    """The stages of a process, in the order of their start."""

    HTTP = 0
    WEBHOOKS = 1
    CACHES = 2
    OTHERS = 3
    CONTROLLERS = 4


STOP_ORDER = (Group.OTHERS, Group.CONTROLLERS, Group.CACHES, Group.WEBHOOKS, Group.HTTP)


class Runnable(Protocol):
    """Something that runs until it is cancelled, or until it has nothing more to do."""

    async def run(self) -> None:
        """Do the work; an error ends the whole process."""


@runtime_checkable
class Startable(Protocol):
    """A runnable that others have to wait for."""

    async def wait_started(self) -> None:
        """Return once others may rely on it. Raises where that will never be."""


@runtime_checkable
class Drainable(Protocol):
    """A runnable that can be asked to finish what it is doing and then return from `run`."""

    def drain(self) -> None:
        """Take on nothing new."""


class RunGroup:
    """Tasks of one stage. `failed` is called with the first error of a member."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self.name = name
        self.members: list[Runnable] = []
        self._failed = failed
        self._tasks: dict[asyncio.Task[None], Runnable] = {}

    async def start(self) -> None:
        """Start all members; return when those that others wait for are started.

        Where such a member fails, `failed` is told and this does not return: to be cancelled then.
        """
        for member in self.members:
            task = asyncio.create_task(member.run(), name=f"{self.name}: {type(member).__name__}")
            task.add_done_callback(self._on_end)
            self._tasks[task] = member
        for member in self.members:
            if isinstance(member, Startable):
                await member.wait_started()

    async def stop(self, clock: Clock, grace: float) -> None:
        """Drain what can be drained for at most `grace` seconds, then cancel; return when all have ended."""
        draining = set()
        for task, member in self._tasks.items():
            if isinstance(member, Drainable) and not (task.done() or task.cancelling()):
                member.drain()
                draining.add(task)
        await _wait(draining, clock, grace)
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def cancel(self) -> None:
        """Cancel all members, so that `stop` drains none; it still waits until they have ended."""
        for task in self._tasks:
            task.cancel()

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self._failed(error)


async def _wait(tasks: set[asyncio.Task[None]], clock: Clock, grace: float) -> None:
    if not tasks:
        return
    try:
        async with deadline(clock, grace):
            await asyncio.wait(tasks)
    except TimeoutError:
        late = [task.get_name() for task in tasks if not task.done()]
        log.warning("did not finish in time and is cancelled", extra={"tasks": late, "grace_seconds": grace})
