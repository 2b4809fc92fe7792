"""The resources that a node uses: cores, memory, GPUs, and whether the kernel killed for want of memory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from elasticjob.api.rpc.nodes import Usage
from elasticjob.trainer.agent.group import Event, ProcessEnd
from elasticjob.trainer.agent.seeing.gpus import VISIBLE, Devices
from elasticjob.trainer.usage import memory
from elasticjob.trainer.usage.cores import Meter
from elasticjob.trainer.usage.footprint import Footprint


class Resources:
    """Samples what this node uses; `sample` is called every second or so."""

    def __init__(self, cgroup: memory.Cgroup | None, environment: Mapping[str, str]) -> None:
        self._meter = Meter()
        self._footprint = Footprint(cgroup, environment)
        self._gpus = Devices(environment.get(VISIBLE))
        self._kills = memory.Kills(cgroup)
        self._used = 0

    def count_kills(self) -> None:
        """Look how often the kernel has killed till now."""
        self._kills.look(time.monotonic())

    def start(self) -> None:
        """Read the GPUs from now on."""
        self._gpus.start()

    def sample(self) -> int | None:
        """Return the memory that is used now, None if it cannot be read."""
        self.count_kills()
        used = self._footprint.read()
        self._used = used or self._used
        return used

    def usage(self, used: int | None, pids: Iterable[int]) -> Usage | None:
        """Return what this node uses; None if its memory cannot be read, which is not 0."""
        cores, gpus = self._meter.cores(pids), self._gpus.at(time.monotonic())
        if used is None:
            return None
        most, by_kernel = self._footprint.peak, self._footprint.kernel_peak
        return Usage(cpu=cores, memory=used, peak=most, kernel_peak=by_kernel, gpus=gpus)

    def warning(self, used: int | None) -> str | None:
        """Return what is used if that is near the limit: a kill of all would leave no time to say it."""
        return self._describe() if used is not None and memory.is_near(used, self._limit()) else None

    def explain(self, event: Event) -> Event:
        """Return the end of a worker with what the kernel says about it."""
        if not isinstance(event, ProcessEnd) or not memory.is_by_kill(event.code, event.message):
            return event
        if not self._kills.recent(time.monotonic()):
            return event
        return replace(event, out_of_memory=self._describe())

    def _describe(self) -> str:
        """Return what the node used at last, in words."""
        return f"its pod used {memory.describe(self._used, self._limit())} up to a second before"

    def _limit(self) -> int | None:
        return self._kills.cgroup.limit() if self._kills.cgroup else None
