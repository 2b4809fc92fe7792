"""One of two operators, as a process: writes without a pause for as long as it leads.

    python -m tests.kit.traps.replica KUBECONFIG NAMESPACE ME PACE

PACE is the file of the time by which the lease is kept (pace.py).

It says `started` and `leading` on its output, a line each. SIGUSR1 blocks its main loop; SIGUSR2 sets its
clock on the wall one hour forward, and two back with the next.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from elasticjob.kube.client import config
from elasticjob.kube.client.client import Client
from elasticjob.kube.controller.controller import Controller, Reconcile, Result
from elasticjob.kube.election.election import Election
from elasticjob.kube.election.lease import Terms
from elasticjob.kube.errors import LeadershipLost
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import CONFIG_MAP
from elasticjob.kube.operator.operator import Operator
from lab.troubles.pace import Pace, PacedClock

TERMS = Terms(lease=timedelta(seconds=45), renew=timedelta(seconds=30), retry=timedelta(seconds=0.5))
"""Long, for a busy machine may hold up a process that is well; tests that wait for their end let time fly."""
LEASE_NAME = "two"
WORK = "work"
STEPS = (timedelta(hours=1), timedelta(hours=-2))


class SteppingClock(PacedClock):
    """The clock on the wall is set at will."""

    def __init__(self, pace: Pace) -> None:
        super().__init__(pace)
        self._off = timedelta()
        self._steps = itertools.cycle(STEPS)

    def now(self) -> datetime:
        return super().now() + self._off

    def step(self) -> None:
        self._off += next(self._steps)


def worker(client: Client, me: str) -> Reconcile:
    """A reconcile that always has something to write."""
    numbers = itertools.count()

    async def work(key: Key) -> Result:
        if key.name.startswith(WORK):
            await client.merge_patch(CONFIG_MAP, key.name, {"data": {me: str(next(numbers))}}, key.namespace)
        return Result.done()  # the write itself is what makes it run again

    return work


async def say(what: str, when: Callable[[], Awaitable[None]]) -> None:
    with suppress(RuntimeError):  # it stops before
        await when()
        print(what, flush=True)


async def main(kubeconfig: str, namespace: str, me: str, pace: str) -> None:
    clock = SteppingClock(Pace(Path(pace)))
    async with Client(await config.load(kubeconfig), user_agent=me) as client:
        election = Election(LEASE_NAME, namespace, identity=me, terms=TERMS, clock=clock)
        operator = Operator(client, namespace, name=me, probes=None, election=election, grace=30)
        operator.add(Controller(WORK, worker(client, me), for_=CONFIG_MAP))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, time.sleep, 3600)
        loop.add_signal_handler(signal.SIGUSR2, clock.step)
        async with asyncio.TaskGroup() as tasks:
            conditions = [
                tasks.create_task(say("started", operator.wait_started)),
                tasks.create_task(say("leading", operator.wait_leading)),
            ]
            try:
                await operator.run()
            finally:
                for task in conditions:
                    task.cancel()


if __name__ == "__main__":
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s %(why)s", defaults={"why": ""}))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        asyncio.run(main(*sys.argv[1:]))
    except* LeadershipLost as lost:
        sys.exit(str(lost.exceptions[0]))
