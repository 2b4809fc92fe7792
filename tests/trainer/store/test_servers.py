"""Servers of the store that come, go and are lost between repeated updates: each record counts once."""

from __future__ import annotations

from collections.abc import Set
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elasticjob.trainer.parameters import Gone, Move
from elasticjob.trainer.store import SGD, Adagrad, Table, Zeros
from elasticjob.trainer.store.applied_updates import Key
from elasticjob.trainer.store.partitions import owners
from elasticjob.trainer.store.saved import Files
from elasticjob.trainer.store.server import Server
from elasticjob.trainer.store.tables import PARTITIONS, WIDEST
from elasticjob.trainer.store.wire import (
    LARGEST,
    Answer,
    Connection,
    Fetch,
    Gradients,
    Hello,
    Pull,
    Push,
    Refused,
    Request,
    Rows,
    Taken,
    WireError,
    connect,
)

SEEN = Table("seen", 1, SGD(1.0), Zeros())
TOKEN = "secret"
RECORDS = 200
MEMORY = Path("/dev/shm")  # hundreds of checkpoints, each synced to disk, would be most of the test


class Cluster:
    """Servers as a master directs them."""

    def __init__(self, servers: int, folder: Path) -> None:
        self.stack, self.files = ExitStack(), Files(folder)
        self.version, self.number, self.servers = 0, 0, list[Server]()
        self.move([self.start() for _ in range(servers)], restores=0)

    def start(self) -> Server:
        return self.stack.enter_context(Server("127.0.0.1", 0, token=TOKEN, files=self.files))

    def move(
        self,
        after: list[Server],
        *,
        restores: int | None = None,
        given_up: bool = False,
        slow: Set[Server] = frozenset(),
    ) -> None:
        self.number += 1
        addresses = [tuple(each.address for each in servers) for servers in (self.servers, after)]
        for me, server in enumerate(after):
            server.take_over(Move(self.number, self.version, addresses[0], addresses[1], me, restores))
        if not given_up:
            self.servers, self.version = after, self.number
        for server in {*self.servers, *after} - slow:
            server.use(self.version, tuple(each.address for each in self.servers))

    def push(self, record: int, *, version: int | None = None) -> Answer:
        """Count a record, in the row of its number."""
        row = np.array([record], np.int64).tobytes()
        gradients = Gradients("seen", row, np.array([-1.0], np.float32).tobytes())
        key = Key("records", record // 10, record, record + 1)
        return self.owner(record).answer(Push(version or self.version, key, (gradients,)))

    def owner(self, row: int) -> Server:
        return self.servers[owners(len(self.servers))[row % PARTITIONS]]

    def counts(self) -> list[int]:
        """Return how often each record is counted."""
        found = []
        for record in range(RECORDS):
            answer = self.owner(record).answer(
                Pull(self.version, "seen", np.array([record], np.int64).tobytes())
            )
            assert isinstance(answer, Rows)
            found.append(int(np.frombuffer(answer.values, np.float32)[0]))
        return found

    def greet(self) -> None:
        for server in self.servers:
            assert server.answer(Hello((SEEN,))) == Taken()

    def save(self, number: int) -> None:
        written = [self.files.write(number, server.copy().partitions, ()) for server in self.servers]
        self.files.commit(number, {each: file for files in written for each, file in files.items()})

    def lose(self, server: Server) -> None:
        server.__exit__(None, None, None)


def test_a_lost_server_is_made_good_by_the_copies_of_the_next_one(tmp_path: Path) -> None:
    cluster = Cluster(3, tmp_path)
    with cluster.stack:
        cluster.greet()
        for record in range(0, RECORDS, 2):
            assert cluster.push(record) == Taken()
        cluster.lose(cluster.servers[1])
        cluster.move([cluster.servers[0], cluster.start(), cluster.servers[2]])
        for record in range(RECORDS):
            assert cluster.push(record) == Taken()
        assert cluster.counts() == [1] * RECORDS


def test_a_server_that_does_not_answer_is_waited_for_once_in_a_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection to the address of a deleted pod is not refused: each attempt costs its timeout."""
    asked = list[str]()

    def through(address: str, token: str, timeout: float) -> Connection:
        asked.append(address)
        if address == lost.address:
            raise TimeoutError("timed out")
        return connect(address, token, timeout)

    cluster = Cluster(3, tmp_path)
    with cluster.stack:
        cluster.greet()
        for record in range(RECORDS):
            assert cluster.push(record) == Taken()
        lost = cluster.servers[0]
        cluster.lose(lost)
        monkeypatch.setattr("elasticjob.trainer.store.server.connect", through)
        cluster.move([cluster.start(), *cluster.servers[1:]])
        assert asked.count(lost.address) == 2, "by its successor, and by the one that has the copies"
        assert cluster.counts() == [1] * RECORDS


def test_two_neighbours_that_are_lost_take_values_with_them(tmp_path: Path) -> None:
    cluster = Cluster(3, tmp_path)
    with cluster.stack:
        cluster.greet()
        cluster.lose(cluster.servers[1])
        cluster.lose(cluster.servers[2])
        with pytest.raises(Gone, match="partition 21 is nowhere"):
            cluster.move([cluster.servers[0], cluster.start()])


def test_all_go_back_to_the_checkpoint_whatever_their_number(tmp_path: Path) -> None:
    cluster = Cluster(3, tmp_path)
    with cluster.stack:
        cluster.greet()
        for record in range(50):
            cluster.push(record)
        cluster.save(9)
        found = cluster.files.newest()
        assert found is not None
        assert found.number == 9
        for record in range(50, 100):
            cluster.push(record)
        cluster.move([cluster.start() for _ in range(5)], restores=9)
        assert cluster.counts() == [1] * 50 + [0] * (RECORDS - 50)
        for record in range(RECORDS):
            cluster.push(record)
        assert cluster.counts() == [1] * RECORDS


def test_an_update_of_another_version_is_refused_until_the_servers_are_used(tmp_path: Path) -> None:
    cluster = Cluster(2, tmp_path)
    with cluster.stack:
        cluster.greet()
        cluster.move([*cluster.servers, cluster.start()])
        late = cluster.push(7, version=cluster.version - 1)
        assert isinstance(late, Refused)
        assert late.later


def test_values_of_a_cluster_that_is_lost_before_it_is_used_are_there(tmp_path: Path) -> None:
    """The next change begins when one server has not yet heard that the last one is over."""
    cluster = Cluster(2, tmp_path)
    with cluster.stack:
        cluster.greet()
        for record in range(RECORDS):
            assert cluster.push(record) == Taken()
        slow = cluster.start()
        before = [*cluster.servers, slow]
        cluster.move(before, slow={slow})
        cluster.lose(before[0])
        cluster.move([slow, before[1]])
        assert cluster.counts() == [1] * RECORDS


def test_a_worker_that_greets_before_a_server_is_used_need_not_greet_again(tmp_path: Path) -> None:
    cluster = Cluster(1, tmp_path)
    with cluster.stack:
        new = [cluster.start(), cluster.start()]
        for server in new:
            assert server.answer(Hello((SEEN,))) == Taken()
        cluster.move(new, restores=0)
        assert cluster.push(7) == Taken()
        assert cluster.counts()[7] == 1


def test_a_stranger_and_nonsense_are_turned_away(tmp_path: Path) -> None:
    cluster = Cluster(1, tmp_path)
    with cluster.stack:
        with pytest.raises(WireError, match="another job's token"):
            connect(cluster.servers[0].address, "guessed", 5.0)
        known = connect(cluster.servers[0].address, TOKEN, 5.0)
        known.send(Hello((SEEN,)))
        assert known.answer() == Taken()
        known._sock.sendall((1 << 31).to_bytes(4))
        with pytest.raises(ConnectionError):
            known.answer()
        known.close()


@given(st.lists(st.one_of(st.binary(max_size=60), st.integers(-9, 9), st.text(max_size=9)), max_size=5))
def test_frames_of_nonsense_are_answered_or_end_their_connection_only(frame: list[object]) -> None:
    """By a process of the job, which has proved so; the next one is served."""
    with Server("127.0.0.1", 0, token=TOKEN) as server:
        for body in (
            msgspec.msgpack.encode(frame),
            b"".join(each for each in frame if isinstance(each, bytes)),
        ):
            known = connect(server.address, TOKEN, 5.0)
            known._sock.sendall(len(body).to_bytes(4) + body)
            with suppress(ConnectionError):
                assert isinstance(known.answer(), Refused)
            known.close()
        known = connect(server.address, TOKEN, 5.0)
        known.send(Hello((SEEN,)))
        assert known.answer() == Taken()
        known.close()


@pytest.mark.parametrize(
    ("ids", "values", "why"),
    [
        ([1, 1], [1.0, 1.0], "names a row twice"),
        ([-64], [1.0], "numbers from 0"),
        ([0], [float("nan")], "no numbers"),
        ([0], [1.0, 2.0], "8 bytes are not 1 rows of 1 numbers"),
        ([], [1.0], "4 bytes are not 0 rows of 1 numbers"),
    ],
)
def test_an_update_that_makes_no_sense_changes_nothing(
    tmp_path: Path, ids: list[int], values: list[float], why: str
) -> None:
    cluster = Cluster(1, tmp_path)
    with cluster.stack:
        cluster.greet()
        gradients = Gradients(
            "seen", np.array(ids, np.int64).tobytes(), np.array(values, np.float32).tobytes()
        )
        answer = cluster.servers[0].answer(Push(cluster.version, Key("records", 0, 0, 1), (gradients,)))
        assert isinstance(answer, Refused)
        assert why in answer.why
        assert cluster.counts() == [0] * RECORDS


def test_an_update_beyond_float32_changes_no_row_of_any_table(tmp_path: Path) -> None:
    other = Table("other", 1, Adagrad(1.0), Zeros())
    row, one = np.array([0], np.int64).tobytes(), np.array([-1.0], np.float32).tobytes()
    cluster = Cluster(1, tmp_path)
    with cluster.stack:
        server = cluster.servers[0]
        assert server.answer(Hello((SEEN, other))) == Taken()
        large = Gradients("other", row, np.array([1e30], np.float32).tobytes())
        push = Push(cluster.version, Key("records", 0, 0, 1), (Gradients("seen", row, one), large))
        answer = server.answer(push)
        assert isinstance(answer, Refused)
        assert "an update of other: numbers are beyond those of float32" in answer.why
        assert cluster.counts() == [0] * RECORDS


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Pull(1, "seen", bytes(7)), "7 bytes are no ids"),
        (Pull(1, "seen", np.array([-1], np.int64).tobytes()), "numbers from 0"),
        (Push(1, Key("records", 0, 0, 1), (Gradients("seen", b"", b""),) * 2), "names a table twice"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(tmp_path: Path, given: Pull | Push, why: str) -> None:
    cluster = Cluster(1, tmp_path)
    with cluster.stack:
        cluster.greet()
        answer = cluster.servers[0].answer(given)
        assert isinstance(answer, Refused)
        assert (why in answer.why, answer.later) == (True, False)


@pytest.mark.parametrize(
    ("right", "changed"),
    [
        (Push(1, Key("records", 0, 0, 1), ()), {"version": -1}),
        (Push(1, Key("records", 0, 0, 1), ()), {"done": [{"dataset": "records", "numbers": [-1]}]}),
        (Pull(1, "seen", b""), {"version": -1}),
        (Fetch(1, ()), {"partitions": [-1]}),
        (Key("records", 0, 0, 1), {"number": -1}),
        (Key("records", 0, 0, 1), {"end": 0}),
        (Key("records", 0, 0, 1), {"dataset": ""}),
    ],
    ids=str,
)
def test_a_message_whose_numbers_cannot_be_is_none(right: Request | Key, changed: dict[str, object]) -> None:
    sent = msgspec.to_builtins(right)
    kind = Key if isinstance(right, Key) else Request
    assert msgspec.convert(sent, kind) == right
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(sent | changed, kind)


def test_a_pull_of_more_rows_than_an_answer_holds_is_refused(tmp_path: Path) -> None:
    wide = Table("wide", WIDEST, SGD(1.0), Zeros())
    cluster = Cluster(1, tmp_path)
    with cluster.stack:
        assert cluster.servers[0].answer(Hello((wide,))) == Taken()
        rows = np.arange(LARGEST // 8 // WIDEST + 1, dtype=np.int64).tobytes()
        answer = cluster.servers[0].answer(Pull(cluster.version, "wide", rows))
        assert isinstance(answer, Refused)
        assert "pull fewer" in answer.why
        assert not answer.later


class Histories(RuleBasedStateMachine):
    """Updates, repetitions, changes, losses and checkpoints in any order."""

    @initialize(servers=st.integers(1, 4))
    def begin(self, servers: int) -> None:
        self.folder = TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.cluster = Cluster(servers, Path(self.folder.name))
        self.cluster.greet()
        self.counted: set[int] = set()
        self.kept: tuple[int, set[int]] | None = None

    @rule(record=st.integers(0, RECORDS - 1))
    def a_record_is_counted(self, record: int) -> None:
        """The batches of a shard come in order, and any may come again."""
        for each in range(record // 10 * 10, record + 1):
            assert self.cluster.push(each) == Taken()
            self.counted.add(each)

    @rule(after=st.permutations(range(5)), size=st.integers(1, 5), given_up=st.booleans())
    def servers_change(self, after: list[int], size: int, given_up: bool) -> None:
        present = self.cluster.servers
        chosen = [present[each] if each < len(present) else self.cluster.start() for each in after[:size]]
        self.cluster.move(chosen, given_up=given_up)

    @precondition(lambda self: len(self.cluster.servers) > 1)
    @rule(data=st.data())
    def a_server_is_lost(self, data: st.DataObject) -> None:
        lost = data.draw(st.integers(0, len(self.cluster.servers) - 1))
        after = [*self.cluster.servers]
        self.cluster.lose(after[lost])
        after[lost] = self.cluster.start()
        self.cluster.move(after)

    @rule()
    def a_checkpoint(self) -> None:
        self.cluster.number += 1
        self.cluster.save(self.cluster.number)
        self.cluster.files.keep(self.cluster.number)
        self.kept = self.cluster.number, set(self.counted)

    @precondition(lambda self: self.kept)
    @rule(size=st.integers(1, 4))
    def all_are_lost(self, size: int) -> None:
        assert self.kept
        for server in self.cluster.servers:
            self.cluster.lose(server)
        number, self.counted = self.kept[0], set(self.kept[1])
        self.cluster.move([self.cluster.start() for _ in range(size)], restores=number)
        self.cluster.greet()

    @invariant()
    def each_record_counts_once(self) -> None:
        assert self.cluster.counts() == [int(each in self.counted) for each in range(RECORDS)]

    @invariant()
    def copies_are_as_their_owners(self) -> None:
        servers = self.cluster.servers
        for place, server in enumerate(servers if len(servers) > 1 else ()):
            copy = servers[(place + 1) % len(servers)]._held
            owner = server._held
            for part in owner.slabs.values():
                own = part.part(owner.owned)
                rows = np.frombuffer(own.ids, np.int64)
                np.testing.assert_array_equal(part.rows(rows), copy.slabs[own.table.name].rows(rows))

    def teardown(self) -> None:
        self.cluster.stack.close()
        self.folder.cleanup()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)
