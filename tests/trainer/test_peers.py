"""A world that is over before this worker could enter it."""

from __future__ import annotations

import socket

import pytest
import torch
import torch.distributed as dist

from elasticjob.trainer.channel import Enter
from elasticjob.trainer.torch.peers import Peers


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
