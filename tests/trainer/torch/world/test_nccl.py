"""The end of NCCL's part of a group, where stand-ins do for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]  # documented there

from elasticjob.trainer.torch.world.nccl import Nccl, aside, wait_for_ends, warm_up
from lab.waiting import PATIENCE

CPU = torch.device("cpu")


class Slow:
    """Operations that end when they may."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.may_end = threading.Event()

    def abort(self) -> None:
        self.told.append("abort")
        assert self.may_end.wait(PATIENCE)

    def shutdown(self) -> None:
        self.told.append("shutdown")
        assert self.may_end.wait(PATIENCE)


def opened() -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)


@pytest.fixture
def synchronized(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    devices: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", devices.append)
    return devices


@pytest.fixture
def slow() -> Iterator[Slow]:
    each = Slow()
    yield each
    each.may_end.set()
    wait_for_ends()


def nccl(slow: Slow) -> Nccl:
    opened()
    mine = Nccl(CPU)
    mine._backend = slow
    return mine


@pytest.mark.parametrize("broken", [False, True])
def test_the_next_group_is_open_while_the_last_one_is_taken_down(
    slow: Slow, synchronized: list[torch.device], broken: bool
) -> None:
    nccl(slow).leave(broken=broken)
    assert not dist.is_initialized()
    opened()
    assert dist.group.WORLD is not None
    assert dist.group.WORLD.group_name == "0"  # as on a worker that has just started
    slow.may_end.set()
    wait_for_ends()
    assert slow.told == ["abort" if broken else "shutdown"]
    assert synchronized == [CPU] * broken


def test_who_aborts_does_not_wait_and_it_is_done_once(slow: Slow, synchronized: list[torch.device]) -> None:
    mine = nccl(slow)
    mine.abort()
    mine.leave(broken=False)
    assert synchronized == [CPU]
    slow.may_end.set()
    wait_for_ends()
    assert slow.told == ["abort"]


def test_at_the_end_of_python_it_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refused)
    done = list[int]()
    aside(lambda: done.append(1))
    wait_for_ends()
    assert done == [1]


def test_random_numbers_stay_as_they_are_while_a_gpu_is_made_ready(
    slow: Slow, synchronized: list[torch.device]
) -> None:
    opened()
    before = torch.get_rng_state()
    warm_up(CPU)
    assert synchronized == [CPU]
    assert torch.equal(torch.get_rng_state(), before)
