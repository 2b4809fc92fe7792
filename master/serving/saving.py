"""Snapshots of the job after changes: asynchronous, so that they delay no response.

Agents resend what a successor may lack.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from elasticjob.master.durable import columns
from elasticjob.master.durable.store import Store, snapshot
from elasticjob.master.serving.shell import Shell
from elasticjob.master.state.job import Job

log = logging.getLogger("elasticjob.master")

PAUSE = 2.0  # seconds at most between two saves: as long as the last one took
UNSAVED = 60.0  # seconds without a successful save after which each failure is logged as an error


class Saving:
    """Saves the job of a shell in a store."""

    def __init__(self, shell: Shell, store: Store) -> None:
        self._shell, self._store = shell, store
        self._since: datetime | None = None

    async def run(self) -> None:
        """Save the state after changes, with retries; no request waits for it."""
        shell, delay = self._shell, 0.5
        while True:
            await shell.unsaved.wait()
            shell.unsaved.clear()
            if shell.retired:
                return
            try:
                saving, began = shell.job, shell.clock.monotonic()
                await self._store.save(await self._snapshot(saving))
                delay, self._since = 0.5, None
                shell.on_save(saving)
                await shell.clock.sleep(min(shell.clock.monotonic() - began, PAUSE))
            except Exception as error:
                self._since = self._since or shell.now()
                self._say_unsaved(error, delay)
                await shell.clock.sleep(delay)
                delay = min(delay * 2, 30.0)
                shell.unsaved.set()

    async def save_last(self) -> None:
        """Save the state of a master that ends, unless another has the job."""
        shell = self._shell
        if shell.retired:
            return
        try:
            await self._store.save(snapshot(shell.job, shell.now()))
        except Exception as error:
            name, trace = shell.job.spec.job, _trace(error)
            log.warning("the last state of job %s is not saved: %s", name, error, exc_info=trace)

    def seconds_without_save(self) -> float:
        """Return for how long the state could not be saved."""
        return (self._shell.now() - self._since).total_seconds() if self._since else 0.0

    async def _snapshot(self, job: Job) -> bytes:
        """Return the snapshot; that of a crowd is made in a thread, while requests are served."""
        if len(job.nodes) <= columns.CROWD:
            return snapshot(job, self._shell.now())
        return await asyncio.to_thread(snapshot, job, self._shell.now())

    def _say_unsaved(self, error: Exception, delay: float) -> None:
        seconds = self.seconds_without_save()
        log.log(
            logging.ERROR if seconds > UNSAVED else logging.WARNING,
            "job %s is not saved for %.0f s, which a next master would lack; next try in %.1f s: %s",
            self._shell.job.spec.job,
            seconds,
            delay,
            error,
            exc_info=_trace(error),
        )


def _trace(error: Exception) -> Exception | None:
    """Return an error whose trace is worth a log: no store's."""
    return None if isinstance(error, OSError) else error
