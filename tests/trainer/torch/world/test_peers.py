"""A world that is over before this worker could enter it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.link.worlds import listen, port_of
from elasticjob.trainer.torch.world import peers as module
from elasticjob.trainer.torch.world.peers import Peers, reach


def peers(rank: int, port: int) -> Peers:
    place = Enter(round=3, rank=rank, size=2, address="127.0.0.1", port=port, batch_slots=2)
    return Peers(place, torch.device("cpu"))


def test_store_that_is_gone_breaks_the_round_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    mine = peers(1, port)
    with pytest.raises(dist.DistNetworkError, match=f"127.0.0.1:{port} is gone") as error:
        mine.open(socket.create_server(("127.0.0.1", 0)))
    assert mine.broken_by(error.value)


def test_round_that_was_aborted_before_it_was_entered_is_not_waited_for() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    mine = peers(0, listener.getsockname()[1])
    mine.abort()
    with pytest.raises(dist.DistNetworkError, match="given up"):
        mine.open(listener)
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        (RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed"), True),
        (RuntimeError("[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out"), True),
        (dist.DistBackendError("NCCL error"), True),
        (RuntimeError("this metric does not work with gloo"), False),
        (RuntimeError("CUDA error: out of memory"), False),
    ],
)
def test_only_errors_of_collectives_are_taken_for_a_lost_peer(error: RuntimeError, broken: bool) -> None:
    assert peers(1, 1).broken_by(error) is broken


def test_all_workers_of_a_large_world_may_wait_for_its_store_at_once() -> None:
    with listen("127.0.0.1") as listener:
        info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
        (backlog,) = struct.unpack_from("I", info, 28)  # of a listening socket, tcpi_sacked is its backlog
    assert backlog == int(Path("/proc/sys/net/core/somaxconn").read_text())


@pytest.fixture
def full() -> Iterator[socket.socket]:
    """A listener whose backlog is full: it does not respond."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as stack:
        port = port_of(listener)
        with suppress(TimeoutError):
            for _ in range(10):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=0.1))
        yield listener


def in_world_of(size: int, port: int) -> Enter:
    return Enter(round=3, rank=1, size=size, address="127.0.0.1", port=port, batch_slots=size)


def test_store_whose_backlog_is_full_is_tried_again(
    full: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REACH", 0.05)
    tries = []

    def makes_room() -> bool:
        tries.append(full.accept()[0])
        return False

    reach(in_world_of(50_000, port_of(full)), makes_room)
    assert tries
    for accepted in tries:
        accepted.close()


@pytest.mark.parametrize(("size", "given_up"), [(50_000, True), (1, False)])
def test_store_that_does_not_respond_is_given_up_with_the_round_or_after_a_while(
    full: socket.socket, monkeypatch: pytest.MonkeyPatch, size: int, given_up: bool
) -> None:
    monkeypatch.setattr(module, "REACH", 0.05)
    with pytest.raises(dist.DistNetworkError, match="is gone: timed out"):
        reach(in_world_of(size, port_of(full)), lambda: given_up)
