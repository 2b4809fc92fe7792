"""Reports of a node's workers: to the master once a second, and to its own log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import Final

from elasticjob.api.rpc.nodes import Hang, Kept, Report
from elasticjob.trainer.agent.checkpoints.commits import Keeper
from elasticjob.trainer.agent.group import Group
from elasticjob.trainer.agent.processes.workers import Workers
from elasticjob.trainer.agent.seeing import health, stacks
from elasticjob.trainer.agent.seeing.collectives import Questions, in_world
from elasticjob.trainer.agent.seeing.notices import NEWCOMER, Master, Notices, rank_of, stalls, waits
from elasticjob.trainer.agent.seeing.resources import Resources
from elasticjob.trainer.agent.shell.output import Output
from elasticjob.trainer.link import recorder
from elasticjob.trainer.link.master import MasterClient, MasterError
from elasticjob.trainer.usage.cores import look_at

log = logging.getLogger("elasticjob.agent")

EVERY: Final = 1.0  # seconds


class Reports:
    """Looks at the workers and reports; `present` returns the present group."""

    def __init__(
        self,
        master: MasterClient,
        patience: float,
        workers: Workers,
        keeper: Keeper,
        resources: Resources,
        output: Output,
        present: Callable[[], Group],
    ) -> None:
        self._master = master
        self._patience = patience
        self._workers = workers
        self._keeper = keeper
        self._resources = resources
        self._output = output
        self._present = present
        self._questions = Questions(lambda slot: recorder.file_of(workers.stacks_file(slot)))
        self._watcher = health.Watcher(ask=self._questions.ask)
        self._notices = Notices()
        self._news = asyncio.Event()
        self._written = 0  # the last hang whose stacks are written
        self._joined: float | None = None

    async def send(self) -> None:
        """Report progress and usage about once a second, the first progress in a round at once."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY):
                    await self._news.wait()
            self._news.clear()
            used = self._resources.sample()
            self._output.warn(self._resources.warning(used))
            if not self._present().training:
                continue
            with suppress(MasterError):  # the next report includes it
                await self._master.call(self._report(used), patience=EVERY)

    async def look(self) -> None:
        """Look at the workers a few times a second; report at once what the master should know."""
        while True:
            await asyncio.sleep(health.EVERY)
            group = self._present()
            rounds = {worker.slot: worker.round for worker in group.training}
            pulses, pids = self._workers.pulses, self._workers.pid_of
            processes = {slot: seen for slot, pid in pids.items() if (seen := look_at(pid))}
            sights = {
                slot: health.Sight(pulses[slot], *processes[slot]) for slot in pulses.keys() & processes
            }
            size, node = group.world.size if group.world else 0, group.terms.node
            answers = {
                slot: in_world(digest, size, node) for slot, digest in self._questions.answers().items()
            }
            if self._watcher.look(rounds, sights, time.monotonic(), answers):
                self._news.set()

    def notice(self, now: float) -> None:
        """Log what this node waits for, and which workers make no steps."""
        group, client = self._present(), self._master
        self._joined = (self._joined or now) if group.asking else None
        master = Master(client.address, client.heard, client.trouble, self._patience)
        states = self._watcher.states(time.monotonic())
        conditions = chain(waits(group, master, self._joined, now), stalls(group, states, now))
        for sentence in self._notices.due(conditions, now):
            log.log(logging.INFO if sentence.startswith(NEWCOMER) else logging.WARNING, "%s", sentence)

    def hurry(self) -> None:
        """Send the next report at once."""
        self._news.set()

    async def write_stacks(self, hang: Hang) -> None:
        """Write where all workers of this node are, to the log and to the log directory; tell the master."""
        log.warning("%s", hang.reason)
        stopped = {state.local_rank for state in self._watcher.states(time.monotonic()) if state.stopped}
        group, pids = self._present(), self._workers.pid_of
        texts = await asyncio.gather(
            *(
                stacks.stacks_of(pid, self._workers.stacks_file(slot), stopped=slot in stopped)
                for slot, pid in pids.items()
            )
        )
        for slot, text in zip(pids, texts, strict=True):
            head = f"stacks of rank {rank_of(group, slot)} (worker {slot}, pid {pids[slot]})"
            log.warning("%s:\n%s", head, stacks.shorten(text))
            self._output.keep_stacks(slot, f"{hang.reason}\n{head}:\n{text}\n\n")
        self._written = hang.number
        self._news.set()

    def _report(self, used: int | None) -> Report:
        group, kept = self._present(), self._keeper.kept
        return Report(
            node=group.terms.node,
            incarnation=group.terms.incarnation,
            round=group.round,
            progress=group.progress if group.progress_round == group.round else None,
            usage=self._resources.usage(used, self._workers.pids),
            workers=self._watcher.states(time.monotonic()),
            stacks=self._written,
            kept=kept if kept != Kept() else None,
        )
