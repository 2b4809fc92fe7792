"""Servers of the store that come, go and are lost between repeated updates: each record counts once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
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
KEY = Key("records", 0, 0, 1)
TOKEN = "secret"
RECORDS = 200
MEMORY = Path("/dev/shm")  # hundreds of checkpoints, each synced to disk, would be most of the test


def ids(*rows: int) -> bytes:
    """Return rows as they are sent."""
    return np.array(rows, np.int64).tobytes()


def update(name: str, rows: Sequence[int], *values: float) -> Gradients:
    """Return gradients of one number for rows."""
    return Gradients(name, ids(*rows), np.array(values, np.float32).tobytes())


class Cluster(ExitStack):
    """Servers as a master directs them, which a worker with these tables has greeted."""

    def __init__(self, servers: int, folder: Path, *tables: Table) -> None:
        super().__init__()
        self.files = Files(folder)
        self.version, self.number, self.servers = 0, 0, list[Server]()
        self.move([self.start() for _ in range(servers)], restores=0)
        self.greet(*(tables or (SEEN,)))

    def start(self) -> Server:
        return self.enter_context(Server("127.0.0.1", 0, token=TOKEN, files=self.files))

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

    def send(self, record: int, *, version: int | None = None) -> Answer:
        """Count a record, in the row of its number."""
        key = Key("records", record // 10, record, record + 1)
        push = Push(version or self.version, key, (update("seen", [record], -1.0),))
        return self.owner(record).answer(push)

    def count(self, records: Iterable[int]) -> None:
        """Count records, each of which is taken."""
        for record in records:
            assert self.send(record) == Taken()

    def owner(self, row: int) -> Server:
        return self.servers[owners(len(self.servers))[row % PARTITIONS]]

    def counts(self) -> list[int]:
        """Return how often each record is counted."""
        found = []
        for record in range(RECORDS):
            answer = self.owner(record).answer(Pull(self.version, "seen", ids(record)))
            assert isinstance(answer, Rows)
            found.append(int(np.frombuffer(answer.values, np.float32)[0]))
        return found

    def greet(self, *tables: Table) -> None:
        for server in self.servers:
            assert server.answer(Hello(tables)) == Taken()

    def save(self, number: int) -> None:
        written = [self.files.write(number, server.copy().partitions, ()) for server in self.servers]
        self.files.commit(number, {each: file for files in written for each, file in files.items()})

    def lose(self, server: Server) -> None:
        server.__exit__(None, None, None)


def test_a_lost_server_is_made_good_by_the_copies_of_the_next_one(tmp_path: Path) -> None:
    with Cluster(3, tmp_path) as cluster:
        cluster.count(range(0, RECORDS, 2))
        cluster.lose(cluster.servers[1])
        cluster.move([cluster.servers[0], cluster.start(), cluster.servers[2]])
        cluster.count(range(RECORDS))
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

    with Cluster(3, tmp_path) as cluster:
        cluster.count(range(RECORDS))
        lost = cluster.servers[0]
        cluster.lose(lost)
        monkeypatch.setattr("elasticjob.trainer.store.server.connect", through)
        cluster.move([cluster.start(), *cluster.servers[1:]])
        assert asked.count(lost.address) == 2, "by its successor, and by the one that has the copies"
        assert cluster.counts() == [1] * RECORDS


def test_two_neighbours_that_are_lost_take_values_with_them(tmp_path: Path) -> None:
    with Cluster(3, tmp_path) as cluster:
        cluster.lose(cluster.servers[1])
        cluster.lose(cluster.servers[2])
        with pytest.raises(Gone, match="partition 21 is nowhere"):
            cluster.move([cluster.servers[0], cluster.start()])


def test_all_go_back_to_the_checkpoint_whatever_their_number(tmp_path: Path) -> None:
    with Cluster(3, tmp_path) as cluster:
        cluster.count(range(50))
        cluster.save(9)
        found = cluster.files.newest()
        assert found is not None
        assert found.number == 9
        cluster.count(range(50, 100))
        cluster.move([cluster.start() for _ in range(5)], restores=9)
        assert cluster.counts() == [1] * 50 + [0] * (RECORDS - 50)
        cluster.count(range(RECORDS))
        assert cluster.counts() == [1] * RECORDS


def test_an_update_of_another_version_is_refused_until_the_servers_are_used(tmp_path: Path) -> None:
    with Cluster(2, tmp_path) as cluster:
        cluster.move([*cluster.servers, cluster.start()])
        late = cluster.send(7, version=cluster.version - 1)
        assert isinstance(late, Refused)
        assert late.later


def test_values_of_a_cluster_that_is_lost_before_it_is_used_are_there(tmp_path: Path) -> None:
    """The next change begins when one server has not yet heard that the last one is over."""
    with Cluster(2, tmp_path) as cluster:
        cluster.count(range(RECORDS))
        slow = cluster.start()
        before = [*cluster.servers, slow]
        cluster.move(before, slow={slow})
        cluster.lose(before[0])
        cluster.move([slow, before[1]])
        assert cluster.counts() == [1] * RECORDS


def test_a_worker_that_greets_before_a_server_is_used_need_not_greet_again(tmp_path: Path) -> None:
    with Cluster(1, tmp_path) as cluster:
        new = [cluster.start(), cluster.start()]
        for server in new:
            assert server.answer(Hello((SEEN,))) == Taken()
        cluster.move(new, restores=0)
        assert cluster.send(7) == Taken()
        assert cluster.counts()[7] == 1


def test_a_stranger_and_nonsense_are_turned_away(tmp_path: Path) -> None:
    with Cluster(1, tmp_path) as cluster:
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
    ("given", "why"),
    [
        (Push(1, KEY, (update("seen", [1, 1], 1.0, 1.0),)), "names a row twice"),
        (Push(1, KEY, (update("seen", [-64], 1.0),)), "numbers from 0"),
        (Push(1, KEY, (update("seen", [0], float("nan")),)), "no numbers"),
        (Push(1, KEY, (update("seen", [0], 1.0, 2.0),)), "8 bytes are not 1 rows of 1 numbers"),
        (Push(1, KEY, (update("seen", [], 1.0),)), "4 bytes are not 0 rows of 1 numbers"),
        (Push(1, KEY, (update("seen", []),) * 2), "names a table twice"),
        (
            Push(1, KEY, (update("seen", [0], -1.0), update("other", [0], 1e30))),
            "an update of other: numbers are beyond those of float32",
        ),
        (Pull(1, "seen", bytes(7)), "7 bytes are no ids"),
        (Pull(1, "seen", ids(-1)), "numbers from 0"),
        (Pull(1, "wide", ids(*range(LARGEST // 8 // WIDEST + 1))), "pull fewer"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_changes_nothing(
    tmp_path: Path, given: Pull | Push, why: str
) -> None:
    tables = (SEEN, Table("other", 1, Adagrad(1.0), Zeros()), Table("wide", WIDEST, SGD(1.0), Zeros()))
    with Cluster(1, tmp_path, *tables) as cluster:
        answer = cluster.servers[0].answer(given)
        assert isinstance(answer, Refused)
        assert (why in answer.why, answer.later) == (True, False)
        assert cluster.counts() == [0] * RECORDS


@pytest.mark.parametrize(
    ("right", "changed"),
    [
        (Push(1, KEY, ()), {"version": -1}),
        (Push(1, KEY, ()), {"done": [{"dataset": "records", "numbers": [-1]}]}),
        (Pull(1, "seen", b""), {"version": -1}),
        (Fetch(1, ()), {"partitions": [-1]}),
        (KEY, {"number": -1}),
        (KEY, {"end": 0}),
        (KEY, {"dataset": ""}),
    ],
    ids=str,
)
def test_a_message_whose_numbers_cannot_be_is_none(right: Request | Key, changed: dict[str, object]) -> None:
    sent = msgspec.to_builtins(right)
    kind = Key if isinstance(right, Key) else Request
    assert msgspec.convert(sent, kind) == right
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(sent | changed, kind)


class Histories(RuleBasedStateMachine):
    """Updates, repetitions, changes, losses and checkpoints in any order."""

    @initialize(servers=st.integers(1, 4))
    def begin(self, servers: int) -> None:
        self.folder = TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.cluster = Cluster(servers, Path(self.folder.name))
        self.counted: set[int] = set()
        self.kept: tuple[int, set[int]] | None = None

    @rule(record=st.integers(0, RECORDS - 1))
    def a_record_is_counted(self, record: int) -> None:
        """The batches of a shard come in order, and any may come again."""
        records = range(record // 10 * 10, record + 1)
        self.cluster.count(records)
        self.counted |= {*records}

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
        self.cluster.greet(SEEN)

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
        self.cluster.close()
        self.folder.cleanup()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)
