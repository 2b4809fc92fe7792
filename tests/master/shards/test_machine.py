"""Random lives of consumers and masters: every record counts exactly once per epoch, in the end."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.shards import (
    Close,
    Consumer,
    Dataset,
    Held,
    Lease,
    Open,
    Outcome,
    Partition,
    Result,
    Shard,
)
from elasticjob.master.durable.store import restore, snapshot
from elasticjob.master.handlers import dispatch
from elasticjob.master.shards import book, splitters
from elasticjob.master.state.errors import RequestError, Stale
from elasticjob.master.state.job import Limits
from lab.virtual.master import Played, failure, watch

DATASETS = (
    Dataset(name="d", size=23, shard=3, epochs=2, retries=1, shuffle=True),
    Dataset(name="d", size=12, shard=3, epochs=1, splitter="text", retries=0, shuffle=True, deadline=20.0),
    Dataset(
        name="d",
        size=20,
        shard=4,
        splitter="streaming",
        partitions=(Partition(name="a", offset=5), Partition(name="b")),
    ),
)
WORKERS = [("node-0", "0"), ("node-0", "1"), ("node-1", "0"), ("node-1", "0.1")]
BOTH = st.booleans()
ANY = st.sampled_from(range(len(WORKERS)))


@dataclass
class Client:
    """A consumer that behaves as the one in `trainer/shards.py`, as it remembers things."""

    node: str
    worker: str
    life: int = 1
    opened: bool = False
    opening: int = 1
    taken: dict[int, Shard] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)
    said: list[Outcome] = field(default_factory=list)
    unsaved: list[tuple[Outcome, int, int]] = field(default_factory=list)
    ended: bool = False

    @property
    def slot(self) -> str:
        return self.worker.partition(".")[0]

    @property
    def who(self) -> Consumer:
        return Consumer(node=self.node, worker=self.worker, life=self.life, incarnation=f"{self.node}-life")

    def held(self) -> tuple[Held, ...]:
        done = {outcome.lease for outcome in self.said}
        return tuple(
            Held(number=shard.number, lease=lease, used=self.used.get(lease, 0))
            for lease, shard in self.taken.items()
            if lease not in done
        )

    def settle(self, term: int, durable: int) -> list[Outcome]:
        """Forget results that are saved; return them."""
        kept = [each for each in self.unsaved if each[2] != term or each[1] > durable]
        final = [each[0] for each in self.unsaved if each not in kept]
        self.unsaved = kept
        return final


class Consumers(RuleBasedStateMachine):
    """Consumers that die, masters that restart from what was saved, messages that are lost or repeated."""

    @initialize(dataset=st.sampled_from(DATASETS))
    def begin(self, dataset: Dataset) -> None:
        limits = Limits(join_timeout=timedelta(days=1000))
        self.dataset = dataset
        self.game = Played(1, 2, limits=limits)
        self.clients = [Client(*place) for place in WORKERS]
        self.disk = snapshot(self.game.job)
        self.sent: list[Request[Any]] = []
        self.dealt: dict[int, dict[int, Shard]] = {}
        self.final: dict[int, set[int]] = {}
        self.partly: dict[int, set[int]] = {}
        for node in ("node-0", "node-1"):
            self.game.ask(watch(node))

    def ask(self, client: Client, request: Request[Any]) -> Any:
        """Return the reply, None if the client has to wait; a stale client opens again."""
        self.sent.append(request)
        before = self.game.job
        try:
            return self.game.ask(request)
        except Stale:
            assert self.game.job is before
            client.opened = False
            return None

    def finalize(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if not outcome.error:
                self.final.setdefault(outcome.number, set()).add(outcome.lease)

    @rule(which=ANY, heard=st.booleans())
    def opens(self, which: int, heard: bool) -> None:
        client = self.clients[which]
        said = list(client.said)
        kept = tuple(each[0] for each in client.unsaved)
        for held in client.held():
            self.partly.setdefault(held.number, set()).add(held.used)
        request = Open(
            consumer=client.who,
            dataset=self.dataset,
            held=client.held(),
            outcomes=(*kept, *said),
            opening=client.opening,
        )
        client.opened = True
        reply = self.ask(client, request)
        client.opening += not client.opened  # it is stale
        client.opened = False
        if reply is None or not heard:
            return
        client.opened = True
        client.opening += 1
        for each in client.unsaved[:]:
            if each[2] != reply.term:
                client.unsaved.remove(each)
                if each[0].lease not in reply.lost:
                    client.unsaved.append((each[0], reply.mark, reply.term))
        self.counted(client, [each for each in said if each.lease not in reply.lost], reply)
        client.said = []
        for lease in reply.lost:
            client.taken.pop(lease, None)

    def counted(self, client: Client, outcomes: list[Outcome], reply: Any) -> None:
        for outcome in outcomes:
            client.taken.pop(outcome.lease, None)
            client.unsaved.append((outcome, reply.mark, reply.term))
        self.finalize(client.settle(reply.term, reply.durable))

    @rule(
        which=ANY, want=st.integers(1, 3), heard=st.booleans(), read=st.integers(0, 2), pauses=st.booleans()
    )
    def leases(self, which: int, want: int, heard: bool, read: int = 0, pauses: bool = False) -> None:
        client = self.clients[which]
        has, yields = tuple(client.taken), "." in client.worker
        asked = Lease(consumer=client.who, dataset="d", want=want, has=has, yields=yields)
        reply = self.ask(client, replace(asked, read=read, pauses=pauses))
        if reply is None or not heard:
            return
        for shard in reply.shards:
            self.check_shard(shard)
            client.taken[shard.lease] = shard
            self.dealt.setdefault(shard.number, {})[shard.lease] = shard
        self.finalize(client.settle(reply.term, reply.durable))
        client.ended = reply.end

    def check_shard(self, shard: Shard) -> None:
        """A shard that was counted for good is never dealt again; what was applied of it was reported."""
        assert shard.number not in self.final
        assert not shard.used or shard.used in self.partly[shard.number]

    @rule(which=ANY, data=st.data(), error=st.sampled_from(["", "", "ValueError: no"]))
    def finishes(self, which: int, data: st.DataObject, error: str) -> None:
        client = self.clients[which]
        if held := client.held():
            each = data.draw(st.sampled_from(held))
            client.said.append(Outcome(number=each.number, lease=each.lease, error=error))

    @rule(which=ANY, data=st.data())
    def goes_on(self, which: int, data: st.DataObject) -> None:
        client = self.clients[which]
        if held := client.held():
            each = data.draw(st.sampled_from(held))
            shard = client.taken[each.lease]
            most = shard.used + len(shard) - 1
            now = max(shard.used, each.used)
            client.used[each.lease] = data.draw(st.integers(now, max(now, most)))

    @rule(which=ANY, heard=st.booleans())
    def reports(self, which: int, heard: bool) -> None:
        client = self.clients[which]
        said = list(client.said)
        for each in client.held():
            self.partly.setdefault(each.number, set()).add(each.used)
        request = Result(consumer=client.who, dataset="d", outcomes=tuple(said), progress=client.held())
        reply = self.ask(client, request)
        if reply is None or not heard:
            return
        self.counted(client, [each for each in said if each.lease not in reply.lost], reply)
        client.said = []
        for lease in reply.lost:
            client.taken.pop(lease, None)

    @rule(which=ANY, heard=st.booleans(), want=st.integers(1, 3))
    def works(self, which: int, heard: bool, want: int) -> None:
        """Do what a consumer does in turn: open, take shards, finish one, say so."""
        client = self.clients[which]
        if not client.opened:
            self.opens(which, heard=True)
        self.leases(which, want, heard=True)
        if held := client.held():
            client.said.append(Outcome(number=held[0].number, lease=held[0].lease))
            self.reports(which, heard)

    @rule(saves=st.booleans())
    def all_work(self, saves: bool) -> None:
        if saves:
            for which, client in enumerate(self.clients):
                if not client.opened:
                    self.opens(which, heard=True)
            self.master_saves(told=True)
        for which in range(len(self.clients)):
            self.works(which, heard=True, want=2)

    @rule(which=ANY)
    def closes(self, which: int) -> None:
        client = self.clients[which]
        self.ask(client, Close(consumer=client.who, dataset="d"))
        self.renew(client)

    @rule(which=ANY, code=st.sampled_from([1, -9, -11, None]))
    def dies(self, which: int, code: int | None) -> None:
        """A process ends with its readers; its agent reports that, or the next process comes before."""
        client = self.clients[which]
        if code is not None:
            slot = int(client.slot)
            sent = failure(client.node, final=False, code=code, number=client.life)
            self.tell(
                type(sent)(**{f: getattr(sent, f) for f in sent.__struct_fields__} | {"local_rank": slot})
            )
        for each in [each for each in self.clients if (each.node, each.slot) == (client.node, client.slot)]:
            self.renew(each)

    def renew(self, client: Client) -> None:
        fresh = Client(client.node, client.worker, client.life + 1)
        self.clients[self.clients.index(client)] = fresh

    @rule(node=st.sampled_from(["node-0", "node-1"]))
    def line_is_cut(self, node: str) -> None:
        """The node is lost, as the master sees it, and is back at once."""
        self.game.cut(watch(node))
        self.tell(watch(node))

    def tell(self, request: Request[Any]) -> None:
        with suppress(RequestError):
            self.game.ask(request)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def old_request_comes_again(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.sent[-6:]))
        before = self.game.job
        try:
            self.game.ask(request)
        except RequestError:
            assert self.game.job is before

    @rule(seconds=st.sampled_from([0.25, 16.0, 601.0, 2000.0]))
    def time_passes(self, seconds: float) -> None:
        self.game.now += timedelta(seconds=seconds)
        for node in ("node-0", "node-1"):
            self.tell(watch(node))
        self.game._become(dispatch.tick(self.game.job, self.game.now))

    @rule(told=st.booleans())
    def master_saves(self, told: bool) -> None:
        job = self.game.job
        self.disk = snapshot(job)
        if told:
            self.game._become(job.but(shards=book.after_save(job.shards, job.shards.mark)))

    @rule()
    def master_restarts(self) -> None:
        """Connections end with the old master, and the requests that were under way with them."""
        self.sent.clear()
        self.game._become(restore(self.disk, self.game.job.spec, self.game.now))
        for node in ("node-0", "node-1"):
            self.tell(watch(node))

    @invariant()
    def counts_are_right(self) -> None:
        if not hasattr(self, "game") or (ledger := self.game.job.shards.datasets.get("d")) is None:
            return
        readers = [reader for bucket in ledger.readers for reader in bucket.values()]
        held = [each.number for reader in readers for each in reader.leases]
        back = [number for start, end in ledger.back for number in range(start, end)]
        bad = [each.number for each in ledger.poisoned]
        everywhere = held + back + list(ledger.late) + bad
        assert len(everywhere) == len(set(everywhere)), "a shard is in two places"
        assert all(number < ledger.next for number in everywhere)
        assert ledger.holding == len(held)
        assert ledger.awaiting == sum(reader.awaited for reader in readers)
        owed = [reader.until for reader in readers if reader.leases or reader.awaited]
        assert not owed or (ledger.due is not None and ledger.due <= min(owed))
        assert not set(self.final) & set(everywhere), "a shard whose result is saved is open again"
        assert not set(self.final) & set(range(ledger.next, ledger.next + 100))
        done = [n for n in range(ledger.next) if n not in set(everywhere)]
        lengths = sum(splitters.length(self.dataset, number) for number in done)
        assert ledger.applied >= lengths

    @invariant()
    def no_result_counts_twice(self) -> None:
        if hasattr(self, "game"):
            for number, leases in self.final.items():
                assert leases == {max(self.dealt[number])}

    def teardown(self) -> None:
        """Once everything behaves, every record was applied exactly once, but for poisoned shards."""
        if not hasattr(self, "game"):
            return
        for _ in range(60):
            for which, client in enumerate(self.clients):
                if not client.opened:
                    self.opens(which, heard=True)
                self.leases(which, 2, heard=True)
                client.said += [Outcome(number=each.number, lease=each.lease) for each in client.held()]
                self.reports(which, heard=True)
            self.master_saves(told=True)
            if all(client.ended for client in self.clients):
                break
        ledger = self.game.job.shards.datasets["d"]
        assert ledger.is_exhausted, ledger
        assert all(client.ended for client in self.clients)
        bad = {each.number for each in ledger.poisoned}
        assert ledger.complete == (not bad)
        every = set(range(splitters.total(self.dataset) or 0))
        assert set(self.dealt) | bad == every  # who died may never have heard of its shard
        assert self.final.keys() <= every - bad


TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_an_error_that_the_snapshot_has_counted_is_not_counted_again() -> None:
    """Its consumer does not know that yet and tells it to the new master, while another lease succeeded."""
    made = Dataset(name="d", size=23, shard=3, epochs=2, splitter="table", shuffle=True, seed=0, retries=1)
    game = Consumers()
    game.begin(dataset=made)
    game.all_work(saves=True)
    game.master_restarts()
    game.closes(which=3)
    game.opens(which=1, heard=False)
    (held,) = game.clients[1].held()
    game.clients[1].said.append(Outcome(number=held.number, lease=held.lease, error="ValueError: no"))
    game.works(which=0, heard=False, want=1)
    game.leases(which=2, heard=False, want=1)
    game.all_work(saves=True)
    game.master_restarts()
    game.teardown()
    assert game.game.job.shards.datasets["d"].complete
