"""Resource usage of this process and its children, for processes without an agent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Final

from elasticjob.api.rpc.nodes import Usage
from elasticjob.trainer.link.channel import FD
from elasticjob.trainer.usage import memory
from elasticjob.trainer.usage.cores import Meter
from elasticjob.trainer.usage.footprint import Footprint

EVERY: Final = 1.0
"""Seconds between two samples; cores are averaged over them."""


class Own:
    """Samples this process; None where its agent does, before the first second, and if it cannot be read."""

    def __init__(
        self, environment: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._is_ours = FD not in environment
        self._meter, self._footprint = Meter(), Footprint(memory.cgroup(), environment)
        self._meter.cores((os.getpid(),))
        self._due = clock() + EVERY
        self._last: Usage | None = None

    def now(self) -> Usage | None:
        """Return the sample of now, or one that is less than a second old."""
        if self._is_ours and self._clock() >= self._due:
            self._due = self._clock() + EVERY
            self._last = self._sample()
        return self._last

    def _sample(self) -> Usage | None:
        cores, used, read = self._meter.cores((os.getpid(),)), self._footprint.read(), self._footprint
        if used is None:
            return None
        return Usage(cpu=cores, memory=used, peak=read.peak, kernel_peak=read.kernel_peak)
