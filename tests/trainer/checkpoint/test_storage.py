"""Committed checkpoints: a save that is cut off at any byte leaves the one before, and nothing half read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticjob.trainer.checkpoint import storage
from elasticjob.trainer.checkpoint.arrays import block_of
from elasticjob.trainer.checkpoint.part import Damaged, Head
from elasticjob.trainer.checkpoint.sources import InStorage
from elasticjob.trainer.checkpoint.storage import Manifest, Storage

SIZE = 3000


def save(to: Storage, step: int, keep: int = 2) -> None:
    files = [to.write(block(step, number)) for number in range(2)]
    parts, heads = zip(*files, strict=True)
    to.commit(Manifest(step, 1, parts), heads, keep)


def block(step: int, number: int) -> memoryview:
    """Return a block with a tensor of its part, full of its step."""
    head = Head(step=step, round=1, part=number, parts=2)
    return block_of(head, {f"w{number}": np.full(SIZE, step, np.uint8)})


def saved(folder: Path, *steps: int) -> Storage:
    """Return a place with checkpoints of these steps."""
    place = Storage(str(folder))
    for step in steps:
        save(place, step)
    return place


def read(of: Storage, step: int) -> bytes:
    source, found = InStorage(of, of.manifest(step)), b""
    for head in source.heads:
        with source.open(head.part) as whole:
            found += b"".join(whole[each.at : each.at + each.size] for each in head.tensors)
    return found


@pytest.mark.parametrize("where", ["{}", "file://{}", "memory://{}"])
def test_the_newest_ones_are_kept(tmp_path: Path, where: str) -> None:
    place = Storage(where.format(tmp_path / "new" / "folder"))
    for step in (5, 10, 15):
        save(place, step)
    assert place.steps() == [10, 15]
    assert read(place, 15) == bytes([15]) * SIZE * 2


def test_what_is_read_stays_for_ten_minutes_at_most(tmp_path: Path) -> None:
    now = [1000.0]
    place = Storage(str(tmp_path), lambda: now[0])
    save(place, 1)
    with place.pinned(1):
        save(place, 2, keep=1)
        assert place.steps() == [1, 2]
        now[0] += 601
        save(place, 3, keep=1)
        assert place.steps() == [3]
    with place.pinned(3):
        pass
    save(place, 4, keep=1)
    assert place.steps() == [4]


def test_nothing_is_there_before_the_first_save(tmp_path: Path) -> None:
    assert Storage(str(tmp_path / "absent")).steps() == []


@pytest.mark.parametrize("below", ["", "/run/7"])
def test_a_place_that_can_never_be_a_folder_is_refused_where_it_is_given(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()
    for where in (f"{file}{below}", f"file://{file}{below}"):
        with pytest.raises(ValueError, match=f"{file} is no folder: give a folder that all workers reach"):
            Storage(where)


@pytest.mark.parametrize("cut", [*range(0, 16_800, 411)])
def test_a_save_that_is_killed_at_any_byte_leaves_the_one_before(tmp_path: Path, cut: int) -> None:
    place = saved(tmp_path, 1, 2)
    if not (pid := os.fork()):
        left = [cut]

        def pour(blocks_: Iterable[memoryview], file: Any) -> None:
            for block in blocks_:
                file.write(block[: left[0]])
                file.flush()
                left[0] -= len(block)
                if left[0] < 0:
                    os._exit(9)

        storage._pour = pour
        save(place, 3)
        os._exit(0)
    os.waitpid(pid, 0)
    newest = place.steps()[-1]
    assert newest in (2, 3)
    assert read(place, newest) == bytes([newest]) * SIZE * 2
    save(place, 4)  # and what was left is swept with the next ones
    save(place, 5)
    assert {each.name for each in tmp_path.iterdir()} == {"step-000000004", "step-000000005"}


@pytest.mark.parametrize("cut", range(7))
def test_a_removal_that_is_killed_leaves_no_half_checkpoint(tmp_path: Path, cut: int) -> None:
    place = saved(tmp_path, 1, 2)
    if not (pid := os.fork()):
        done = [0]
        unlink = os.unlink

        def counted(path: Any, **more: Any) -> None:
            if done[0] == cut:
                os._exit(9)
            done[0] += 1
            unlink(path, **more)

        os.unlink = os.remove = counted
        save(place, 3)
        os._exit(0)
    os.waitpid(pid, 0)
    for step in place.steps():
        assert read(place, step) == bytes([step]) * SIZE * 2
    assert place.steps()[-1] in (2, 3)


@pytest.mark.parametrize("damage", [lambda found: found[:-1], lambda found: found[:-1] + b"!", lambda _: b""])
def test_a_damaged_part_is_told(tmp_path: Path, damage: Any) -> None:
    place = saved(tmp_path, 1)
    path = next(tmp_path.glob("*/part-00001*"))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        Damaged,
        match=r"part-00001-of-00002.r1\.[0-9a-f]{8} of step 1 is not what was|its head|it has 0",
    ):
        read(place, 1)


def test_a_checkpoint_set_aside_does_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = saved(tmp_path, 1)
    place.set_aside(1, "it is bad")
    place.set_aside(1, "it is bad")  # another worker was first
    assert place.steps() == []
    assert "the checkpoint of step 1" in caplog.text


@pytest.mark.parametrize(("where", "sentence"), [("s3://bucket/run", "s3fs"), ("ftpx://host/run", "ftpx")])
def test_a_url_without_its_package_is_refused_by_name(where: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"need a Python package for .*{sentence}"):
        Storage(where)
