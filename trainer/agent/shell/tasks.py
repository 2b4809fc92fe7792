"""The tasks of an agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from elasticjob.trainer.agent.group import Dismissal, Event

log = logging.getLogger("elasticjob.agent")


class Tasks:
    """Runs tasks until they are closed; a task that fails ends the agent, which would wait for ever."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work`."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel all tasks, and wait for their end."""
        running = [*self._running]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a task of the agent failed", exc_info=error)
            self._emit(Dismissal(1, "AgentFailed", f"{type(error).__name__}: {error}"))
