"""An agent in virtual time: decisions and membership of the real one, over a worker of a few lines."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from random import Random
from typing import Final, TypeVar

import aiohttp
import msgspec

from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.nodes import Report
from elasticjob.api.rpc.rendezvous import Recovery
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.controllers.parts import names
from elasticjob.kube.clock import Clock
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.master.state.errors import RequestError
from elasticjob.trainer.agent import actions
from elasticjob.trainer.agent.actions import Action
from elasticjob.trainer.agent.driver import Driver
from elasticjob.trainer.agent.group import AskedToLeave, Group, LastSave, Terms
from elasticjob.trainer.agent.loop import last_calls
from elasticjob.trainer.agent.script import Script
from elasticjob.trainer.agent.settings import Place, Settings
from elasticjob.trainer.agent.shell.membership import Membership
from elasticjob.trainer.agent.shell.reports import EVERY
from elasticjob.trainer.agent.shell.tasks import Tasks
from elasticjob.trainer.link.master import REJECTIONS, SLACK, MasterClient, MasterError, Rejected
from lab.simulation.master import Master, loudly
from lab.simulation.training import PORT, Training, Worker

Answer = TypeVar("Answer")
GRACE: Final = 30.0  # seconds that Kubernetes gives a pod which asks for none


class Line(MasterClient):
    """The client of whichever pod is the job's master now."""

    def __init__(self, find: Callable[[], Master | None], chance: Random) -> None:
        super().__init__("master", jitter=chance.random)
        self._find = find
        self._open = True

    async def post(self, address: str, request: Request[Answer]) -> Answer | None:
        master = self._find()
        try:
            if master is None or not self._open:
                raise ConnectionRefusedError("connection refused")
            async with asyncio.timeout(getattr(request, "wait", 0.0) + SLACK):
                reply: Answer | None = await master.ask(self, request)
                return reply
        except RequestError as error:
            problem = error.problem()
            raise REJECTIONS.get(problem.code, Rejected)(problem) from None
        except ConnectionError as error:
            raise aiohttp.ClientConnectionError(str(error)) from error

    def cut(self, *, silently: bool = False) -> None:
        """Close it; the master does not hear of that where the machine is gone."""
        was_open, self._open = self._open, False
        if was_open and (master := self._find()):
            master.cut(self, silently=silently)


class Agent:
    """One life of a worker pod: `start`, then its own end, `stop` (SIGTERM) or `kill` (SIGKILL)."""

    def __init__(
        self,
        pod: Manifest,
        master_of: Callable[[str], Master | None],
        clock: Clock,
        chance: Random,
        training: Training,
        ended: Callable[[int], None],
    ) -> None:
        """All agents of a job have its `training`."""
        labels, name = pod["metadata"]["labels"], pod["metadata"]["name"]
        job, role, index = labels[LABEL_JOB], labels[LABEL_ROLE], int(labels[LABEL_INDEX])
        node, address = names.node(job, role, index), f"{name}.{job}"
        place = Place(node, role, index, name, address, job, "master")
        self._clock, self._chance, self._training, self._ended = clock, chance, training, ended
        self._line = Line(lambda: master_of(job), chance)
        grace = float(pod["spec"].get("terminationGracePeriodSeconds", GRACE))
        terms = Terms(node, role, index, f"{chance.getrandbits(64):016x}", address, 1, 0, grace, in_pod=True)
        recovery = Recovery.RESTART if training.plain else Recovery.IN_PROCESS
        self._driver = Driver(Group(terms, recovery, warm=True), self._do)
        self._tasks = Tasks(self._driver.emit)
        self._membership = Membership(
            Settings(place, Script("train.py")),
            self._line,
            self._tasks,
            self._driver.emit,
            lambda: self._driver.group,
            inherit=lambda _: None,
        )
        self._workers: dict[int, Worker] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the process."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(loudly)

    def stop(self) -> None:
        """Ask it to leave, by SIGTERM."""
        number = signal.SIGTERM
        self._driver.emit(AskedToLeave(f"received {number.name}", 128 + number, number))

    def fail(self, code: int) -> None:
        """Have its worker exit with a code, by a signal above 128."""
        for worker in self._workers.values():
            worker.exit(128 - code if code > 128 else code)

    def kill(self, *, silently: bool = False) -> None:
        """End it now. The master sees its connection cut, unless its machine is gone."""
        self._line.cut(silently=silently)
        for worker in self._workers.values():
            worker.vanish(silently=silently)
        if self._task:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            self._tasks.start(self._membership.watch())
            self._tasks.start(self._report())
            end = await self._driver.run()
            await self._membership.finish(last_calls(end))
        finally:
            await self._tasks.close()
            self._line.cut()
        self._ended(end.code)

    async def _report(self) -> None:
        """Report progress once a second."""
        while True:
            await self._clock.sleep(EVERY)
            if self._driver.group.training:
                await self._send_progress()

    async def _send_progress(self) -> None:
        group = self._driver.group
        progress = group.progress if group.progress_round == group.round else None
        report = Report(
            node=group.terms.node, incarnation=group.terms.incarnation, round=group.round, progress=progress
        )
        try:
            await self._line.call(report, patience=EVERY)
        except MasterError:
            return  # the next report has it

    def _do(self, action: Action) -> None:
        match action:
            case actions.Spawn(slot=slot, enter=enter):
                starts = self._chance.uniform(0.1, 1.0)
                self._workers[slot] = Worker(
                    self._driver.emit, slot, self._clock, self._training, starts, enter
                )
            case actions.Signal(slot=slot, number=number):
                self._workers[slot].signal(number)
            case actions.Tell(slot=slot, message=message):
                self._workers[slot].tell(message)
            case actions.Report(request=request):
                self._membership.tell(request)
            case actions.Ask(join=join):
                self._membership.ask(join and msgspec.structs.replace(join, port=PORT), files=0)
            case actions.Save():
                self._driver.emit(LastSave())
            case actions.SendProgress():
                self._tasks.start(self._send_progress())
            case _:
                pass  # it has no checkpoints, and no stacks
