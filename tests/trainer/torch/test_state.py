"""Whose state a world begins with, where no other process is needed to tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.torch.saving.tree import StateParts, decode, together
from elasticjob.trainer.torch.state import State, plain
from elasticjob.trainer.torch.world.peers import Peers

ALONE = Enter(round=1, rank=0, size=1, address="", port=0, batch_slots=1)


@pytest.fixture
def peers() -> Iterator[Peers]:
    group = Peers(ALONE, torch.device("cpu"))
    group.open(None)
    yield group
    group.close()


def state(**known: Any) -> State:
    model = nn.Linear(2, 2)
    return State(model, [torch.optim.SGD(model.parameters(), lr=0.1)], **known)


@pytest.mark.parametrize("mixed", [False, True])
def test_a_world_begins_with_what_the_script_made_or_with_a_checkpoint(peers: Peers, mixed: bool) -> None:
    """A mixture is replaced by one."""
    mine = state(mixed=mixed)
    mine.begin(peers, lambda: mixed)
    assert (mine.whole, mine.mixed) == (True, False)


def test_a_mixture_is_not_trained_on_without_a_checkpoint(peers: Peers) -> None:
    mine = state(mixed=True)
    with pytest.raises(RuntimeError, match="no other has it, and there is no checkpoint"):
        mine.begin(peers, lambda: False)
    assert not mine.whole


def test_numpy_numbers_of_a_schedule_can_be_saved_and_read_again() -> None:
    optimizer = torch.optim.SGD((model := nn.Linear(2, 2)).parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: np.cos(step))
    given = State(model, [optimizer], [scheduler])
    optimizer.step()
    scheduler.step()
    saved = StateParts(given.snapshot())
    taken = state()
    taken.schedulers = [torch.optim.lr_scheduler.LambdaLR(taken.optimizers[0], lambda step: np.cos(step))]
    taken.restore(together(decode(saved.encode()), saved.tensors.__getitem__))
    assert taken.optimizers[0].param_groups[0]["lr"] == pytest.approx(1e-3 * np.cos(1))


def test_only_numpy_numbers_are_replaced() -> None:
    counts = Counter({3: 1})
    same = plain({"a": [np.float64(0.5), (np.int32(2), "text")], "b": counts})
    assert same == {"a": [0.5, (2, "text")], "b": counts}
    assert [type(each) for each in (same["a"][0], same["a"][1][0], same["b"])] == [float, int, Counter]


def test_step_that_is_repeated_begins_with_the_same_buffers() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    mine = State(model, [torch.optim.SGD(model.parameters())])
    model(torch.randn(4, 2))
    expected, before = [each.clone() for each in model.buffers()], mine.buffers()
    model(torch.randn(4, 2))
    mine.put_back(before)
    assert all(torch.equal(*pair) for pair in zip(model.buffers(), expected, strict=True))
