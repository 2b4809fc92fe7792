"""The steps of all workers of a job, by the file in which each worker writes a line for each of its steps."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

from lab.waiting import until


class Steps:
    """FOLDER/steps: the time of each step, and words about it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "steps"
        self.stood: dict[str, float] = {}

    def lines(self) -> list[list[str]]:
        """The words of each line that is whole, the oldest first."""
        text = self._file.read_text() if self._file.exists() else ""
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]

    def times(self) -> list[float]:
        """When the steps were made."""
        return [float(line[0]) for line in self.lines()]

    async def more(self, steps: int = 40) -> None:
        """Wait for more steps."""
        target = len(self.lines()) + steps

        await until(lambda: len(self.lines()) >= target, f"{target} steps")

    @asynccontextmanager
    async def standstill(self, what: str) -> AsyncIterator[None]:
        """Print the longest time without a step, from before what is done to some steps after."""
        began = time.time()
        yield
        await self.more(60)
        known = self.times()
        times = [max((t for t in known if t <= began), default=began), *sorted(t for t in known if t > began)]
        self.stood[what] = max(after - before for before, after in pairwise(times))
        print(f"{what:45} stands still {self.stood[what]:5.2f} s", flush=True)
