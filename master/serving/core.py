"""A job's master but for its socket: its shell at work, and the store that keeps its state."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Self

from elasticjob.kube.clock import Clock
from elasticjob.master.durable.store import Store
from elasticjob.master.serving.saving import Saving
from elasticjob.master.serving.shell import Shell
from elasticjob.master.state.job import Job


class Core(Shell):
    """One job's master that is asked within its process: `async with Core(job, store) as core: core.ask(…)`.

    `job` is the initial state (`store.restore` or `Job(spec)`).
    """

    def __init__(self, job: Job, store: Store, *, clock: Clock | None = None, node: str = "") -> None:
        """`node` names the node of the job in whose process this master runs, if it is one."""
        super().__init__(job, clock=clock, node=node)
        self._saving = Saving(self, store)
        self._stack = AsyncExitStack()

    @property
    def address(self) -> str:
        """Where agents find this master: nowhere."""
        return ""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            for loop in (self.tick(), self._saving.run(), self.wake()):
                stack.callback(tasks.create_task(loop).cancel)
            stack.callback(self.hang_up_all)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        await self._saving.save_last()

    async def _open(self, stack: AsyncExitStack) -> None:
        """Open what agents reach it by, until the stack is closed: nothing."""
