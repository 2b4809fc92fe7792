"""Blocks in shared memory: the newest whole one is never lost, and a reader never sees half of one."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.trainer.agent.checkpoints.commits import spill
from elasticjob.trainer.checkpoint import memory, part
from elasticjob.trainer.checkpoint.choice import Chosen, Offer, choose
from elasticjob.trainer.checkpoint.memory import NoRoom, Writer
from elasticjob.trainer.checkpoint.part import Damaged, Head, Save, Shape

PLACES, AT = part.place([Shape("w", "uint8", (1000,), 1), Shape("v", "uint8", (3,), 1)])


class Died(Exception):
    """The writer was killed."""


def save(writer: Writer, step: int, *, dies: bool = False) -> None:
    body = part.encode(Head(step=step, round=1, tensors=PLACES))
    with writer.block(AT + len(body)) as block:
        for each in PLACES:
            block[each.at : each.at + each.size] = bytes([step % 256]) * each.size
            if dies:
                raise Died
        part.seal(block, body, AT)


def saved(folder: Path, *steps: int) -> Writer:
    """Return a writer that has saved these steps."""
    writer = Writer(folder, "slot-0")
    for step in steps:
        save(writer, step)
    return writer


def steps(folder: Path) -> list[int]:
    return [each.head.step for each in memory.blocks_of(folder)]


def content(folder: Path) -> set[int]:
    newest = memory.blocks_of(folder)[0]
    with memory.reading(newest.path) as block:
        return {value for each in newest.head.tensors for value in block[each.at : each.at + each.size]}


def test_the_newest_two_are_kept_in_two_blocks(tmp_path: Path) -> None:
    writer = Writer(tmp_path, "slot-0")
    for step in range(1, 6):
        save(writer, step)
        assert content(tmp_path) == {step}
    assert steps(tmp_path) == [5, 4]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_writer_that_dies_leaves_the_block_before(tmp_path: Path) -> None:
    writer = saved(tmp_path, 1, 2)
    with pytest.raises(Died):
        save(writer, 3, dies=True)
    assert steps(tmp_path) == [2]
    saved(tmp_path, 4)  # by the process that comes after it
    assert steps(tmp_path) == [4, 2]


def test_a_block_that_is_read_is_not_overwritten_and_holds_nobody_up(tmp_path: Path) -> None:
    writer = saved(tmp_path, 1)
    with memory.reading(memory.blocks_of(tmp_path)[0].path) as block:
        for step in (2, 3, 4):
            save(writer, step)
        assert block[PLACES[0].at] == 1
        assert steps(tmp_path) == [4, 3, 1]
    save(writer, 5)
    assert steps(tmp_path) == [5, 4, 3]


def test_without_a_free_block_the_newest_one_stays(tmp_path: Path) -> None:
    writer = saved(tmp_path, 1, 2)
    locks = [memory.lock(each.path, fcntl.LOCK_SH) for each in memory.blocks_of(tmp_path)]
    save(writer, 3)
    with pytest.raises(NoRoom, match=r"other blocks of slot-0 .* are being read"):
        save(writer, 4)
    assert steps(tmp_path) == [3, 2, 1]
    for fd in locks:
        assert fd is not None
        memory.unlock(fd)


def test_memory_is_taken_for_the_first_saves_and_never_from_a_whole_block(tmp_path: Path) -> None:
    Writer(tmp_path, "slot-0").prepare(9000)
    pages = {path.name: path.stat().st_blocks for path in tmp_path.iterdir()}
    assert set(pages) == {"slot-0.0", "slot-0.1"}
    assert all(pages.values())
    assert steps(tmp_path) == []
    saved(tmp_path, 1, 2, 3)
    for size in (1 << 16, 1 << 50):
        Writer(tmp_path, "slot-0").prepare(size)
        assert steps(tmp_path) == [3, 2]


def test_a_block_is_pinned_while_it_is_mapped(tmp_path: Path) -> None:
    pinned: list[int] = []

    def pin(block: memoryview) -> Callable[[], object]:
        pinned.append(len(block))
        return lambda: pinned.remove(len(block))  # of a block that is unmapped there is no length

    writer = Writer(tmp_path, "slot-0", pin)
    for step in range(1, 5):
        save(writer, step)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert pinned == sizes
    with writer.block(1 << 16):
        assert sorted(pinned) == [sizes[0], 1 << 16]
    writer.close()
    assert pinned == []
    save(writer, 5)
    del writer
    assert pinned == []


def test_too_little_memory_is_an_error_and_no_signal(tmp_path: Path) -> None:
    writer = saved(tmp_path, 1)
    with pytest.raises(NoRoom, match="no memory for a checkpoint of"), writer.block(1 << 50):
        pass
    assert steps(tmp_path) == [1]


def test_what_memory_has_no_room_for_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, beside = tmp_path / "memory", tmp_path / "disk"
    folder.mkdir()
    beside.mkdir()
    spill(folder, beside)
    reserve = memory._reserve

    def small(fd: int, path: Path, size: int) -> None:
        if path.parent == folder and not path.is_symlink():
            raise NoRoom(28, f"no memory for a checkpoint of {size} bytes")
        reserve(fd, path, size)

    monkeypatch.setattr(memory, "_reserve", small)
    writer = Writer(folder, "slot-0")
    for step in range(1, 5):
        save(writer, step)
        assert content(folder) == {step}
    assert steps(folder) == [4, 3]
    assert {each.name for each in (beside / "spill").iterdir()} == {"slot-0.0", "slot-0.1"}


@given(st.integers(0, 5000))
def test_no_byte_of_the_head_can_change_unseen(position: int) -> None:
    head = Head(step=7, round=2, tensors=PLACES, rest=b"x" * 100)
    body = part.encode(head)
    block = bytearray(AT + len(body))
    part.seal(memoryview(block), body, AT)
    assert part.head_of(lambda at, size: bytes(block[at : at + size])) == head
    place = position % len(body) + AT
    block[place] ^= 1
    with pytest.raises(Damaged):
        part.head_of(lambda at, size: bytes(block[at : at + size]))


SAVES = {"a": Save(10, 1), "b": Save(20, 1), "c": Save(20, 2)}


@pytest.mark.parametrize(
    ("offers", "stored", "chosen"),
    [
        ([[]], {}, []),
        ([["a0/1"], ["a0/1", "b0/1"]], {}, [("b", ((1,),)), ("a", ((0, 1),))]),
        ([["a0/2", "b0/2"], ["a1/2"]], {}, [("a", ((0,), (1,)))]),  # half of a step is none
        ([["b0/2", "b1/2"], []], {"a": 2}, [("b", ((0,), (0,))), ("a", ())]),  # the copy of a lost node's
        ([["b0/2"], ["c1/2"]], {"a": 2}, [("a", ())]),  # of two rounds
        ([["b0/1"]], {"b": 1, "c": 1}, [("c", ()), ("b", ((0,),)), ("b", ())]),
    ],
)
def test_the_newest_whole_save_is_chosen(
    offers: list[list[str]], stored: dict[str, int], chosen: list[tuple[str, tuple[tuple[int, ...], ...]]]
) -> None:
    given = [[Offer(*SAVES[each[0]], int(each[1]), int(each[3])) for each in worker] for worker in offers]
    found = choose(given, {SAVES[name]: parts for name, parts in stored.items()})
    assert found == [Chosen(SAVES[name], holders) for name, holders in chosen]
