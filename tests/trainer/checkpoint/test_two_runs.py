"""Two trainings that were given one folder: each is told, neither loses a checkpoint, and no start takes one
for the other. Lives of one training that follow each other are no two trainings.
"""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.trainer.checkpoint.flash import Flash
from elasticjob.trainer.checkpoint.part import Save
from elasticjob.trainer.checkpoint.storage import Storage, Trouble
from elasticjob.trainer.torch.saving.tensors import Tensors


class Life:
    """A worker without an agent, from its start on."""

    def __init__(self, place: Path | str, keep: int = 2) -> None:
        self._flash = Flash(str(place), Tensors(), keep=keep, environment={}, say=lambda _: None)
        found = self._flash.load(lambda data: [data], 0, lambda rest, tensors: {})
        self.step = found[1].step if found else 0

    def save(self, step: int) -> None:
        self.step = step
        save = Save(step, 1)
        self._flash.save({"at": step}, save, 0, persist=True, exchange=lambda data: [data])


def test_neither_loses_a_checkpoint_and_no_start_takes_one_for_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fast, slow = Life(tmp_path), Life(tmp_path)
    for step in (32, 64, 96):
        fast.save(step)
    assert not caplog.text
    slow.save(20)
    assert f"another training writes to {tmp_path}, too: step 64, 96 is its own; give each" in caplog.text
    with pytest.raises(Trouble, match="another training has written step 64 there: give each training a f"):
        slow.save(64)
    slow.save(40)
    slow.save(60)
    fast.save(128)
    assert Storage(str(tmp_path)).steps() == [40, 60, 96, 128]
    with pytest.raises(ValueError, match="step 96, 128 is of the one, step 40, 60 of the other: move"):
        Life(tmp_path)
    for step in (40, 60):
        (tmp_path / f"step-{step:09d}").rename(tmp_path / f"elsewhere-{step}")
    assert Life(tmp_path).step == 128


def test_one_that_was_begun_from_the_others_checkpoint(tmp_path: Path) -> None:
    first = Life(tmp_path)
    first.save(32)
    second = Life(tmp_path)
    assert second.step == 32
    first.save(64)
    second.save(40)
    assert Storage(str(tmp_path)).steps() == [32, 40, 64]
    with pytest.raises(ValueError, match="two trainings have written to"):
        Life(tmp_path)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=6), st.integers(1, 3))
def test_lives_that_follow_each_other_are_one_training(lives: list[list[int]], keep: int) -> None:
    """They may save the step with which they began once more."""
    logger, heard = logging.getLogger("elasticjob"), list[logging.LogRecord]()
    handler = logging.Handler()
    handler.emit = heard.append  # type: ignore[method-assign,assignment]
    logger.addHandler(handler)
    with TemporaryDirectory() as folder:
        step = 0
        for gaps in lives:
            life = Life(folder, keep)
            assert life.step == step
            for gap in gaps:
                if step + gap:
                    step += gap
                    life.save(step)
        assert len(Storage(folder).steps()) <= keep
    logger.removeHandler(handler)
    assert not heard
