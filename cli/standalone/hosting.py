"""Where a run without a cluster has its master: in this process, or at the rendezvous endpoint.

The endpoint is the same on each node. The node that can listen there holds the master, on one machine the
first that does; the others join it. Each node has a name of its own and gets its rank in the order of
joining. When the node with the master ends, another one holds the next, at its own address and the same port,
until there is a master at the endpoint again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import secrets
import socket
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from elasticjob.api.rpc.address import host_port, parts
from elasticjob.cli.errors import Failure
from elasticjob.cli.standalone.hosted import HostedJob
from elasticjob.trainer.agent.processes.identity import name_of, token_of
from elasticjob.trainer.agent.settings import Place, Settings
from elasticjob.trainer.link.sockets import ANYWHERE, place_of

if TYPE_CHECKING:
    from elasticjob.api.rpc.nodes import Succession
    from elasticjob.master.serving.server import Master
    from elasticjob.master.state.job import Job as MasterJob

log = logging.getLogger("elasticjob.run")

LOOPBACK = "127.0.0.1"
TOLD = re.compile(r"round \d+: \d+ workers? |found the master ")
FAILED = "Failed"
LOOK_EVERY = 2.0  # seconds between looks for a master at the endpoint, by a node that took over


async def join(settings: Settings, seat: Seat | None = None) -> int:
    """Run the agent with the master in its settings; with a seat it may take over the master."""
    from elasticjob.trainer.agent import loop  # aiohttp and psutil: not for --help

    return await loop.run(settings, os.environ, seat.take_over if seat else None)


class Seat:
    """The master that this process holds, from the beginning, later, or never."""

    def __init__(self, job: HostedJob, token: str, place: Place) -> None:
        self.master: Master | None = None
        self._job, self._token, self._place = job, token, place
        self._listen = where_to_listen(job) if job.host else LOOPBACK
        self._task: asyncio.Task[None] | None = None
        self._back: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    async def begin(self) -> str:
        """Hold the master of a new job; return its address for this node. OSError if that is not possible."""
        if self._listen is None:
            raise OSError(errno.EADDRNOTAVAIL, f"{self._job.host} is another machine")
        return await self._hold(new_job(self._job), self._listen)

    async def take_over(self, left: Succession | None) -> None:
        """Hold the master that another node held, of a new job if nothing is left of it."""
        if left is None:
            await self.begin()
            return
        from elasticjob.master.durable.succession import inherit

        listen = place_of(self._place.address)
        await self._hold(inherit(left, new_job(self._job).spec, datetime.now(UTC)), listen)
        if not is_endpoint(listen, self._job.host):
            self._back = asyncio.create_task(self._give_back())

    async def close(self, code: int) -> None:
        """Let the other nodes know of the end, if it has come; else one of them takes over."""
        if self.master is None or self._task is None:
            return
        if self._job.high > 1 and (code == 0 or self.master.job.verdict):
            await self.master.wait_until_told(self._job.conf.close)
        if self._back is not None:
            self._back.cancel()
        self._over.set()
        await self._task

    @property
    def has_failed(self) -> bool:
        """Whether the job whose master this is has failed, on another node perhaps."""
        return bool(self.master and self.master.job.verdict and self.master.job.verdict.end == FAILED)

    async def _give_back(self) -> None:
        """End this master once there is one at the endpoint again: a node that comes looks for it there."""
        endpoint = host_port(self._job.host, self._job.port)
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if await holds(endpoint, name_of(self._job.name)):
                break
        log.info("there is a master at %s again: this node gives its own up", endpoint)
        self.master = None
        self._over.set()
        if self._task is not None:
            await self._task
        self._over.clear()

    async def _hold(self, job: MasterJob, listen: str) -> str:
        """Run a master in a task of its own, which outlives the task that asks for it."""
        from elasticjob.master.durable.store import Nowhere
        from elasticjob.master.serving.server import Master

        node = self._place.node if self._job.host else ""
        master = Master(job, self._token, Nowhere(), host=listen, port=self._job.port, node=node)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(master, ready))
        await ready
        self.master = master
        return host_port(listen or LOOPBACK, parts(master.address)[1])

    async def _run(self, master: Master, ready: asyncio.Future[None]) -> None:
        agent = logging.getLogger("elasticjob.agent")
        try:
            async with master:
                agent.addFilter(is_told_here_alone)  # the master's log is in this terminal
                ready.set_result(None)
                await self._over.wait()
        except OSError as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            agent.removeFilter(is_told_here_alone)


def is_told_here_alone(record: logging.LogRecord) -> bool:
    """Whether a line of the agent is not one that the master in the same terminal tells, too."""
    return not TOLD.match(record.getMessage())


async def host_or_join(settings: Settings, job: HostedJob) -> int:
    """Run the agent beside a master of this process, or join the one that already listens on the endpoint."""
    token = token_of(job.name) if job.host else secrets.token_hex(16)
    if job.host and not job.name and not is_loopback(job.host):
        log.warning("the job has no secret: give each node the same --rdzv-id, a value that is hard to guess")
    seat, code = Seat(job, token, settings.place), 1
    try:
        settings = with_master(settings, await begin(seat, job), token)
        if job.beside and seat.master is not None:
            code = await join_with_others(settings, job, seat.master)
        else:
            code = await join(settings, seat if job.host else None)
    finally:
        await seat.close(code)
    return code or int(seat.has_failed)


async def join_with_others(settings: Settings, job: HostedJob, master: Master) -> int:
    """Run the agent, and those of the other nodes beside it."""
    from elasticjob.cli.standalone.peers import beside

    async with beside(settings, job, master, settings.place.master):
        return await join(settings)


async def begin(seat: Seat, job: HostedJob) -> str:
    """Return the address of the job's master, which this process holds if it is to; Failure if it cannot."""
    try:
        return await seat.begin()
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE and not job.conf.is_host
        if not job.host or not (taken or error.errno == errno.EADDRNOTAVAIL):
            raise Failure(str(error.strerror or error)) from None
    return host_port(job.host, job.port)  # of another machine, or of a node here that came first


def new_job(job: HostedJob) -> MasterJob:
    """Return the state in which the job's master starts."""
    from elasticjob.api.sizes.role import Range
    from elasticjob.master.state.job import Job, Limits, Spec, Waits

    waits = Waits(
        reading=timedelta(seconds=job.conf.hang_reading),
        computing=timedelta(seconds=job.conf.hang_computing),
        first=timedelta(seconds=job.conf.hang_first),
        outside=timedelta(seconds=job.conf.hang_outside),
        collective=timedelta(seconds=job.conf.hang_collective),
    )
    limits = Limits(
        silence=timedelta(seconds=job.conf.silence),
        last_call=timedelta(seconds=job.conf.last_call),
        join_timeout=timedelta(seconds=job.conf.join),
        hang=timedelta(seconds=job.conf.hang),
        waits=waits,
        quiet=timedelta(seconds=job.conf.quiet),
    )
    bounds = Range(least=job.low, most=job.high)
    name, slow = name_of(job.name), job.exclude_stragglers
    spec = Spec(job=name, bounds=bounds, limits=limits, exclude_stragglers=slow)
    if not job.beside:
        return Job(spec=spec)
    from elasticjob.cli.standalone.peers import facts_of, pace

    return Job(spec=spec.but(sizes=facts_of(job), limits=limits.but(pace=pace(os.environ))))


def with_master(settings: Settings, master: str, token: str) -> Settings:
    """Return the settings of an agent whose master is at `master`."""
    place: Place = replace(settings.place, master=master, token=token)
    return replace(settings, place=place)


def where_to_listen(job: HostedJob) -> str | None:
    """Return the address on which this machine listens for the endpoint, None if it is another's.

    A name may stand for addresses that only this machine has (Debian's 127.0.1.1), or that it does not have
    (behind NAT): then it listens on all. `is_host` in --rdzv-conf decides for the machine.
    """
    if job.conf.is_host is False:
        return None
    resolved = addresses(job.host)
    if job.host in resolved or is_loopback(job.host):
        mine: str | None = next(filter(bindable, resolved), None)
    else:
        mine = ANYWHERE if job.host == socket.gethostname() or any(map(bindable, resolved)) else None
    return ANYWHERE if mine is None and job.conf.is_host else mine


def is_endpoint(listen: str, host: str) -> bool:
    """Whether a server that listens there is reached at the endpoint's host."""
    found = addresses(host)
    return listen in found if listen else any(map(bindable, found))


async def holds(address: str, name: str) -> bool:
    """Whether the job's master is there."""
    import aiohttp

    with suppress(aiohttp.ClientError, TimeoutError, ValueError):
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LOOK_EVERY)) as session,
            session.get(f"http://{address}/status") as page,
        ):
            found = await page.json()
            return isinstance(found, dict) and found.get("job") == name
    return False


def addresses(host: str) -> tuple[str, ...]:
    """Return the addresses that a host name stands for here; an address stands for itself."""
    with suppress(OSError, UnicodeError):
        return tuple(dict.fromkeys(str(each[4][0]) for each in socket.getaddrinfo(host, None)))
    return ()


def bindable(address: str) -> bool:
    """Whether an address belongs to this machine."""
    with suppress(OSError), socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        return True
    return False


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine by definition."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def own_address(host: str, port: int) -> str:
    """Return the address at which the other nodes reach this one: that of its route to the endpoint.

    On the endpoint's own machine that is the endpoint's host.
    """
    for address in addresses(host):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, port or 1))  # of datagrams: nothing is sent
            mine = str(probe.getsockname()[0])
            return host if is_loopback(mine) and not is_loopback(host) else mine
    return LOOPBACK


def own_name() -> str:
    """Return a name for this node that no other has."""
    return f"{socket.gethostname()}-{secrets.token_hex(3)}"
