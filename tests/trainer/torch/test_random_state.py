"""Random numbers are part of a checkpoint: after a restart each worker draws what it would have drawn."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from elasticjob.trainer.integrations import plain
from elasticjob.trainer.torch.checkpoint import Checkpoint, RandomState
from elasticjob.trainer.torch.saving import random_state
from lab.jobs.training.device import DEVICE


def seed(number: int) -> None:
    for each in (random.seed, np.random.seed, torch.manual_seed):
        each(number)


def draw() -> list[float]:
    """One number of each generator; the normal ones keep a second for the next call."""
    normal = [random.gauss(0, 1), float(np.random.standard_normal())]
    torchs = [torch.rand((), device=each).item() for each in ("cpu", DEVICE)]
    return [*normal, random.random(), float(np.random.rand()), *torchs]


def test_a_restarted_worker_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    checkpoint = partial(Checkpoint, tmp_path, every=1, save_every=1, environment={})
    draw()
    checkpoint({"random": RandomState()}).save(1)
    expected = draw()
    seed(1)
    mine = RandomState()
    assert checkpoint({"random": mine}).load() == 1
    assert draw() == expected
    mine.restore()
    assert draw() == expected


def test_random_numbers_can_be_added_to_the_state_of_a_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = partial(Checkpoint, tmp_path, every=1, save_every=1, environment={})
    checkpoint({"notes": {"best": 1}}).save(1)
    notes = dict[str, int]()
    seed(3)
    expected = draw()
    seed(3)
    assert checkpoint({"notes": notes, "random": RandomState()}).load() == 1
    assert notes == {"best": 1}
    assert draw() == expected
    assert "no random numbers" in caplog.text
    with pytest.raises(ValueError, match=r"give the same names"):
        checkpoint({"other": {}, "random": RandomState()}).load()


@pytest.mark.parametrize(
    ("rank", "world", "said"), [(0, 2, False), (1, 2, False), (0, 3, True), (2, 3, False), (0, 1, True)]
)
def test_each_worker_takes_its_own_numbers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, rank: int, world: int, said: bool
) -> None:
    states, expected = [], []
    for number in (0, 1):
        seed(number)
        states.append(random_state.drawn())
        expected.append(draw())
    monkeypatch.setattr(random_state, "place", lambda: (0, 2))
    saved = RandomState()
    saved.gather(lambda _: [random_state.encode(each) for each in states])
    state = saved.state_dict()
    seed(2)
    expected.append(draw())  # a newcomer keeps its seed
    seed(2)
    monkeypatch.setattr(random_state, "place", lambda: (rank, world))
    RandomState().load_state_dict(state)
    assert draw() == expected[rank]
    assert ("random numbers of 2 of 2 workers" in caplog.text) is said


def test_what_cannot_be_read_again_is_named() -> None:
    state = {"callbacks": {"mine": {"count": 1, "path": Path("/tmp")}}, "epoch": np.float64(1)}
    with pytest.raises(TypeError, match=r"checkpoint\['callbacks'\]\['mine'\]\['path'\] is a Posix"):
        plain.check("checkpoint", state)
