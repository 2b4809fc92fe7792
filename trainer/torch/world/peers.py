"""The process group of one round: opened, used for small sums, aborted when a member is gone, closed.

A collective of gloo cannot be aborted by torch (2.15: `ProcessGroup.abort` leaves it blocked), and a peer
that is stopped or disconnected resets no connection. So an abort also shuts down the connections that the
group opened: the kernel then fails pending operations on them within milliseconds.

NCCL, which carries what is on GPUs, can be aborted, and tells nobody: an operation that was aborted ends as
if it had succeeded, with whatever there was. So `settle` waits for the device, and looks.
"""

from __future__ import annotations

import io
import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# documented there, though torch's stubs do not say so
from torch.distributed import HashStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.link.connections import Connection, connections
from elasticjob.trainer.torch.saving.tree import StateParts, together
from elasticjob.trainer.torch.world.chunks import empty, form_of, hand_over, overwrite, side_by_side
from elasticjob.trainer.torch.world.nccl import Nccl, warm_up

TIMEOUT = timedelta(minutes=30)  # of one collective; the agents notice a lost member long before
REACH = 2.0  # seconds of one try; a store listens before its world is formed. Less than an aborted worker has
AGAIN = 1.0  # seconds in which torch tries twice to connect to a store that was there before
REACH_EACH = 0.002  # seconds more, in all, for each worker of the world: they may exceed the store's backlog
MARK = re.compile(r"/gloo/[\w/]+\.\w+:\d+\]")
"""Errors of gloo are plain RuntimeErrors, which name a line of its source."""
NCCL_WATCHDOG = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
}
"""Settings of torch's watchdog over NCCL that leave errors to us. By default it keeps the group open for a
minute, and then ends the process."""


@dataclass(frozen=True)
class Sum:
    """A sum over `size` workers that is on its way."""

    tensor: Tensor
    work: dist.Work | None
    size: int

    def wait(self) -> list[float]:
        """Return the sums, divided by the number of workers."""
        if self.work is not None:
            self.work.wait()
        means: list[float] = (self.tensor / self.size).tolist()
        return means


class Peers:
    """The workers of one world; `abort` may be called from any thread, the rest from the training one."""

    def __init__(self, place: Enter, device: torch.device) -> None:
        self.place = place
        self._device = device
        self._before = connections()
        self._links: frozenset[Connection] | None = None
        self._aborted = False
        self._nccl: Nccl | None = None  # if operations on GPUs are among the group's own
        self._some: dist.ProcessGroup | None = None
        self._lent = False  # the group is another's
        self._opened: Store | None = None
        self._told = ""  # the key under which this worker has told last where it is

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
        if listener is None and dist.is_initialized() and dist.get_world_size() == 1:
            self._lent = True  # of a training before in this process, as in a notebook, or the script's
            return
        if dist.is_initialized():
            raise RuntimeError(
                "there is a process group already: make Elastic before any init_process_group, and one in a "
                "process; start another training by another `elasticjob run`, or by elasticjob.launch"
            )
        store = self._opened = self._store(listener)
        self.check()  # before there was a connection to shut down
        cuda = self._device.type == "cuda"
        if cuda:
            os.environ.update(NCCL_WATCHDOG)
        try:
            dist.init_process_group(
                backend="cpu:gloo,cuda:nccl" if cuda else "gloo",
                store=store,
                rank=self.rank,
                world_size=self.size,
                timeout=TIMEOUT,
            )
        except RuntimeError:
            forget_groups()
            raise
        self._links = connections() - self._before
        self._nccl = Nccl(self._device) if cuda else None

    def warm_up(self) -> None:
        """Make ready what a GPU needs to train, if this worker uses one, before others wait for it."""
        if self._device.type == "cuda" and not dist.is_initialized():
            self.open(None)
            warm_up(self._device)
            self.close()

    def start_sum(self, numbers: Tensor) -> Sum:
        """Begin to add `numbers` over all workers, beside the collectives that follow."""
        copy = numbers.clone()
        return Sum(copy, dist.all_reduce(copy, async_op=True), self.size)

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the `numbers` of every worker, in the order of ranks."""
        mine = torch.tensor(numbers, dtype=torch.int64)
        all_ = [torch.zeros_like(mine) for _ in range(self.size)]
        dist.all_gather(all_, mine)
        return [tensor.tolist() for tensor in all_]

    def gives(self, source: int) -> bool:
        """Whether this worker has what worker `source` gives to others."""
        return self.rank == source

    def broadcast(self, tensors: Sequence[Tensor], source: int) -> None:
        """Overwrite `tensors` by those of worker `source`."""
        overwrite(tensors, lambda block: dist.broadcast(block, source, async_op=True))
        self.settle()

    def hand_over(self, tensors: Sequence[Tensor], sources: Sequence[int]) -> None:
        """Overwrite `tensors` by those of workers `sources`, which have the same, on all others."""
        group = dist.group.WORLD
        assert group is not None
        hand_over(group, tensors, sources)
        self.settle()

    def settle(self) -> None:
        """Wait for what was begun on a GPU; DistNetworkError if it was aborted, and came to nothing."""
        if self._nccl is not None:
            torch.cuda.current_stream(self._device).synchronize()
            self.check()

    def share(self, state: Any, sources: Sequence[int]) -> Any:
        """Return the `state` of workers `sources`, which have the same; nothing in it can run code."""
        gives = any(map(self.gives, sources))
        taken = StateParts(state if gives else None)
        names = sorted(taken.tensors)
        tensors = [side_by_side(taken.tensors[name]) for name in names]
        mine = names, [form_of(each) for each in tensors], taken.rest
        names, forms, rest = self._tell(mine, sources[0])
        if not gives:
            tensors = [empty(each, self._device) for each in forms]
        self.hand_over(tensors, sources)
        return state if gives else together(rest, dict(zip(names, tensors, strict=True)).__getitem__)

    def _tell(self, value: Any, source: int) -> Any:
        """Return the `value` of worker `source`, which is small."""
        block = pack(value)
        length = torch.tensor([len(block)])
        self.broadcast([length], source)
        if not self.gives(source):
            block = torch.empty(int(length), dtype=torch.uint8)
        self.broadcast([block], source)
        return unpack(block)

    def divide(self, ranks: Sequence[int]) -> None:
        """Let `exchange` be among `ranks` only, until `unite`; every worker of the world has to call it."""
        some = dist.new_group(list(ranks), timeout=TIMEOUT, backend="gloo")
        self._some = (
            some if isinstance(some, dist.ProcessGroup) else None
        )  # None: this worker is not one of them
        self._links = connections() - self._before
        self.check()

    def place_in_exchange(self) -> tuple[int, int]:
        """Return the rank and the number of workers among those of `exchange`."""
        return dist.get_rank(self._some), dist.get_world_size(self._some)

    def unify(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite `tensors` by those of the first worker of `exchange`, on all of them."""
        source = dist.get_global_rank(self._some, 0) if self._some is not None else 0
        for tensor in tensors if self.size > 1 else ():
            copy = tensor if self._some is None else tensor.cpu()  # what `divide` opened is for the CPU
            overwrite([copy], lambda block: dist.broadcast(block, source, group=self._some))
            if copy is not tensor:
                tensor.copy_(copy)
        self.settle()

    def unite(self) -> None:
        """Let `exchange` be among all workers again."""
        self._some = None

    def exchange(self, data: bytes) -> list[bytes]:
        """Return the `data` of every worker (see `divide`), in the order of ranks."""
        self.check()
        return gather(data, self._all)

    def _all(self, tensor: Tensor) -> list[Tensor]:
        every = [torch.empty_like(tensor) for _ in range(dist.get_world_size(self._some))]
        dist.all_gather(every, tensor, group=self._some)
        return every

    def all_at(self, at: int, age: Sequence[int]) -> bool:
        """Whether each worker of this age that has asked this is at the same place; from any thread."""
        if self._opened is None or self.size == 1:
            return True
        key, before = f"at-{'-'.join(map(str, age))}", self._told
        try:
            if before not in ("", key):
                self._opened.delete_key(before)  # a training takes many steps
            found = self._opened.compare_set(key, "", str(int(at)))
        except RuntimeError:  # the store is gone, which ends the world
            return True
        self._told = key
        return int(found) == at

    def broken_by(self, error: RuntimeError) -> bool:
        """Whether `error` comes from the group (a lost peer), not from the training code."""
        if self._aborted or isinstance(error, dist.DistError):
            return True
        return bool(MARK.search(str(error)))

    def abort(self) -> None:
        """Fail all pending collectives of this group on this worker."""
        self._aborted = True
        self._shut()
        if self._nccl is not None:
            self._nccl.abort()

    def check(self) -> None:
        """Raise DistNetworkError after an abort."""
        if self._aborted:
            raise dist.DistNetworkError(f"round {self.place.round} was given up")

    def close(self, *, broken: bool = False) -> None:
        """Leave the group; the others see their connections close. `broken`: what is pending never ends."""
        if self._lent or not dist.is_initialized():
            return
        if self._nccl is not None:
            self._nccl.leave(broken=broken)
        else:
            dist.destroy_process_group()

    def _shut(self) -> None:
        """Shut down the connections that the group has opened."""
        mine = connections() - self._before
        for link in mine if self._links is None else mine & self._links:
            link.shut()

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
            timeout=timedelta(seconds=AGAIN + REACH_EACH * self.size),  # if it goes while we connect
            wait_for_workers=False,
            master_listen_fd=listener.detach() if self.rank == 0 else None,
        )
        store.set_timeout(TIMEOUT)
        return PrefixStore(f"round-{self.place.round}", store)


def lengths_of(data: bytes, all_: Callable[[Tensor], list[Tensor]]) -> list[int]:
    """Return how many bytes every worker has, by a function that returns a tensor of each of them."""
    return [int(each) for each in all_(torch.tensor([len(data)]))]


def gather(
    data: bytes, all_: Callable[[Tensor], list[Tensor]], lengths: Sequence[int] | None = None
) -> list[bytes]:
    """Return the `data` of every worker; they may know their `lengths`."""
    lengths = lengths_of(data, all_) if lengths is None else lengths
    if not any(lengths):
        return [b""] * len(lengths)
    block = torch.zeros(max(lengths), dtype=torch.uint8)
    block[: len(data)] = torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)[: len(data)]
    blocks = all_(block)
    return [each[:length].numpy().tobytes() for each, length in zip(blocks, lengths, strict=True)]


def pack(state: Any) -> Tensor:
    """Return a state as bytes."""
    file = io.BytesIO()
    torch.save(state, file)
    return torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8)


def unpack(block: Tensor) -> Any:
    """Return a state from its bytes."""
    return torch.load(io.BytesIO(block.numpy().tobytes()), map_location="cpu", weights_only=True)


def forget_groups() -> None:
    """Have torch count groups from 0 again, after an init_process_group that failed.

    It names groups by that count, in the store too, and sets it back only when a group is destroyed (2.15):
    the next group would have another name here than on workers that start, and wait for them without end.
    """
    dist.init_process_group(backend="gloo", store=HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()


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
