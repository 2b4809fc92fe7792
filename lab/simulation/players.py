"""The coordinator of a DIJob and di-server in virtual time: the real service, called without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final, cast

import msgspec

from elasticjob.api.diengine import names
from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.controllers.diserver.apply import Waiting
from elasticjob.controllers.diserver.asked import Refusal, digest_of
from elasticjob.controllers.diserver.decide import Call
from elasticjob.controllers.diserver.main import LETTERS, service_of
from elasticjob.controllers.diserver.server import VERBS
from elasticjob.controllers.diserver.service import Caches
from elasticjob.controllers.diserver.settings import Settings
from elasticjob.kube.client.recorder import Recorder
from elasticjob.kube.clock import Clock
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Key, Kind
from elasticjob.kube.objects.views import POD
from lab.build.caches import Nobody
from lab.virtual.operator import Program
from lab.virtual.server import Verbs

KINDS: Final[tuple[Kind[Any], ...]] = (DIJOB, POD, AGGREGATORCONFIG)
PATIENCE: Final = 30
"""Seconds for which a coordinator asks again, each second."""


class DIServer(Program):
    """di-server, from its start until it is stopped: calls that are under way end with it."""

    def __init__(
        self,
        client: Verbs,
        chance: Random,
        clock: Clock | None = None,
        behind: int = 0,
        seconds: float = 0.0,
    ) -> None:
        super().__init__(client, chance, KINDS, clock, behind, seconds)
        caches = Caches(*(self.caches[kind.resource] for kind in KINDS))
        recorder, suffixes = cast(Recorder, Nobody()), Random(chance.random())
        self._ended = False
        self.service = service_of(
            self.client,
            caches,
            Settings(),
            self.clock,
            recorder,
            lambda: "".join(suffixes.choices(LETTERS, k=5)),
        )
        self.begin(())

    def cancel(self) -> None:
        self._ended = True
        super().cancel()

    async def call(self, name: str, body: bytes) -> bool:
        """Carry out a call; returns whether its caller gets a response, after which it does not ask again."""
        if self._ended:
            return False
        work = asyncio.create_task(self._call(name, body))
        self._tasks.append(work)
        await asyncio.wait((work,))
        self._tasks.remove(work)
        if work.cancelled():
            return False
        match work.exception():
            case None | Refusal():
                return True
            case Waiting() | KubeError():
                return False
            case error:
                raise error

    async def _call(self, name: str, body: bytes) -> None:
        """As `server.Server` does, for which equal calls at the same time are one."""
        service = self.service
        question = VERBS[name].question(body, service.options.limits)
        caller = await service.caller(question.asked.namespace, question.asked.caller, "")
        digest = digest_of(name, question.asked)
        call = Call(digest[:24] + service.random_suffix(), digest)
        await service.carry_out(caller, question, call)
        self._tasks.append(asyncio.create_task(service.writer.note_delivery(caller.job, call)))


Found = Callable[[], DIServer | None]
"""The di-server that runs now."""


async def players_come(found: Found, job: Key, count: int) -> bool:
    """A coordinator asks for more collectors. Returns whether it got a response."""
    return await _ask(found, "post", job, {"replicas": count})


async def players_go(found: Found, job: Key, count: int) -> bool:
    """A coordinator gives collectors back."""
    return await _ask(found, "delete", job, {"replicas": count})


async def player_fails(found: Found, job: Key, collector: str) -> bool:
    """A coordinator reports a collector that it cannot reach."""
    return await _ask(found, "failed", job, [collector])


async def _ask(found: Found, name: str, job: Key, collectors: object) -> bool:
    """Ask until there is a response, as DI-engine's client does."""
    whole = {
        "namespace": job.namespace,
        "coordinator": names.coordinator(job.name),
        "collectors": collectors,
    }
    for _ in range(PATIENCE):
        there = found()
        if there is not None and await there.call(name, msgspec.json.encode(whole)):
            return True
        await asyncio.sleep(1)
    return False
