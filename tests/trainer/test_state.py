"""Whose state a world begins with, where no other process is needed to tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from elasticjob.trainer.channel import Enter
from elasticjob.trainer.torch.peers import Peers
from elasticjob.trainer.torch.state import Done, State

ALONE = Enter(round=1, rank=0, size=1, address="", port=0, batch_slots=1)


@pytest.fixture
def peers() -> Iterator[Peers]:
    group = Peers(ALONE, torch.device("cpu"))
    group.open(None)
    yield group
    group.close()


def state(**known: bool) -> State:
    model = nn.Linear(2, 2)
    return State(model, torch.optim.SGD(model.parameters(), lr=0.1), None, Done(), **known)


def test_what_the_script_made_is_the_first_state(peers: Peers) -> None:
    mine = state()
    mine.share(peers, lambda: False)
    assert mine.whole


def test_a_mixture_is_not_trained_on_without_a_checkpoint(peers: Peers) -> None:
    mine = state(mixed=True)
    with pytest.raises(RuntimeError, match="no other has it, and there is no checkpoint"):
        mine.share(peers, lambda: False)
    assert not mine.whole


def test_a_checkpoint_replaces_a_mixture(peers: Peers) -> None:
    mine = state(mixed=True)
    mine.share(peers, lambda: True)
    assert mine.whole
    assert not mine.mixed
