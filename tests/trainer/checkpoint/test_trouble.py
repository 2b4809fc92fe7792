"""A reader's trouble is no verdict on the data: nothing is set aside, renamed or removed because of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
from fsspec.implementations.local import LocalFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.trainer.checkpoint.arrays import block_of
from elasticjob.trainer.checkpoint.flash import Flash
from elasticjob.trainer.checkpoint.memory import FOLDER
from elasticjob.trainer.checkpoint.newest import PATIENCE
from elasticjob.trainer.checkpoint.part import Damaged, Head, Newer, Save
from elasticjob.trainer.checkpoint.sources import InStorage
from elasticjob.trainer.checkpoint.storage import Manifest, Storage, Trouble
from elasticjob.trainer.torch.saving.tensors import Tensors
from tests.trainer.meeting import Meeting

ERRORS = {
    "a time-out": TimeoutError(110, "Connection timed out"),
    "no permission": PermissionError(13, "Permission denied"),
    "a stale handle": OSError(116, "Stale file handle"),
    "no file": FileNotFoundError(2, "No such file or directory"),
    "an error that is no OSError": RuntimeError("SlowDown: please reduce your request rate"),
}


class Troubled(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Local files, of which some cannot be read at times."""

    protocol = "troubled"
    cachable = False
    fails: Callable[[str], Exception | None] = staticmethod(lambda _: None)

    def cat_file(
        self, path: str, version_id: Any = None, start: Any = None, end: Any = None, **more: Any
    ) -> bytes:
        """Take arguments in the order of s3fs."""
        self._fail(path)
        found: bytes = super().cat_file(path, start=start, end=end, **more)
        return found

    def open(self, path: str, *more: Any, **named: Any) -> Any:
        self._fail(path)
        return super().open(path, *more, **named)

    def ls(self, path: str, *more: Any, **named: Any) -> Any:
        self._fail(path)
        return super().ls(path, *more, **named)

    def _fail(self, path: str) -> None:
        if (error := Troubled.fails(str(path))) is not None:
            raise error


fsspec.register_implementation("troubled", Troubled, clobber=True)


@dataclass
class Run:
    """Workers that begin together; each has the place of its node, in virtual time."""

    places: list[str]
    waited: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    memory: Path | None = None

    def load(self, patience: float = 8.0) -> list[tuple[Any, Save] | None]:
        """Return what each worker begins with."""
        meeting = Meeting(len(self.places))

        def worker(rank: int) -> tuple[Any, Save] | None:
            def pause(seconds: float) -> None:
                if rank == 0:
                    self.waited.append(seconds)
                meeting.wait()

            environment = {PATIENCE: str(patience)}
            environment |= {FOLDER: str(self.memory)} if self.memory else {}
            flash = Flash(self.places[rank], Tensors(), keep=2, environment=environment, say=self._say)
            found = flash.load(meeting.exchange(rank), rank, vessels, pause=pause)
            if found is not None and "w" in found[0]:
                assert int(found[0].pop("w")) == found[0]["at"]
            return found

        with ThreadPoolExecutor(len(self.places)) as pool:
            return list(pool.map(worker, range(len(self.places))))

    def _say(self, message: Any) -> None:
        self.told.append(message.problem)


def vessels(_: Any, tensors: Any) -> dict[str, torch.Tensor]:
    return {each.name: torch.empty((), dtype=torch.int64) for each in tensors}


def save(place: str, *steps: int) -> None:
    flash = Flash(place, Tensors(), keep=9, environment={}, say=lambda _: None)
    for step in steps:
        state = {"at": step, "w": torch.tensor(step)}
        flash.save(state, Save(step, 1), 0, persist=True, exchange=lambda data: [data])


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.fixture
def heals() -> Iterator[Callable[[], None]]:
    """Ends all trouble, at the latest after the test."""

    def heal() -> None:
        Troubled.fails = staticmethod(lambda _: None)

    yield heal
    heal()


@pytest.mark.parametrize(
    "what", ["", "manifest", "index", "part"], ids=["listing", "manifest", "index", "part"]
)
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS.keys())
def test_a_start_that_cannot_read_fails_and_changes_nothing(
    tmp_path: Path, heals: Callable[[], None], what: str, error: Exception
) -> None:
    if not what and isinstance(error, FileNotFoundError):
        pytest.skip("a place that is not there is a new one")
    place = f"troubled://{tmp_path}"
    save(place, 5, 10)
    before = files(tmp_path)
    Troubled.fails = staticmethod(lambda path: error if what in path.rpartition("/")[2] else None)
    run = Run([place])
    for _ in range(2):
        with pytest.raises(Trouble, match=r"cannot be read, so the training does not begin, and nothing"):
            run.load()
    assert sum(run.waited) == 2 * 8.0
    assert run.told[0].startswith(f"{place} cannot be read: rank 0: ")
    assert files(tmp_path) == before
    heals()
    assert run.load() == [({"at": 10}, Save(10, 1))]


def test_trouble_that_passes_is_waited_for_and_told(tmp_path: Path, heals: Callable[[], None]) -> None:
    place, left = f"troubled://{tmp_path}", [2]
    save(place, 5)

    def fails(path: str) -> Exception | None:
        left[0] -= "part-" in path
        return ERRORS["a time-out"] if "part-" in path and left[0] >= 0 else None

    Troubled.fails = staticmethod(fails)
    run = Run([place])
    assert run.load() == [({"at": 5}, Save(5, 1))]
    assert run.waited == [1.0, 2.0]
    assert run.told[-1] == ""


@pytest.mark.parametrize("without", [0, 1])
def test_a_mount_that_is_missing_on_one_node_is_no_damage(tmp_path: Path, without: int) -> None:
    here, empty = tmp_path / "here", tmp_path / "empty"
    empty.mkdir()
    save(str(here), 5, 10)
    before, places = files(here), [str(here), str(here)]
    places[without] = str(empty)
    with pytest.raises(Trouble, match=rf"rank {without}: .*empty.*No such file"):
        Run(places).load(patience=0)
    assert files(here) == before


def test_a_newer_format_is_no_damage(tmp_path: Path) -> None:
    save(str(tmp_path), 5, 10)
    path = max(tmp_path.glob("step-*/manifest.json"))
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"format": 3}))
    before = files(tmp_path)
    with pytest.raises((Trouble, Newer), match="format 3, and this program reads format 2: use a newer"):
        Run([str(tmp_path)]).load(patience=0)
    assert files(tmp_path) == before


def test_no_start_begins_anew_beside_damaged_checkpoints(tmp_path: Path) -> None:
    save(str(tmp_path), 5, 10)
    for path in tmp_path.glob("*/index*"):
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    told = r"no checkpoint in .* can be read: step 5, 10 are damaged.*give another place, or move its step-\*"
    for _ in range(3):
        with pytest.raises(Damaged, match=told):
            Run([str(tmp_path)] * 2).load()
    parts = {name for name in files(tmp_path) if "part" in name}
    assert len(parts) == 2
    save(str(tmp_path), *range(15, 100, 5))
    place = Storage(str(tmp_path))
    place.commit(place.manifest(95), place.heads(place.manifest(95)), keep=1)
    assert parts < files(tmp_path).keys()
    assert Run([str(tmp_path)]).load() == [({"at": 95}, Save(95, 1))]


def test_a_place_that_was_seen_with_a_checkpoint_is_no_new_one_when_it_is_empty(tmp_path: Path) -> None:
    """As on a node whose mount is lost while the others, who still have it, are gone."""
    place, aside, memory = (tmp_path / name for name in ("place", "aside", "memory"))
    memory.mkdir()
    save(str(place), 5)
    run = Run([str(place)], memory=memory)
    assert run.load() == [({"at": 5}, Save(5, 1))]
    place.rename(aside)
    for _ in range(2):
        with pytest.raises(Trouble, match=f"step 5 was in {place} before, and nothing is now"):
            run.load()
    kept = Flash(str(place), Tensors(), keep=1, environment={FOLDER: str(memory)}, say=lambda _: None)
    kept.save({"at": 7}, Save(7, 1), 0, persist=False, exchange=lambda data: [data])
    assert run.load() == [({"at": 7}, Save(7, 1))]
    for each in memory.glob("slot-*"):
        each.unlink()
    aside.rename(place)
    assert run.load() == [({"at": 5}, Save(5, 1))]
    kept.close()


def test_a_damaged_manifest_that_cannot_be_set_aside_is_no_empty_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: Any) -> None:
        raise Trouble("Read-only file system")

    save(str(tmp_path), 5)
    (tmp_path / "step-000000005" / "manifest.json").write_text("{")
    monkeypatch.setattr(Storage, "set_aside", read_only)
    before = files(tmp_path)
    for _ in range(2):
        with pytest.raises(Damaged, match="step 5 is damaged"):
            Run([str(tmp_path)]).load()
    assert files(tmp_path) == before


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_manifest_with_a_wrong_byte_is_never_another_checkpoint(data: st.DataObject) -> None:
    """Its bytes are damaged, newer, or name a part that is not there; else they say the same as before."""
    with TemporaryDirectory() as folder:
        save(folder, 5)
        path = Path(folder, "step-000000005", "manifest.json")
        found = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(found) - 1))
        found[at] = data.draw(st.integers(0, 255))
        path.write_bytes(found)
        try:
            assert Run([folder]).load() == [({"at": 5}, Save(5, 1))]
        except (Damaged, Newer, Trouble):
            assert {"step-000000005"} == {each.name for each in Path(folder).iterdir()}


ACTS = st.sampled_from(["save", "again", "damage", "start"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ACTS, st.integers(1, 3)), max_size=12))
def test_the_newest_readable_one_is_never_removed(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("kept")
    place, good, step = Storage(str(folder)), dict[int, bytes](), 0
    for act, number in acts:
        if act in ("save", "again"):
            step += act == "save" or not step
            content = os.urandom(64)
            written, head = place.write(block(step, content))
            place.commit(Manifest(step, 1, (written,)), [head], keep=number)
            good = {each: found for each, found in good.items() if each in place.steps()} | {step: content}
        elif act == "damage" and good:
            for path in (folder / f"step-{max(good):09d}").glob("part*"):
                path.write_bytes(b"half")
            del good[max(good)]
        elif act == "start":
            for each in reversed(place.steps()):
                aside = place.aside()
                try:
                    content_of(place, each)
                except Damaged as error:
                    place.set_aside(each, str(error))
                    aside.append(each)
                assert set(aside) <= set(place.aside())
                if each in good:
                    break
        assert all(list(folder.glob(f"step-{each:09d}/part*")) for each in place.aside())
        if good:
            newest = max(good)
            assert content_of(place, newest) == good[newest]


def block(step: int, content: bytes) -> memoryview:
    return block_of(Head(step=step, round=1), {"w": np.frombuffer(content, np.uint8)})


def content_of(place: Storage, step: int) -> bytes:
    source = InStorage(place, place.manifest(step))
    with source.open(0) as found:
        return b"".join(found[each.at : each.at + each.size] for each in source.heads[0].tensors)


def test_a_step_that_is_saved_again_does_not_touch_the_committed_one(tmp_path: Path) -> None:
    place = Storage(str(tmp_path))
    first, head = place.write(block(5, b"without scores"))
    place.commit(Manifest(5, 1, (first,)), [head], keep=2)
    second, head = place.write(block(5, b"with scores"))  # killed before the manifest
    assert content_of(place, 5) == b"without scores"
    place.commit(Manifest(5, 1, (second,)), [head], keep=2)
    assert [each.name for each in tmp_path.glob("*/part*")] == [second.name]


def test_a_relative_place_is_where_the_script_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    flash = Flash("run", Tensors(), keep=1, environment={}, say=lambda _: None)
    monkeypatch.chdir(tmp_path / "sub")
    flash.save({"at": 3}, Save(3, 1), 0, persist=True, exchange=lambda data: [data])
    monkeypatch.chdir(tmp_path)
    assert Run(["run"]).load() == [({"at": 3}, Save(3, 1))]


def test_a_folder_whose_name_is_no_utf_8_is_one(tmp_path: Path) -> None:
    place = os.fsdecode(os.fsencode(tmp_path) + b"/donn\xe9es")
    save(place, 4)
    assert Run([place]).load() == [({"at": 4}, Save(4, 1))]
    (Path(place) / "step-000000004" / "manifest.json").write_text("{")
    with pytest.raises(Damaged):
        Run([place]).load()
