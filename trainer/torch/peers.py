"""The process group of one round: opened, used for small sums, aborted when a member is gone, closed.

A collective of gloo cannot be aborted by torch (2.15: `ProcessGroup.abort` leaves it blocked), and a peer
that is stopped or disconnected resets no connection. So an abort also shuts down the connections that the
group opened: the kernel then fails pending operations on them within milliseconds.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

# documented there, though torch's stubs do not say so
from torch.distributed import HashStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from elasticjob.trainer.channel import Enter

TIMEOUT = timedelta(minutes=30)  # of one collective; the agents notice a lost member long before
REACH = 2.0  # seconds of one try; a store listens before its world is formed. Less than an aborted worker has
REACH_EACH = 0.002  # seconds more, in all, for each worker of the world: they may exceed the store's backlog
MARK = re.compile(r"/gloo/[\w/]+\.\w+:\d+\]")
"""Errors of gloo are plain RuntimeErrors, which name a line of its source."""


class Peers:
    """The workers of one world; `abort` may be called from any thread, the rest from the training one."""

    def __init__(self, place: Enter, device: torch.device) -> None:
        self.place = place
        self._device = device
        self._before = connections()
        self._links: frozenset[Connection] | None = None
        self._aborted = False

    @property
    def rank(self) -> int:
        """The rank of this worker."""
        return self.place.rank

    @property
    def size(self) -> int:
        """The number of workers."""
        return self.place.size

    def open(self, listener: socket.socket | None) -> None:
        """Join the group; returns when all members have. RuntimeError (see `broken_by`) if one does not.

        Rank 0 opens the store on `listener`, which has been listening since before the world was formed, so
        connecting needs no retries.
        """
        store = self._store(listener)
        self.check()  # before there was a connection to shut down
        dist.init_process_group(
            backend="cpu:gloo,cuda:nccl" if self._device.type == "cuda" else "gloo",
            store=store,
            rank=self.rank,
            world_size=self.size,
            timeout=TIMEOUT,
        )
        self._links = connections() - self._before

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Return the sums of `numbers` over all workers: one small all-reduce."""
        tensor = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(tensor)
        total: list[float] = tensor.tolist()
        return total

    def gather(self, number: int) -> list[int]:
        """Return the `number` of every worker, in the order of ranks."""
        mine = torch.tensor([number], dtype=torch.int64)
        all_ = [torch.zeros_like(mine) for _ in range(self.size)]
        dist.all_gather(all_, mine)
        return [int(tensor) for tensor in all_]

    def broken_by(self, error: RuntimeError) -> bool:
        """Whether `error` comes from the group (a lost peer), not from the training code."""
        if self._aborted or isinstance(error, dist.DistError):
            return True
        return bool(MARK.search(str(error)))

    def abort(self) -> None:
        """Fail all pending collectives of this group on this worker."""
        self._aborted = True
        if self._device.type == "cuda" and dist.group.WORLD is not None:
            dist.group.WORLD.abort()
        mine = connections() - self._before
        for link in mine if self._links is None else mine & self._links:
            link.shut()

    def check(self) -> None:
        """Raise DistNetworkError after an abort."""
        if self._aborted:
            raise dist.DistNetworkError(f"round {self.place.round} was given up")

    def close(self) -> None:
        """Leave the group; the others see their connections close."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def _store(self, listener: socket.socket | None) -> Store:
        if listener is None:
            return HashStore()
        if self.rank != 0:
            listener.close()
            reach(self.place, lambda: self._aborted)
        store = TCPStore(
            self.place.address,
            self.place.port,
            self.size,
            is_master=self.rank == 0,
            timeout=TIMEOUT,
            wait_for_workers=False,
            master_listen_fd=listener.detach() if self.rank == 0 else None,
        )
        return PrefixStore(f"round-{self.place.round}", store)


def reach(place: Enter, given_up: Callable[[], bool]) -> None:
    """Raise DistNetworkError if the store refuses connections: torch would retry for half an hour.

    A kernel whose backlog is full does not respond, so that is tried again until the round is given up.
    """
    address, until = (place.address, place.port), time.monotonic() + REACH + REACH_EACH * place.size
    while True:
        try:
            return socket.create_connection(address, timeout=REACH).close()
        except OSError as error:
            waits = isinstance(error, TimeoutError) and time.monotonic() < until
            if not waits or given_up():
                where = f"{place.address}:{place.port}"
                raise dist.DistNetworkError(f"the store on {where} is gone: {error}") from error


@dataclass(frozen=True)
class Connection:
    """One open TCP connection of this process: a descriptor and the identity of its socket."""

    fd: int
    inode: int

    def shut(self) -> None:
        """Shut down both directions; the descriptor stays open for its owner to close."""
        with suppress(OSError), socket.socket(fileno=os.dup(self.fd)) as duplicate:
            if os.fstat(duplicate.fileno()).st_ino == self.inode:
                duplicate.shutdown(socket.SHUT_RDWR)


def connections() -> frozenset[Connection]:
    """Return the TCP connections of this process, without listening sockets."""
    found = (connection(int(name)) for name in os.listdir("/proc/self/fd"))
    return frozenset(each for each in found if each is not None)


def connection(fd: int) -> Connection | None:
    """Return the connection of `fd`, None if it is not a connected TCP socket."""
    try:
        status = os.fstat(fd)
        if not stat.S_ISSOCK(status.st_mode):
            return None
        with socket.socket(fileno=os.dup(fd)) as duplicate:
            if duplicate.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            duplicate.getpeername()
    except OSError:  # closed meanwhile, or not connected
        return None
    return Connection(fd, status.st_ino)
