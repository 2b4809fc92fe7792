"""The course of an agent: events one at a time, and the steps that its rules decide upon each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from elasticjob.trainer.agent.actions import Action, Exit, Step
from elasticjob.trainer.agent.decide import again_at, decide
from elasticjob.trainer.agent.group import Event, Group, observe


class Driver:
    """Holds the only variable with the state of the group: `driver.emit(event)`, `await driver.run()`."""

    def __init__(
        self,
        group: Group,
        do: Callable[[Action], None],
        tell: Callable[[str, bool], None] = lambda why, warns: None,
        explain: Callable[[Event], Event] = lambda event: event,
    ) -> None:
        """`do` begins an action; `tell` hears why a step is taken, and if that warns; `explain` completes an
        event."""
        self.group = group
        self._do, self._tell, self._explain = do, tell, explain
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def emit(self, event: Event) -> None:
        """Have an event observed after those before it."""
        self._events.put_nowait(event)

    async def run(self) -> Exit:
        """Perform steps until one says Exit."""
        loop = asyncio.get_running_loop()
        while True:
            while (step := decide(self.group, loop.time())) is not None:
                if (end := self._perform(step)) is not None:
                    return end
            event = await self._next_event(again_at(self.group))
            if event is not None:
                self.group = observe(self.group, self._explain(event), loop.time())

    async def _next_event(self, until: float | None) -> Event | None:
        """Return the next event, None at the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                return await self._events.get()
        return None

    def _perform(self, step: Step) -> Exit | None:
        """Perform all actions of a step; return its Exit if there is one."""
        self.group = step.group
        self._tell(step.why, step.warns)
        for action in step.actions:
            if isinstance(action, Exit):
                return action
            self._do(action)
        return None
