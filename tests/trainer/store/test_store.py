"""Workers of a store with a real master: changes at the end of the data, and values that go back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from elasticjob.api.rpc import environment as names
from elasticjob.trainer.link.address import Way
from elasticjob.trainer.parameters import Serving
from elasticjob.trainer.shards import Dataset
from elasticjob.trainer.store import SGD, Store, Table, Zeros, read, serve, store
from elasticjob.trainer.store.applied_updates import Key
from elasticjob.trainer.store.given import StoreError
from elasticjob.trainer.store.saved import Files
from elasticjob.trainer.store.serve import ServerCheckpoints
from elasticjob.trainer.store.server import Server
from elasticjob.trainer.store.store import Batch, Waits, fits
from elasticjob.trainer.store.tables import PARTITIONS
from elasticjob.trainer.store.wire import Gradients, Pull, Push
from lab.jobs.training.consumers import consuming
from lab.waiting import PATIENCE

DATA = Dataset(name="records", size=120, shard=40)
SEEN = Table("seen", 1, SGD(1.0), Zeros())
KEY = Key("records", 0, 0, 10)


class Place:
    """A folder with the master's address, and the processes of a job in this one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kept = folder, folder / "kept"
        self.kept.mkdir()

    def way(self, node: str) -> Way:
        address = (self.folder / "address").read_text()
        return Way(address=address, token_file=str(self.folder / "token"), node=node)

    def serve(self, index: int) -> ExitStack:
        """Return a server that runs until the stack is closed."""
        stack, files = ExitStack(), Files(self.kept, patience=0.0)
        server = stack.enter_context(Server("127.0.0.1", 0, token="secret", files=files))
        checkpoints, way = ServerCheckpoints(server, files), self.way(f"ps-{index}")
        stack.enter_context(
            Serving(server.address, server, checkpoints=checkpoints, copies=True, index=index, way=way)
        )
        return stack

    def store(self, node: str) -> Store:
        return Store([SEEN], DATA, save_every=1e6, way=self.way(node))

    def counts(self) -> list[float]:
        ids, rows = read(self.kept, "seen")
        found = dict(zip((ids // PARTITIONS).tolist(), rows[:, 0].tolist(), strict=True))
        return [found.get(record, 0.0) for record in range(DATA.size)]


def push(batch: Batch) -> None:
    """Count each record in a row of its own: all in one partition, which so sees all batches of a shard."""
    rows = PARTITIONS * np.asarray(batch.records)
    batch.push({"seen": (rows, -np.ones((len(rows), 1)))})


def test_servers_change_while_a_worker_waits_for_what_another_one_may_return(tmp_path: Path) -> None:
    place, idle = Place(tmp_path), threading.Event()
    with consuming(tmp_path, DATA, []), place.serve(0):

        def other() -> None:
            with place.store("w-1") as store:
                idle.set()
                for batch in store.batches(40):
                    push(batch)

        thread = threading.Thread(target=other)
        with place.store("w-0") as store:
            for batch in store.batches(40):
                if batch.shard.number == 0:
                    thread.start()
                    assert idle.wait(PATIENCE)
                    servers = place.serve(1)
                    while not store.at_boundary():
                        threading.Event().wait(0.02)
                push(batch)
        thread.join(PATIENCE)
        assert not thread.is_alive()
        servers.close()
    assert place.counts() == [1.0] * DATA.size


def test_values_that_go_back_in_a_batch_lose_no_record(tmp_path: Path) -> None:
    """The batch at work was pulled from servers that are lost: it is no update of those that follow."""
    place, made = Place(tmp_path), 0
    with consuming(tmp_path, DATA, []):
        servers = [place.serve(0), place.serve(1)]
        with place.store("w-0") as store:
            for batch in store.batches(10):
                made += 1
                if made == 2:
                    saved(place, store, 1)
                if made == 4:
                    for each in servers:
                        each.close()
                    servers = [place.serve(0), place.serve(1)]
                    store.pull("seen", range(10))
                push(batch)
        for each in servers:
            each.close()
    assert made > DATA.size // 10
    assert place.counts() == [1.0] * DATA.size


def saved(place: Place, store: Store, number: int) -> list[Path]:
    """Save until there are so many checkpoints; return their folders."""
    while len(list(place.kept.glob("*/manifest.json"))) < number:
        store.save()  # again: while servers change, nothing is saved
        threading.Event().wait(0.05)
        store.at_boundary()
    while store._following.last_checkpoint < int(max(place.kept.iterdir()).name.removeprefix("step-")):
        threading.Event().wait(0.02)
    return sorted(place.kept.iterdir())


def tear(folder: Path, part: int) -> None:
    """Damage a part of a checkpoint."""
    [path] = folder.glob(f"part-{part:05d}-*")
    path.write_bytes(path.read_bytes()[:-1])


def remove(folder: Path, part: int) -> None:
    """Remove a part of a checkpoint."""
    [path] = folder.glob(f"part-{part:05d}-*")
    path.unlink()


@pytest.mark.parametrize(("part", "harm"), [(0, tear), (13, tear), (13, remove)])
def test_values_go_back_to_the_older_checkpoint_if_the_newest_is_damaged(
    tmp_path: Path, part: int, harm: Callable[[Path, int], None]
) -> None:
    place, made = Place(tmp_path), 0
    with consuming(tmp_path, DATA, []) as job:
        servers = [place.serve(0), place.serve(1)]
        with place.store("w-0") as store:
            for batch in store.batches(10):
                made += 1
                if made in (2, 4):
                    newest = saved(place, store, made // 2)[-1]
                if made == 6:
                    harm(newest, part)
                    for each in servers:
                        each.close()
                    servers = [place.serve(0), place.serve(1)]
                push(batch)
        told = [each["message"] for each in job.status()["findings"]]
        for each in servers:
            each.close()
    assert part == 0 or any(f"part-{part:05d}-" in each and "is damaged" in each for each in told)
    assert (newest / "manifest.json.damaged").exists()
    assert made == DATA.size // 10 + 5
    assert place.counts() == [1.0] * DATA.size


def test_the_next_job_begins_with_the_older_checkpoint_if_the_newest_is_damaged(tmp_path: Path) -> None:
    """Its own are newer than that one, so that a third job has nothing to do."""
    place, made = Place(tmp_path), list[int]()
    for job in range(3):
        folder = tmp_path / str(job)
        folder.mkdir()
        place.folder = folder
        with consuming(folder, DATA, []), place.serve(0), place.serve(1), place.store("w-0") as store:
            made.append(0)
            for batch in store.batches(10):
                made[-1] += 1
                push(batch)
                if (job, made[-1]) == (0, 3):
                    saved(place, store, 1)
        if job == 0:
            tear(max(place.kept.iterdir()), 40)
        assert place.counts() == [1.0] * DATA.size if job else True
    assert made == [12, 10, 0]


def test_a_worker_that_leaves_its_loop_by_break_saves_though_another_is_the_first(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with consuming(tmp_path, DATA, []), place.serve(0), place.store("w-0") as first:
        while not first._following.is_chief:
            threading.Event().wait(0.02)
        with place.store("w-1") as store:
            for made, batch in enumerate(store.batches(10), start=1):
                push(batch)
                if made == 2:
                    break
            assert first._following.is_chief
            assert not list(place.kept.iterdir())
        assert sum(place.counts()) == 20


def test_a_save_that_fails_is_told_and_tried_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with consuming(tmp_path, DATA, []) as job, place.serve(0), place.store("w-0") as store:
        for batch in store.batches(40):
            if batch.start == 0:
                place.kept.rmdir()
                place.kept.write_text("in the way")
                store.save()
                while not (told := job.status()["findings"]):
                    threading.Event().wait(0.05)
                    store.at_boundary()
                place.kept.unlink()
                while not list(place.kept.glob("*/manifest.json")):
                    threading.Event().wait(0.05)
                    store.at_boundary()
            push(batch)
    assert "ps-0: checkpoint 2 is not written: " in told[0]["message"]
    assert place.counts() == [1.0] * DATA.size
    assert not list(place.kept.glob("*/*.tmp"))


def test_rows_are_pulled_before_the_first_batch(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with consuming(tmp_path, DATA, []), place.serve(0):
        with place.store("w-0") as store:
            assert store.pull("seen", [3, 4]).tolist() == [[0.0], [0.0]]
            assert sum(len(batch.records) for batch in store.batches(40)) == DATA.size
        with pytest.raises(RuntimeError, match="train within a `with` block"):
            place.store("w-1").pull("seen", [3])


def test_sigterm_ends_a_worker_after_its_batch_and_others_make_the_rest(tmp_path: Path) -> None:
    place, before = Place(tmp_path), signal.getsignal(signal.SIGTERM)
    with consuming(tmp_path, DATA, []), place.serve(0):
        with place.store("w-0") as store:
            made = 0
            for batch in store.batches(10):
                push(batch)
                made += 1
                if made == 2:
                    signal.raise_signal(signal.SIGTERM)
        assert made == 2
        assert signal.getsignal(signal.SIGTERM) == before
        with place.store("w-1") as store:
            for batch in store.batches(10):
                push(batch)
                made += 1
    assert made == DATA.size // 10
    assert place.counts() == [1.0] * DATA.size


def test_sigterm_ends_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, before = Place(tmp_path), signal.getsignal(signal.SIGTERM)
    with consuming(tmp_path, DATA, []):
        monkeypatch.setenv(names.MASTER, (tmp_path / "address").read_text())
        monkeypatch.setenv(names.TOKEN_FILE, str(tmp_path / "token"))
        monkeypatch.setenv(names.NODE, "ps-0")
        monkeypatch.setattr(Serving, "wait", lambda _: signal.raise_signal(signal.SIGTERM))
        try:
            with pytest.raises(SystemExit) as ended:
                serve.main([str(place.kept)])
        finally:
            signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 143


@pytest.mark.parametrize(
    "given",
    [
        Pull(1, "seen", bytes(1001)),
        Push(1, KEY, (Gradients("seen", bytes(8), bytes(1000)),)),
        Push(1, KEY, (Gradients("seen", b"", bytes(500)), Gradients("wide", b"", bytes(504)))),
    ],
)
def test_more_rows_than_a_server_takes_at_once_are_refused(
    monkeypatch: pytest.MonkeyPatch, given: Pull | Push
) -> None:
    """Not sent again and again: a server that closes the connection counts as one that is away."""
    monkeypatch.setattr(store, "ROOM", 1000)
    with pytest.raises(StoreError, match=r"rows of seen.*at most 1000: take smaller batches"):
        fits(given)


def test_a_worker_that_waits_says_for_what(caplog: pytest.LogCaptureFixture) -> None:
    seconds = iter([0.0, 4.0, 12.0, 15.0, 22.5])
    waits = Waits(lambda: next(seconds))
    for each in ("a", "b", "c", "d"):
        waits.say(each)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["a request waits for 12 s: b", "a request waits for 22 s: d"]
