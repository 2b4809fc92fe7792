"""Checkpoints of the store: whole or not there, whoever dies, and whatever becomes of their bytes."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch

from elasticjob.api.rpc.parameters import Kept
from elasticjob.api.rpc.shards import Dataset, Position
from elasticjob.cli.commands.checkpoint import export, show
from elasticjob.cli.errors import Exit
from elasticjob.trainer.checkpoint.part import Damaged
from elasticjob.trainer.checkpoint.storage import Storage, Trouble
from elasticjob.trainer.store import SGD, Adam, Table, Zeros, read
from elasticjob.trainer.store.applied_updates import AppliedUpdates, Key
from elasticjob.trainer.store.partitions import partitions_of
from elasticjob.trainer.store.saved import Commits, Files
from elasticjob.trainer.store.serve import ServerCheckpoints
from elasticjob.trainer.store.server import Server
from elasticjob.trainer.store.tables import PARTITIONS, Slab
from elasticjob.trainer.store.wire import Partitions
from lab.archives import unpack

SEEN, USERS = Table("seen", 1, SGD(1.0), Zeros()), Table("a/b", 3, Adam(0.1), seed=4)
IDS = np.arange(200, dtype=np.int64)


def kept(number: int, next: int = 2, applied: int = 100) -> Kept:
    """Return a checkpoint with the position of its only dataset."""
    dataset = Dataset(name="records", size=200, shard=50)
    return Kept(number=number, positions=(Position(dataset=dataset, next=next, applied=applied),))


POSITIONS = kept(0).positions


def of(partitions: range, count: int) -> Partitions:
    """Return partitions in which each row was counted so often."""
    slabs = Slab(SEEN), Slab(USERS)
    for _ in range(count):
        slabs[0].set(slabs[0].change(IDS, -np.ones((len(IDS), 1), np.float32)))
        slabs[1].set(slabs[1].change(IDS, np.ones((len(IDS), 3), np.float32)))
    counted = AppliedUpdates()
    counted.add(Key("records", count, 0, 50))
    return Partitions(tuple(slab.part(partitions) for slab in slabs), dict.fromkeys(partitions, counted))


def save(files: Files, number: int, servers: int = 2) -> bool:
    """Save as so many servers do; return whether all of them were told that the checkpoint exists."""
    commits, why = Commits(files), list[str]()
    written = [
        files.write(number, of(partitions_of(place, servers), number), POSITIONS) for place in range(servers)
    ]
    for each in (*written, *written[:-1]):
        why.append(commits.add(number, each))
    assert all("parts are not written yet" in each for each in why[: servers - 1])
    return not any(why[servers - 1 :])


def counts(where: Path | str, number: int | None = None) -> set[float]:
    ids, rows = read(where, "seen", number)
    assert ids.tolist() == IDS.tolist()
    return set(rows[:, 0].tolist())


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two checkpoints."""
    folder = tmp_path_factory.mktemp("saved")
    for number in (1, 2):
        assert save(Files(folder), number)
    return folder


@pytest.mark.parametrize("where", ["folder", "memory://store"])
def test_any_number_of_servers_reads_what_others_wrote(tmp_path: Path, where: str) -> None:
    files = Files(tmp_path / where if where == "folder" else where)
    try:
        assert files.newest() is None
        assert save(files, 7)
        assert files.newest() == kept(7)
        [mine] = files.read(7, [13])
        assert mine == of(range(13, 14), 7)
        assert counts(files.where) == {7.0}
        assert read(files.where, "a/b")[1].shape == (200, 3)
    finally:
        if where != "folder":
            fsspec.filesystem("memory").rm("/store", recursive=True)


def test_tables_are_exported_whole(tmp_path: Path, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(str(saved), tmp_path / "all.pt")
    state = torch.load(tmp_path / "all.pt")
    assert {name: [*each] for name, each in state.items()} == {
        "seen": ["ids", "values"],
        "a/b": ["ids", "values", "state"],
    }
    for name, given in state.items():
        ids, values = read(saved, name)
        order = given["ids"].argsort()
        assert given["ids"][order].tolist() == ids.tolist()
        assert given["values"][order].tolist() == values.tolist()
    assert state["a/b"]["state"].shape == (200, 7)
    assert show(str(saved)) == Exit.DONE
    assert "values  float32  200×3" in capsys.readouterr().out


def test_a_table_without_rows_is_exported(tmp_path: Path) -> None:
    parts = Partitions(
        (Slab(USERS).part(range(PARTITIONS)),), {each: AppliedUpdates() for each in range(PARTITIONS)}
    )
    files = Files(tmp_path / "kept")
    files.commit(1, files.write(1, parts, ()))
    export(files.where, tmp_path / "all.pt")
    assert torch.load(tmp_path / "all.pt")["a/b"]["values"].shape == (0, 3)


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("part", [0, 40])
def test_a_part_that_stays_missing_is_damage(tmp_path: Path, saved: Path, part: int) -> None:
    """Until then it is trouble, which changes nothing: storage may show it late."""
    seconds = [0.0]
    files = Files(shutil.copytree(saved, tmp_path / "kept"), patience=120.0, clock=lambda: seconds[0])
    [path] = (tmp_path / "kept").glob(f"step-000000002/part-{part:05d}-*")
    path.unlink()
    for now in (0.0, 119.0):
        seconds[0] = now
        with pytest.raises(Trouble, match=f"part-{part:05d}"):
            list(files.read(2, range(PARTITIONS)))
    seconds[0] = 120.0
    with pytest.raises(Damaged, match=f"missing, for 120 s: .*part-{part:05d}"):
        list(files.read(2, range(PARTITIONS)))
    assert files.newest() == kept(2 if part else 1)


def test_a_start_waits_for_a_missing_part_and_takes_the_older_checkpoint(tmp_path: Path, saved: Path) -> None:
    seconds = [0.0]
    files = Files(shutil.copytree(saved, tmp_path / "kept"), clock=lambda: seconds[0])
    [path] = (tmp_path / "kept").glob("step-000000002/part-00000-*")
    path.unlink()

    def pause(given: float) -> None:
        seconds[0] += given

    with Server("127.0.0.1", 0, token="secret", files=files) as server:
        found = ServerCheckpoints(server, files, pause).newest()
    assert (found, seconds) == (kept(1), [120.0])


def foreign(path: Path) -> None:
    path.write_bytes(b"{}")


@pytest.mark.parametrize("damage", [torn, flipped, foreign])
@pytest.mark.parametrize("what", ["part-00000-*", "part-00040-*", "manifest.json"])
def test_damage_is_found_and_the_older_one_is_taken(
    tmp_path: Path, saved: Path, caplog: pytest.LogCaptureFixture, what: str, damage: Callable[[Path], None]
) -> None:
    """By whoever reads it: a head, or a manifest, at the start, and rows when they are taken over."""
    folder = shutil.copytree(saved, tmp_path / "kept")
    files = Files(folder)
    [path] = folder.glob(f"step-000000002/{what}")
    damage(path)
    if what == "manifest.json" and damage is flipped:
        path.write_bytes(path.read_bytes().replace(b"step", b"stop"))
    newest = files.newest()
    assert newest
    if newest.number == 2:
        with pytest.raises(Damaged, match=r"part-000[04]0-.* is not what was written") as error:
            list(files.read(2, range(PARTITIONS)))
        files.set_aside(2, str(error.value))
    assert files.newest() == kept(1)
    with pytest.raises(Damaged, match="it was set aside"):
        counts(folder, 2)
    assert counts(folder) == {1.0}
    assert f"the checkpoint of step 2 in {folder} is damaged and is not used: " in caplog.text
    assert path.name in caplog.text or "manifest" in caplog.text


def test_where_all_are_damaged_nothing_begins_anew(tmp_path: Path) -> None:
    files = Files(tmp_path)
    save(files, 3)
    torn(next(tmp_path.glob("*/part-00000-*")))
    for _ in range(2):
        with pytest.raises(Damaged, match=r"step 3 is damaged.*does not begin anew by itself"):
            files.newest()


def test_storage_that_cannot_be_read_at_the_start_is_waited_for(
    tmp_path: Path, saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(Files):
        """Cannot be reached at first."""

        def newest(self) -> Kept | None:
            if len(pauses) < 2:
                raise Trouble("the mount is not there")
            return super().newest()

    pauses = list[float]()
    with Server("127.0.0.1", 0, token="secret") as server:
        found = ServerCheckpoints(server, Away(saved), pauses.append).newest()
    assert found == kept(2)
    assert caplog.text.count("cannot be read, next look in") == len(pauses) == 2


def test_a_part_that_the_committer_does_not_see_is_told(tmp_path: Path) -> None:
    here, there = Files(tmp_path / "here"), Files(tmp_path / "there")
    commits = Commits(here)
    assert commits.add(5, here.write(5, of(partitions_of(0, 2), 5), POSITIONS)).startswith("32 of its 64")
    with pytest.raises(Trouble, match=r"part-00032-of-00064.*No such file"):
        commits.add(5, there.write(5, of(partitions_of(1, 2), 5), POSITIONS))
    assert here.newest() is None


def test_only_the_last_two_that_count_stay(tmp_path: Path) -> None:
    files = Files(tmp_path)
    for number in (1, 2, 3, 4):
        assert save(files, number)
    files.write(3 + 2, of(partitions_of(0, 2), 5), POSITIONS)
    files.keep(3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"step-00000000{each}" for each in (2, 3, 4, 5)
    ]
    assert save(files, 6)
    files.keep(6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000004", "step-000000006"]


def test_the_command_line_shows_and_verifies_them(
    tmp_path: Path, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(shutil.copytree(saved, tmp_path / "kept"))
    assert show(folder, verify=True, as_json=True) == Exit.DONE
    told = json.loads(capsys.readouterr().out)
    assert [(each["step"], each["condition"]) for each in told["checkpoints"]] == [(1, "whole"), (2, "whole")]
    assert [*told["state"]] == ["seen", "a/b"]
    flipped(next(tmp_path.glob("kept/step-000000002/part-00063-*")))
    assert show(folder, verify=True) == Exit.FAILED
    assert "step 2" in (out := capsys.readouterr().out)
    assert "damaged: part-00063-of-00064" in out


class Killed(BaseException):
    """The end of a process."""


class Dying(Storage):
    """Ends its process at one of the places where it changes a file."""

    left = 0

    def _write(self, path: str, blocks_: Sequence[memoryview]) -> None:
        self._pass(lambda: Path(f"{path}.0.tmp").touch())
        super()._write(path, blocks_)
        self._pass()

    def _remove(self, step: int) -> None:
        self._pass(lambda: (Path(self._folder(step)) / "manifest.json").unlink(missing_ok=True))
        super()._remove(step)
        self._pass()

    def _pass(self, leaves: Callable[[], object] = bool) -> None:
        if self.left == 0:
            leaves()
            raise Killed
        self.left -= 1


@pytest.mark.parametrize("left", [0, 1, 64, 127, 128, 130, 131, 132, 133])
def test_whoever_dies_when_a_checkpoint_that_counts_can_be_read(
    tmp_path: Path, saved: Path, left: int
) -> None:
    """64 parts, each with two places to die, an index and a manifest with two, and a removal."""
    folder, counting = tmp_path / "kept", 2
    files = Files(shutil.copytree(saved, folder))
    files._storage = dying = Dying(str(folder))
    dying.left = left
    try:
        if save(files, 3):
            counting = 3
            files.keep(3)
        raise AssertionError
    except Killed:
        assert counting == (3 if left > 131 else 2)
    assert counts(folder, counting) == {float(counting)}
    after = Files(folder)
    newest = after.newest()
    assert newest == kept(3 if left >= 131 else 2)
    assert counts(folder) == {float(newest.number)}
    assert save(after, 4, servers=3)
    after.keep(4)
    assert there(folder) == [newest.number, 4]
    assert not list(folder.glob("*/*.tmp"))


def there(folder: Path) -> list[int]:
    """Return the steps of which there are files."""
    return sorted(int(path.name.removeprefix("step-")) for path in folder.iterdir())


def test_checkpoints_of_earlier_versions_are_read_and_replaced(tmp_path: Path) -> None:
    """Made by the version before: 50 records in 7, 100 in 9."""
    with tarfile.open(Path(__file__).with_name("earlier.tar.xz")) as archive:
        unpack(archive, tmp_path)
    (tmp_path / "2026").mkdir()
    (tmp_path / "2026" / "of somebody").touch()
    files = Files(tmp_path)
    assert files.newest() == kept(9, next=2, applied=100)
    assert read(tmp_path, "seen")[0].tolist() == list(range(100))
    assert read(tmp_path, "users", 7)[1].shape == (50, 3)
    torn(tmp_path / "9" / "13")
    with pytest.raises(Damaged, match=r"9/13 cannot be read") as error:
        list(files.read(9, range(PARTITIONS)))
    files.set_aside(9, str(error.value))
    assert files.newest() == kept(7, next=1, applied=50)
    save(files, 10)
    files.keep(10)
    assert {path.name for path in tmp_path.iterdir()} == {"2026", "7", "step-000000010"}
    save(files, 11)
    files.keep(11)
    assert {path.name for path in tmp_path.iterdir()} == {"2026", "step-000000010", "step-000000011"}


def test_files_of_the_folders_own_stay(tmp_path: Path) -> None:
    shutil.copy(__file__, tmp_path)
    files = Files(tmp_path)
    for number in (1, 2, 3):
        save(files, number)
        files.keep(number)
    assert (tmp_path / Path(__file__).name).exists()
