"""Where a run without a cluster has its master: in this process, or at the rendezvous endpoint.

The endpoint is the same on each node. The node that can listen there holds the master, on one machine the
first that does; the others join it. Each node has a name of its own and gets its rank
in the order of joining.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from elasticjob.cli.errors import Failure
from elasticjob.cli.torchrun import Conf
from elasticjob.trainer.agent.identity import name_of, token_of
from elasticjob.trainer.agent.settings import Place, Settings

if TYPE_CHECKING:
    from elasticjob.master.job import Job

log = logging.getLogger("elasticjob.run")

LOOPBACK = "127.0.0.1"
ANYWHERE = ""  # all addresses of this machine


@dataclass(frozen=True)
class Hosted:
    """The job whose master some node of it hosts: its size, and its endpoint (empty: for this node alone)."""

    low: int
    high: int
    host: str = ""
    port: int = 0
    name: str = ""  # the --rdzv-id
    conf: Conf = field(default_factory=Conf)


async def join(settings: Settings) -> int:
    """Run the agent with the master in its settings."""
    from elasticjob.trainer.agent import loop  # aiohttp and psutil: not for --help

    return await loop.run(settings, os.environ)


async def host_or_join(settings: Settings, job: Hosted) -> int:
    """Run the agent beside a master of this process, or join the one that already listens on the endpoint."""
    from elasticjob.master.server import Master
    from elasticjob.master.store import Nowhere

    token = token_of(job.name) if job.host else secrets.token_hex(16)
    listen = where_to_listen(job) if job.host else LOOPBACK
    if job.host and not job.name and not is_loopback(job.host):
        log.warning("the job has no secret: give each node the same --rdzv-id, a value that is hard to guess")
    async with AsyncExitStack() as stack:
        if listen is not None:
            master = Master(new_job(job), token, Nowhere(), host=listen, port=job.port)
            try:
                await stack.enter_async_context(master)
            except OSError as error:
                if not job.host or error.errno != errno.EADDRINUSE or job.conf.is_host:
                    raise Failure(str(error.strerror or error)) from None
                listen = None  # another node on this machine came first
        if listen is None:
            return await join(with_master(settings, url_host(job.host, job.port), token))
        _, _, port = master.address.rpartition(":")
        code = await join(with_master(settings, url_host(listen or LOOPBACK, int(port)), token))
        if job.high > 1 and (code == 0 or master.job.verdict):
            await master.wait_until_told(job.conf.close)
        return code


def new_job(job: Hosted) -> Job:
    """Return the state in which the job's master starts."""
    from elasticjob.master.job import Bounds, Job, Limits, Spec

    limits = Limits(
        silence=timedelta(seconds=job.conf.silence),
        last_call=timedelta(seconds=job.conf.last_call),
        join_timeout=timedelta(seconds=job.conf.join),
    )
    bounds = Bounds(minimum=job.low, maximum=job.high)
    return Job(spec=Spec(job=name_of(job.name), bounds=bounds, limits=limits))


def with_master(settings: Settings, master: str, token: str) -> Settings:
    """Return the settings of an agent whose master is at `master`."""
    place: Place = replace(settings.place, master=master, token=token)
    return replace(settings, place=place)


def url_host(host: str, port: int) -> str:
    """Return host:port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def where_to_listen(job: Hosted) -> str | None:
    """Return the address on which this machine listens for the endpoint, None if it is another's.

    A name may stand for addresses that only this machine has (Debian's 127.0.1.1), or that it does not have
    (behind NAT): then it listens on all. `is_host` in --rdzv-conf decides for the machine.
    """
    if job.conf.is_host is False:
        return None
    found = addresses(job.host)
    if job.host in found or is_loopback(job.host):
        mine: str | None = next(filter(bindable, found), None)
    else:
        mine = ANYWHERE if job.host == socket.gethostname() or any(map(bindable, found)) else None
    return ANYWHERE if mine is None and job.conf.is_host else mine


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
    for found in addresses(host):
        family = socket.AF_INET6 if ":" in found else socket.AF_INET
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((found, port or 1))  # of datagrams: nothing is sent
            mine = str(probe.getsockname()[0])
            return host if is_loopback(mine) and not is_loopback(host) else mine
    return LOOPBACK


def own_name() -> str:
    """Return a name for this node that no other has."""
    return f"{socket.gethostname()}-{secrets.token_hex(3)}"
