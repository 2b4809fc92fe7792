"""Checkpoints on disk: whole or absent, the newest two kept, nothing in them that could run code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elasticjob.trainer.torch.checkpoint import Checkpoints


def test_newest_is_loaded_and_two_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "new" / "folder")
    for step in (5, 10, 15):
        checkpoints.save(step, {"model": {"w": torch.full((2,), float(step))}, "done": {"step": step}})
    assert checkpoints.steps() == [10, 15]
    loaded = checkpoints.load()
    assert loaded is not None
    assert loaded["done"] == {"step": 15}
    assert loaded["model"]["w"].tolist() == [15.0, 15.0]


def test_no_folder_means_no_checkpoint(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "absent").load() is None


def test_writer_that_dies_leaves_the_previous_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"done": {"step": 1}})

    def dies(snapshot: object, file: Any) -> None:
        file.write(b"half of it")
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(torch, "save", dies)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(2, {"done": {"step": 2}})
    assert checkpoints.load() == {"done": {"step": 1}}


def test_file_that_could_run_code_is_refused(tmp_path: Path) -> None:
    torch.save({"evil": Checkpoints}, tmp_path / "step-000000001.pt")
    with pytest.raises(Exception, match="Weights only load failed"):
        Checkpoints(tmp_path).load()


def test_what_killed_workers_left_half_written_is_swept(tmp_path: Path) -> None:
    for name in ("step-000000003.12.tmp", "step-000000009.12.tmp", "notes.tmp"):
        (tmp_path / name).write_bytes(b"half")
    Checkpoints(tmp_path).save(5, {"step": 5})
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"step-000000005.pt", "step-000000009.12.tmp", "notes.tmp"}


def test_checkpoint_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(AttributeError, match="local object"):
        checkpoints.save(5, {"step": lambda: 5})
    assert list(tmp_path.iterdir()) == []


def test_checkpoint_that_nobody_could_read_is_refused_when_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="checkpoint of step 5 could not be read again"):
        Checkpoints(tmp_path).save(5, {"scheduler": {"milestones": np.ones(2)}})
    assert list(tmp_path.iterdir()) == []


def test_older_checkpoint_is_loaded_if_the_newest_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (5, 10):
        Checkpoints(tmp_path).save(step, {"model": torch.ones(1000), "done": {"step": step}})
    newest = tmp_path / "step-000000010.pt"
    newest.write_bytes(newest.read_bytes()[:2000])
    loaded = Checkpoints(tmp_path).load()
    assert loaded is not None
    assert loaded["done"] == {"step": 5}
    assert {path.name for path in tmp_path.iterdir()} == {"step-000000005.pt", "step-000000010.damaged"}
    assert "step-000000010.pt is damaged" in caplog.text


def test_training_does_not_begin_anew_if_all_checkpoints_are_damaged(tmp_path: Path) -> None:
    for step in (5, 10):
        (tmp_path / f"step-{step:09d}.pt").write_bytes(b"half of it")
    with pytest.raises(KeyError):  # as torch puts it
        Checkpoints(tmp_path).load()
    assert Checkpoints(tmp_path).steps() == [5, 10]
