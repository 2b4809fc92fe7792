"""Workers of a store with a real master: changes at the end of the data, and values that go back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from elasticjob.api.rpc import environment as names
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
from lab.jobs.training.consumers import Consumed, consuming, way_in
from lab.waiting import PATIENCE, wait_until

DATA = Dataset(name="records", size=120, shard=40)
SEEN = Table("seen", 1, SGD(1.0), Zeros())
KEY = Key("records", 0, 0, 10)


class Place:
    """A folder with the master's address and the checkpoints, and the processes of a job in this one."""

    def __init__(self, folder: Path, job: Consumed) -> None:
        self.folder, self.kept, self.job = folder, folder / "kept", job
        self.kept.mkdir()

    def serve(self, *indices: int) -> ExitStack:
        """Return servers that run until the stack is closed."""
        stack = ExitStack()
        for index in indices:
            files, way = Files(self.kept, patience=0.0), way_in(self.folder, f"ps-{index}")
            server = stack.enter_context(Server("127.0.0.1", 0, token="secret", files=files))
            checkpoints = ServerCheckpoints(server, files)
            stack.enter_context(
                Serving(server.address, server, checkpoints=checkpoints, copies=True, index=index, way=way)
            )
        return stack

    def store(self, node: str) -> Store:
        return Store([SEEN], DATA, save_every=1e6, way=way_in(self.folder, node))

    def findings(self) -> list[str]:
        """Return what the master has found."""
        return [each["message"] for each in self.job.status()["findings"]]

    def counts(self) -> list[float]:
        ids, rows = read(self.kept, "seen")
        found = dict(zip((ids // PARTITIONS).tolist(), rows[:, 0].tolist(), strict=True))
        return [found.get(record, 0.0) for record in range(DATA.size)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """The place of a job with a master alone."""
    with consuming(tmp_path, DATA, []) as job:
        yield Place(tmp_path, job)


def push(batch: Batch) -> None:
    """Count each record in a row of its own: all in one partition, which so sees all batches of a shard."""
    rows = PARTITIONS * np.asarray(batch.records)
    batch.push({"seen": (rows, -np.ones((len(rows), 1)))})


def test_servers_change_while_a_worker_waits_for_what_another_one_may_return(place: Place) -> None:
    idle = threading.Event()

    def other() -> None:
        with place.store("w-1") as store:
            idle.set()
            for batch in store.batches(40):
                push(batch)

    thread = threading.Thread(target=other)
    with place.serve(0):
        with place.store("w-0") as store:
            for batch in store.batches(40):
                if batch.shard.number == 0:
                    thread.start()
                    assert idle.wait(PATIENCE)
                    servers = place.serve(1)
                    wait_until(store.at_boundary)
                push(batch)
        thread.join(PATIENCE)
        assert not thread.is_alive()
        servers.close()
    assert place.counts() == [1.0] * DATA.size


def test_values_that_go_back_in_a_batch_lose_no_record(place: Place) -> None:
    """The batch at work was pulled from servers that are lost: it is no update of those that follow."""
    made, servers = 0, place.serve(0, 1)
    with place.store("w-0") as store:
        for batch in store.batches(10):
            made += 1
            if made == 2:
                saved(place, store, 1)
            if made == 4:
                servers.close()
                servers = place.serve(0, 1)
                store.pull("seen", range(10))
            push(batch)
    servers.close()
    assert made > DATA.size // 10
    assert place.counts() == [1.0] * DATA.size


def attend(store: Store, ask: Callable[[], object]) -> None:
    """Come to one boundary after another until the answer is true."""

    def answer() -> object:
        store.at_boundary()
        return ask()

    wait_until(answer)


def saved(place: Place, store: Store, number: int) -> Path:
    """Save until there are so many checkpoints; return the folder of the newest."""

    def is_saved() -> bool:
        if len(list(place.kept.glob("*/manifest.json"))) >= number:
            return True
        store.save()  # again: while servers change, nothing is saved
        return False

    attend(store, is_saved)
    newest = max(place.kept.iterdir())
    wait_until(lambda: store._following.last_checkpoint >= int(newest.name.removeprefix("step-")))
    return newest


def part_of(folder: Path, part: int) -> Path:
    """Return the file of a part of a checkpoint."""
    [path] = folder.glob(f"part-{part:05d}-*")
    return path


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(("part", "harm"), [(0, tear), (13, tear), (13, Path.unlink)])
def test_values_go_back_to_the_older_checkpoint_if_the_newest_is_damaged(
    place: Place, part: int, harm: Callable[[Path], None]
) -> None:
    made, servers = 0, place.serve(0, 1)
    with place.store("w-0") as store:
        for batch in store.batches(10):
            made += 1
            if made in (2, 4):
                newest = saved(place, store, made // 2)
            if made == 6:
                harm(part_of(newest, part))
                servers.close()
                servers = place.serve(0, 1)
            push(batch)
    told = place.findings()
    servers.close()
    assert part == 0 or any(f"part-{part:05d}-" in each and "is damaged" in each for each in told)
    assert (newest / "manifest.json.damaged").exists()
    assert made == DATA.size // 10 + 5
    assert place.counts() == [1.0] * DATA.size


def test_the_next_job_begins_with_the_older_checkpoint_if_the_newest_is_damaged(place: Place) -> None:
    """Its own are newer than that one, so that a third job has nothing to do."""
    made = list[int]()
    for number in range(3):
        place.folder = place.folder / str(number)
        place.folder.mkdir()
        with consuming(place.folder, DATA, []), place.serve(0, 1), place.store("w-0") as store:
            made.append(0)
            for batch in store.batches(10):
                made[-1] += 1
                push(batch)
                if (number, made[-1]) == (0, 3):
                    saved(place, store, 1)
        if number == 0:
            tear(part_of(max(place.kept.iterdir()), 40))
        assert place.counts() == [1.0] * DATA.size if number else True
    assert made == [12, 10, 0]


def test_a_worker_that_leaves_its_loop_by_break_saves_though_another_is_the_first(place: Place) -> None:
    with place.serve(0), place.store("w-0") as first:
        wait_until(lambda: first._following.is_chief)
        with place.store("w-1") as store:
            for made, batch in enumerate(store.batches(10), start=1):
                push(batch)
                if made == 2:
                    break
            assert first._following.is_chief
            assert not list(place.kept.iterdir())
        assert sum(place.counts()) == 20


def test_a_save_that_fails_is_told_and_tried_again(place: Place) -> None:
    with place.serve(0), place.store("w-0") as store:
        for batch in store.batches(40):
            if batch.start == 0:
                place.kept.rmdir()
                place.kept.write_text("in the way")
                store.save()
                attend(store, place.findings)
                told = place.findings()
                place.kept.unlink()
                attend(store, lambda: [*place.kept.glob("*/manifest.json")])
            push(batch)
    assert "ps-0: checkpoint 2 is not written: " in told[0]
    assert place.counts() == [1.0] * DATA.size
    assert not list(place.kept.glob("*/*.tmp"))


def test_rows_are_pulled_before_the_first_batch(place: Place) -> None:
    with place.serve(0):
        with place.store("w-0") as store:
            assert store.pull("seen", [3, 4]).tolist() == [[0.0], [0.0]]
            assert sum(len(batch.records) for batch in store.batches(40)) == DATA.size
        with pytest.raises(RuntimeError, match="train within a `with` block"):
            place.store("w-1").pull("seen", [3])


def test_sigterm_ends_a_worker_after_its_batch_and_others_make_the_rest(place: Place) -> None:
    before, made = signal.getsignal(signal.SIGTERM), dict[str, int]()
    with place.serve(0):
        for worker in ("w-0", "w-1"):
            with place.store(worker) as store:
                for number, batch in enumerate(store.batches(10), start=1):
                    push(batch)
                    made[worker] = number
                    if (worker, number) == ("w-0", 2):
                        signal.raise_signal(signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) == before
    assert made == {"w-0": 2, "w-1": DATA.size // 10 - 2}
    assert place.counts() == [1.0] * DATA.size


def test_sigterm_ends_a_server(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before, way = signal.getsignal(signal.SIGTERM), place.job.way("ps-0")
    for name, value in (
        (names.MASTER, way.address),
        (names.TOKEN_FILE, way.token_file),
        (names.NODE, way.node),
    ):
        monkeypatch.setenv(name, value)
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
