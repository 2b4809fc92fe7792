"""The agent's I/O shell: turns messages, orders and signals into events, and performs decided steps.

All events go through the driver's queue and are handled one at a time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import assert_never

from elasticjob.api.rpc.rendezvous import Recovery
from elasticjob.trainer.agent import actions
from elasticjob.trainer.agent.actions import Action, Exit
from elasticjob.trainer.agent.checkpoints.commits import Keeper, shared_memory, spill
from elasticjob.trainer.agent.decide import LEFT, still_saving
from elasticjob.trainer.agent.driver import Driver
from elasticjob.trainer.agent.group import (
    AskedToLeave,
    CheckPassed,
    Group,
    LastSave,
    Terms,
)
from elasticjob.trainer.agent.processes.environ import THREADS, with_defaults, worker_environment
from elasticjob.trainer.agent.processes.folder import own_folder
from elasticjob.trainer.agent.processes.workers import Workers
from elasticjob.trainer.agent.script import imports, is_elastic, preloads, shareable, why_cold
from elasticjob.trainer.agent.seeing.resources import Resources
from elasticjob.trainer.agent.settings import Recover, Settings, Start
from elasticjob.trainer.agent.shell.membership import Membership
from elasticjob.trainer.agent.shell.output import Output
from elasticjob.trainer.agent.shell.reports import Reports
from elasticjob.trainer.agent.shell.standby import Standby, TakeOver
from elasticjob.trainer.agent.shell.tasks import Tasks
from elasticjob.trainer.link.master import MasterClient
from elasticjob.trainer.usage import memory
from elasticjob.trainer.usage.cores import limit

log = logging.getLogger("elasticjob.agent")

ERROR = "error.json"
NOTICE_EVERY = 0.5  # seconds
LAST_SAVE = 600.0  # seconds that the last checkpoint may take to get from memory to storage
SAVING_NOTICE = (
    5.0  # seconds after which it is said, again and again, that the last checkpoint is not written
)
LAST_CALLS = 3.0  # seconds that the last requests to the master may take; it may be gone already
FAREWELL = 1.0  # the same for a planned leave


async def run(settings: Settings, environment: Mapping[str, str], take_over: TakeOver | None = None) -> int:
    """Run the workers of one node to their end; return the exit code. The only entry point of the agent."""
    place = settings.place
    async with MasterClient(place.master, token=place.token, patience=settings.patience) as master:
        with own_folder() as folder, own_folder(shared_memory(environment)) as blocks:
            spill(blocks, folder)
            keeper = Keeper(blocks, place.node, place.token, place.address)
            return await Agent(
                settings, environment, master, folder, keeper, take_over, memory.cgroup()
            ).run()


class Agent:
    """The agent of one node."""

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        master: MasterClient,
        folder: Path,
        keeper: Keeper,
        take_over: TakeOver | None = None,
        cgroup: memory.Cgroup | None = None,
    ) -> None:
        imported = imports(settings.script)
        wanted = preloads(imported, shareable(settings.script, settings.modules))
        group = Group(
            terms=terms(settings), recovery=recovery(settings.recover, imported), vetted=not settings.check
        )
        self._settings = settings
        cpus = None if THREADS in environment else limit(environment)
        self._environment = with_defaults(environment, settings.workers, cpus)
        if cpus is not None:
            log.info(
                "%s is %s: %g CPUs for %d workers",
                *(THREADS, self._environment[THREADS], cpus, settings.workers),
            )
        self._folder = folder
        self._keeper = keeper
        self._take_over = take_over
        self._output = output = Output(settings, self._present)
        self._resources = Resources(cgroup, environment)
        self._driver = Driver(group, self._do, output.tell, self._resources.explain)
        emit = self._driver.emit
        self._tasks = Tasks(emit)
        self._standby = Standby(settings.place, master, folder, self._environment, group.terms.incarnation)
        self._membership = Membership(
            settings, master, self._tasks, emit, self._present, inherit=self._standby.hear
        )
        warm = settings.start is Start.WARM and settings.script.python
        if warm and (why := why_cold(settings.script)):
            warm = False
            log.info("workers start in new interpreters: %s", why)
        self._workers = Workers(
            settings.script,
            emit=emit,
            preloads=wanted if warm else None,
            prefix=output.prefix if settings.workers > 1 or settings.template else None,
            log_file=output.log_file,
            shown=output.shows,
            folder=folder,
            echo=output.lost_peers,
            grace=settings.grace,
        )
        self._reports = Reports(
            master, settings.patience, self._workers, keeper, self._resources, output, self._present
        )

    def _present(self) -> Group:
        return self._driver.group

    async def run(self) -> int:
        """Act on events until the group has ended."""
        log.addFilter(self._output.stamp)
        try:
            return await self._run()
        finally:
            log.removeFilter(self._output.stamp)

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        signals = [each for each in self._settings.signals if not survives(each)]
        for number in signals:
            asked = AskedToLeave(f"received {number.name}", 128 + number, number)
            loop.add_signal_handler(number, self._driver.emit, asked)
        self._resources.count_kills()
        self._environment |= await self._keeper.open(
            lambda: self._present().world, lambda: self._present().lost
        )
        self._standby.point()
        if self._settings.check:
            self._tasks.start(self._vet())
        else:
            self._workers.prepare(self._environment)
        loop.add_signal_handler(signal.SIGCHLD, self._workers.reap_orphans)
        self._resources.start()
        self._tasks.start(self._membership.watch())
        self._tasks.start(self._reports.send())
        self._tasks.start(self._reports.look())
        self._tasks.start(self._notice())
        if self._take_over is not None:
            self._tasks.start(self._standby.succeed(self._take_over))
        try:
            end = await self._driver.run()
            if self._present().unsaved is None:
                await self._keeper.finish(last_save(end, self._present(), loop.time()))
            await self._membership.finish(last_calls(end))
        finally:
            await self._close()
            self._output.warn(None)
            for number in signals:
                loop.remove_signal_handler(number)
        self._output.last_words(end)
        if end.code and end.local_rank >= 0:
            pass_error_on(self._folder / str(end.local_rank) / ERROR, self._environment, end.code)
        return end.code

    def _do(self, action: Action) -> None:
        match action:
            case actions.Spawn(slot=slot):
                file = self._folder / str(slot) / ERROR
                file.parent.mkdir(exist_ok=True)
                environment = worker_environment(
                    self._environment, self._settings, self._present(), action, file, self._standby.way
                )
                self._workers.spawn(slot, environment, file)
            case actions.Signal(slot=slot, number=number):
                self._workers.signal(slot, number)
            case actions.Tell(slot=slot, message=message):
                self._workers.tell(slot, message)
            case actions.Report(request=request):
                self._membership.tell(request)
            case actions.Ask(join=join):
                self._membership.ask(join, files=self._keeper.port)
            case actions.Save():
                self._tasks.start(self._save())
            case actions.Keep(message=message):
                self._keeper.hear(message)
            case actions.SendProgress():
                self._reports.hurry()
            case actions.WriteStacks(hang=hang):
                self._tasks.start(self._reports.write_stacks(hang))
            case actions.Exit():
                pass
            case _:
                assert_never(action)

    async def _save(self) -> None:
        """Write the last checkpoint; say so if that takes long."""
        saving = asyncio.ensure_future(self._keeper.finish(LAST_SAVE))
        try:
            while not (await asyncio.wait({saving}, timeout=SAVING_NOTICE))[0]:
                log.warning("%s", still_saving(self._present().terms, self._keeper.kept.error, LAST_SAVE))
            self._driver.emit(LastSave(saving.result()))
        finally:
            saving.cancel()

    async def _vet(self) -> None:
        """Have this node checked; prepare its workers if it has passed."""
        if await self._membership.vet(self._environment):
            self._workers.prepare(self._environment)
            self._driver.emit(CheckPassed())

    async def _notice(self) -> None:
        """Follow the master when it moves, and log what this node waits for."""
        while True:
            await asyncio.sleep(NOTICE_EVERY)
            self._standby.point()
            self._reports.notice(asyncio.get_running_loop().time())

    async def _close(self) -> None:
        await self._tasks.close()
        self._membership.close()
        await self._keeper.close()
        await self._workers.close()


def terms(settings: Settings) -> Terms:
    """Return the settings that decisions need, with a fresh incarnation."""
    place = settings.place
    return Terms(
        node=place.node,
        role=place.role,
        index=place.index,
        incarnation=uuid.uuid4().hex,
        address=place.address,
        workers=settings.workers,
        max_restarts=settings.max_restarts,
        grace=settings.grace,
        tries=settings.tries,
        forgive=settings.forgive,
        may_lose_save=settings.may_lose_save,
        in_pod=bool(place.pod),
    )


def pass_error_on(error: Path, environment: Mapping[str, str], code: int) -> None:
    """Write the error of the worker that ended this run where a launcher above expects this program's."""
    with suppress(OSError, ValueError, TypeError):
        if (place := environment.get("TORCHELASTIC_ERROR_FILE")) and error.exists():
            found = json.loads(error.read_text())
            if isinstance(found["message"], dict):
                found["message"]["errorCode"] = code
            Path(place).write_text(json.dumps(found))


def survives(number: signal.Signals) -> bool:
    """Whether the run was started to outlive its terminal, by nohup."""
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


def last_save(end: Exit, group: Group, now: float) -> float:
    """Return the limit of the last save in seconds: what is left of the grace of a node that was told to end,
    or failed; the whole of it for one that left its world, with old copies.
    """
    left = bool(group.round) and group.given_up >= group.round
    if end.reason == LEFT and group.ending is not None:
        return max(0.0, group.ending.kill_at - now)
    return group.terms.grace if end.code or left else LAST_SAVE


def last_calls(end: Exit) -> float:
    """Return the limit of the last requests in seconds; lower for a leave, which a disconnect also shows."""
    return FAREWELL if end.reason == LEFT else LAST_CALLS


def recovery(wanted: Recover, imported: frozenset[str]) -> Recovery:
    """Return the expected recovery mode of the workers, before they run."""
    match wanted:
        case Recover.AUTO:
            return Recovery.IN_PROCESS if is_elastic(imported) else Recovery.RESTART
        case Recover.IN_PROCESS:
            return Recovery.IN_PROCESS
        case Recover.RESTART:
            return Recovery.RESTART
        case _:
            assert_never(wanted)
