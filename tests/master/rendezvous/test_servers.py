"""Parameter servers that come, go, move and are lost: some histories by name, and all in a machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.nodes import Usage
from elasticjob.api.rpc.parameters import Depart, Follow, Kept, Phase, Plane, Save, Serve
from elasticjob.api.rpc.shards import Consumer, Dataset, Lease, Open, Outcome, Position, Result
from elasticjob.api.sizes.facts import JobFacts
from elasticjob.api.sizes.role import Role
from elasticjob.master.durable.store import restore, snapshot
from elasticjob.master.handlers import nodes
from elasticjob.master.rendezvous import servers
from elasticjob.master.shards import book
from elasticjob.master.shards import ledger as ledgers
from elasticjob.master.state.scaling import Scaling, Target
from lab.virtual.master import Played, pod

BEAT = 1.0
POSITION = Position(dataset=Dataset(name="records", size=100, shard=10), next=3, applied=30)


@dataclass
class Server:
    """A server as the library plays it: what it says of itself has the names of the request."""

    index: int
    life: int = 0
    holds: int = 0
    gone: int = 0
    copies: bool = True
    copied: int = 0
    written: int = 0
    found: Kept | None = None
    error: str = ""
    plane: Plane = field(default_factory=Plane)

    def __post_init__(self) -> None:
        self.node = f"digits-ps-{self.index}"
        self.pod = f"{self.node}-{self.life}" if self.life else self.node
        self.incarnation, self.address = f"{self.pod}-process", f"{self.pod}:1"


@dataclass
class Worker:
    """A worker as the library plays it: what it says of itself, and the version that it sends to."""

    node: str
    uses: int = 0
    drained: int = 0
    prepares: bool = False
    prepared: int = 0
    finishes: bool = False
    finished: int = 0

    @property
    def incarnation(self) -> str:
        return self.node


class Site:
    """A master in virtual time, with servers and workers around it."""

    def __init__(self, places: int = 3) -> None:
        self.game = Played(sizes=JobFacts(roles={"worker": Role(count=2), "ps": Role(count=places)}))
        self.numbers: dict[int, tuple[str, ...]] = {}
        self.disk: bytes | None = None
        self.servers: dict[str, Server] = {}
        self.workers: dict[str, Worker] = {}
        self.want(*range(places))

    def want(self, *places: int) -> None:
        """Say which places should have a server."""
        job = self.game.job
        self.game.job = job.but(scaling=Scaling(placed=Target(servers=places)))

    def start(self, place: int, life: int = 0) -> Server:
        server = Server(place, life)
        self.servers[server.pod] = server
        self.list_pods()
        return server

    def lose(self, pod: str) -> Plane:
        """A server is gone, and all others go on until it is missed."""
        del self.servers[pod]
        return self.round(8)

    def list_pods(self) -> None:
        listed = [
            pod(each.node, name=each.pod, role="ps", relaunch=each.life) for each in self.servers.values()
        ]
        self.game.job = nodes.observe(self.game.job, listed, self.game.now)

    def serve(self, server: Server) -> Plane:
        """Let a server say that it is there, and do what it is told."""
        plane = self.told(msgspec.convert(server, Serve, from_attributes=True))
        if plane.phase is Phase.SAVE:
            server.copied = plane.saves
        after = [each.incarnation for each in plane.next_servers]
        if plane.phase is Phase.MOVE and server.incarnation in after and server.gone != plane.next_version:
            server.holds = plane.next_version
        server.plane = plane
        return plane

    def follow(self, worker: Worker) -> Plane:
        """Let a worker come to its boundary."""
        plane = self.told(msgspec.convert(worker, Follow, from_attributes=True))
        if plane.phase in (Phase.STEADY, Phase.PREPARE):
            worker.uses = plane.version
        elif plane.next_version or plane.saves:
            worker.uses, worker.drained = 0, plane.next_version or plane.saves
        return plane

    def told(self, request: Request[Plane]) -> Plane:
        """Return the answer, which may come after what it tells is saved."""
        while (plane := self.game.ask(request)) is None:
            self.save()
        found: Plane = plane
        if found.next_version:
            self.note(found.next_version, tuple(each.incarnation for each in found.next_servers))
        if found.saves:
            self.note(found.saves, ("a save",))
        return found

    def save(self) -> None:
        """Save the master's state."""
        self.disk = snapshot(self.game.job, self.game.now)
        self.game.save()

    def note(self, number: int, what: tuple[str, ...]) -> None:
        """A number means the same to all that ever hear of it, whichever master tells it."""
        assert self.numbers.setdefault(number, what) == what

    def another_master(self) -> None:
        """Lose what is not saved."""
        placed = self.game.job.scaling.placed.servers or ()
        self.game.job = restore(self.disk, self.game.job.spec, self.game.now)
        self.want(*placed)
        self.list_pods()

    def round(self, times: int = 4) -> Plane:
        """Let all be heard, some times over."""
        plane = Plane()
        for _ in range(times):
            self.game.now += timedelta(seconds=BEAT)
            for server in list(self.servers.values()):
                plane = self.serve(server)
            for worker in list(self.workers.values()):
                plane = self.follow(worker)
            self.game.tick()
        return plane

    @property
    def serving(self) -> list[str]:
        return [server.pod for server in self.game.job.parameters.current.members]

    @property
    def releasable(self) -> frozenset[str]:
        return servers.releasable(self.game.job)


@pytest.fixture
def site() -> Site:
    """Three servers and two workers that use them."""
    found = Site()
    for place in range(3):
        found.start(place)
    for name in ("worker-0", "worker-1"):
        found.workers[name] = Worker(name)
    assert found.round().phase is Phase.STEADY
    assert found.serving == ["digits-ps-0", "digits-ps-1", "digits-ps-2"]
    return found


def test_what_nodes_without_an_agent_use_is_known(site: Site) -> None:
    hot = Usage(cpu=1.5, memory=1000, peak=3000)
    ask = Serve(node="digits-ps-1", incarnation="digits-ps-1-process", index=1, address="a:1", usage=hot)
    site.told(ask)
    site.told(msgspec.structs.replace(ask, usage=Usage(cpu=0.5, memory=2000, peak=2000)))
    site.told(Follow(node="digits-worker-9", incarnation="w", usage=hot))  # whose pod is not known yet
    node = site.game.job.nodes["digits-ps-1"]
    assert (node.usage, node.peak) == (Usage(cpu=0.5, memory=2000, peak=2000), 3000)


def test_one_more_serves_when_all_workers_have_stopped_and_it_has_its_values(site: Site) -> None:
    site.want(0, 1, 2, 3)
    assert site.round().phase is Phase.STEADY
    new = site.start(3)
    assert site.serve(new).phase is Phase.DRAIN
    site.follow(site.workers["worker-0"])
    site.follow(site.workers["worker-0"])
    assert site.serve(new).phase is Phase.DRAIN
    assert site.round().version == 2
    assert site.serving[-1] == "digits-ps-3"
    assert not site.releasable


def test_two_less_go_when_their_values_have_moved(site: Site) -> None:
    site.want(0)
    assert not site.releasable
    site.round()
    assert (site.serving, sorted(site.releasable)) == (["digits-ps-0"], ["digits-ps-1", "digits-ps-2"])


def test_a_server_moves_to_the_next_pod_of_its_place(site: Site) -> None:
    site.start(1, life=1)
    assert not site.releasable
    site.round()
    assert site.serving == ["digits-ps-0", "digits-ps-1-1", "digits-ps-2"]
    assert site.releasable == {"digits-ps-1"}


def test_an_older_pod_that_comes_back_does_not_serve_again(site: Site) -> None:
    site.start(1, life=1)
    site.round()
    old = site.servers.pop("digits-ps-1")
    site.round(8)
    site.servers["digits-ps-1"] = old
    site.list_pods()
    site.round()
    assert site.serving == ["digits-ps-0", "digits-ps-1-1", "digits-ps-2"]


def test_a_lost_server_is_replaced_at_its_place(site: Site) -> None:
    site.lose("digits-ps-1")
    assert site.game.job.parameters.phase is Phase.STEADY
    site.start(1, life=1)
    assert site.round().version == 2
    assert site.serving == ["digits-ps-0", "digits-ps-1-1", "digits-ps-2"]


def test_a_server_that_does_not_come_is_left_out(site: Site) -> None:
    del site.servers["digits-ps-1"]
    site.round(590)
    assert len(site.serving) == 3
    site.round(30)
    assert site.serving == ["digits-ps-0", "digits-ps-2"]
    site.start(1, life=1)
    site.round()
    assert len(site.serving) == 3


def test_a_worker_that_starts_again_is_not_waited_for_twice(site: Site) -> None:
    site.start(1, life=1)
    site.serve(site.servers["digits-ps-1-1"])
    del site.workers["worker-1"]
    plane = site.told(Follow(node="worker-1", incarnation="again", drained=2))
    site.follow(site.workers["worker-0"])
    site.follow(site.workers["worker-0"])
    assert plane.next_version == 2
    assert site.game.job.parameters.phase is Phase.MOVE


def test_a_worker_that_is_not_heard_is_not_waited_for(site: Site) -> None:
    gone = site.workers.pop("worker-1")
    site.start(1, life=1)
    assert site.round(2).phase is Phase.DRAIN
    site.game.ask(Depart(node=gone.node, incarnation=gone.incarnation))
    assert site.round().version == 2


def test_the_next_cluster_that_loses_a_server_is_given_up(site: Site) -> None:
    new = site.start(1, life=1)
    assert site.serve(new).phase is Phase.DRAIN
    assert site.lose(new.pod).offered == 2
    assert site.game.job.parameters.phase is Phase.STEADY
    assert site.serving == ["digits-ps-0", "digits-ps-1", "digits-ps-2"]


def test_a_new_master_goes_on(site: Site) -> None:
    site.start(1, life=1)
    site.serve(site.servers["digits-ps-1-1"])
    before = site.game.job
    site.game.job = restore(snapshot(before, site.game.now), before.spec, site.game.now)
    assert site.game.job.parameters.current == before.parameters.current
    site.want(0, 1, 2)
    site.round()
    assert site.serving == ["digits-ps-0", "digits-ps-1-1", "digits-ps-2"]


def test_surplus_servers_that_never_reported_may_go_at_once() -> None:
    site = Site(places=1)
    for place in range(3):
        site.start(place)
    assert site.releasable == {"digits-ps-1", "digits-ps-2"}


def test_a_change_waits_until_workers_are_prepared_and_they_train_meanwhile(site: Site) -> None:
    for worker in site.workers.values():
        worker.prepares = True
    site.round()
    site.want(0, 1)
    plane = site.round()
    assert plane.phase is Phase.PREPARE
    assert {worker.uses for worker in site.workers.values()} == {1}
    for worker in site.workers.values():
        worker.prepared = plane.next_version
    assert site.round(8).version == plane.next_version


def test_a_change_does_not_wait_for_ever_for_a_worker_that_prepares(site: Site) -> None:
    site.workers["worker-0"].prepares = True
    site.round()
    site.want(0, 1)
    assert site.round(9).phase is Phase.PREPARE
    assert site.round(6).phase is Phase.STEADY
    assert site.serving == ["digits-ps-0", "digits-ps-1"]


def apply_one_shard(site: Site) -> int:
    """Let a consumer apply a shard; return how many of the dataset are done."""
    who = Consumer(node="worker-0", worker="0", life=1)
    game = site.game
    game.ask(Open(consumer=who, dataset=POSITION.dataset, opening=game.job.shards.mark + 1))
    save_book(site)
    game.ask(Lease(consumer=who, dataset="records"))
    [held] = next(ledgers.everyone(game.job.shards.datasets["records"])).leases
    game.ask(
        Result(consumer=who, dataset="records", outcomes=(Outcome(number=held.number, lease=held.lease),))
    )
    return game.job.shards.datasets["records"].applied


def save_book(site: Site) -> None:
    job = site.game.job
    site.game.job = job.but(shards=book.after_save(job.shards, job.shards.mark))


def save(site: Site) -> int:
    """Save, and let the servers write; return the number of the save."""
    site.game.ask(Save(node="worker-0", incarnation="worker-0"))
    plane = site.round()
    assert (plane.phase, plane.written) == (Phase.STEADY, False)
    for server in site.servers.values():
        server.written = plane.saves
    return plane.saves


def test_a_save_stops_the_workers_and_has_the_position_of_the_stop(site: Site) -> None:
    assert apply_one_shard(site) == 10
    site.game.ask(Save(node="worker-0", incarnation="worker-0"))
    server = site.servers["digits-ps-0"]
    assert site.serve(server).phase is Phase.DRAIN
    for worker in site.workers.values():
        site.follow(worker)
        site.follow(worker)
    plane = site.serve(server)
    assert (plane.phase, plane.position[0].applied) == (Phase.SAVE, 10)
    plane = site.round()
    assert (plane.phase, plane.version, plane.kept) == (Phase.STEADY, 1, 0)
    for each in site.servers.values():
        each.written = plane.saves
    assert site.round().kept == plane.saves


def test_a_checkpoint_counts_when_the_chief_has_finished_it(site: Site) -> None:
    site.workers["worker-0"].finishes = True
    site.round()
    number = save(site)
    plane = site.round()
    assert (plane.written, plane.kept, plane.chief) == (True, 0, "worker-0")
    site.workers["worker-0"].finished = number
    assert site.round().kept == number


def test_a_loss_without_copies_takes_all_back_to_the_checkpoint(site: Site) -> None:
    for server in site.servers.values():
        server.copies = False
    site.round()
    apply_one_shard(site)
    number = save(site)
    site.round()
    assert apply_one_shard(site) == 20
    site.want(0, 1)  # the members know that they have no copies from their next cluster on
    site.round()
    site.lose("digits-ps-1")
    site.start(1, life=1).copies = False
    plane = site.serve(site.servers["digits-ps-1-1"])
    assert (plane.phase, plane.restores) == (Phase.DRAIN, number)
    plane = site.round()
    assert plane.restored == plane.version
    assert site.game.job.shards.datasets["records"].applied == 10


def test_a_damaged_checkpoint_is_left_for_the_older_one_that_servers_find(site: Site) -> None:
    for server in site.servers.values():
        server.copies = False
    site.round()
    apply_one_shard(site)
    older = save(site)
    position = site.game.job.parameters.saving
    assert position
    kept = Kept(number=older, positions=position.positions or ())
    site.round()
    apply_one_shard(site)
    newest = save(site)
    site.round()
    site.want(0, 1)
    site.round()
    site.lose("digits-ps-1")
    new = site.start(1, life=1)
    plane = site.serve(new)
    assert plane.restores == newest
    new.gone, new.found = plane.next_version, kept
    plane = site.serve(new)
    assert (plane.restores, plane.next_version) == (older, new.gone + 1)
    plane = site.round()
    assert (plane.version, plane.restored, plane.kept) == (new.gone + 1, new.gone + 1, older)
    assert site.game.job.shards.datasets["records"].applied == 10


def test_servers_begin_with_the_checkpoint_that_none_of_them_finds_damaged() -> None:
    site = Site(places=2)
    for place in range(2):
        site.start(place).found = Kept(number=12)
    first, second = site.servers.values()
    for _ in range(2):
        plane = [site.serve(each) for each in (first, second)][-1]
    assert plane.restores == 12
    second.holds, first.holds = plane.next_version, 0
    first.gone, first.found = plane.next_version, Kept(number=9, positions=(POSITION,))
    plane = site.round()
    assert (plane.version, plane.kept) == (first.gone + 1, 9)
    assert site.game.job.shards.datasets["records"].applied == 30


def test_a_job_numbers_its_checkpoints_above_those_that_it_found() -> None:
    """The next job would begin with the one of the highest number."""
    site = Site(places=1)
    site.start(0).found = Kept(number=50)
    site.round()
    assert (site.game.job.parameters.kept.number, save(site)) == (50, 52)


def test_what_a_server_cannot_write_is_a_finding_until_it_can(site: Site) -> None:
    server = site.servers["digits-ps-1"]
    for error in ("checkpoint 2 is not written: no room", "checkpoint 2 is not written: no room", ""):
        server.error = error
        site.serve(server)
    [finding] = site.game.job.health.findings
    assert finding.message == "digits-ps-1: checkpoint 2 is not written: no room"
    assert finding.until is not None


def test_a_loss_without_copies_or_checkpoint_begins_anew(site: Site) -> None:
    apply_one_shard(site)
    site.lose("digits-ps-1")
    site.start(1, life=1).gone = 2
    assert site.round().version == 3
    assert site.game.job.parameters.restored == 3
    assert site.game.job.shards.datasets["records"].applied == 0


def test_a_save_is_given_up_if_a_server_is_lost(site: Site) -> None:
    save(site)
    site.servers["digits-ps-2"].written = 0
    plane = site.lose("digits-ps-2")
    assert (plane.saves, plane.kept) == (0, 0)


def test_servers_of_a_new_job_begin_with_the_checkpoint_that_all_of_them_see() -> None:
    site = Site()
    for place in range(3):
        site.start(place).found = Kept(number=7, positions=(POSITION,))
    plane = site.round()
    assert (plane.phase, plane.kept, plane.restored) == (Phase.STEADY, 7, plane.version)
    assert site.game.job.shards.datasets["records"].applied == 30


def test_nothing_is_told_before_it_is_saved(site: Site) -> None:
    """A number that a lost master had in mind only is not known to anybody."""
    site.want(0, 1)
    job = servers.settle(site.game.job, site.game.now)
    assert job.parameters.versions == 2
    assert servers.saved_state(job.parameters) is None
    assert not servers.releasable(job)
    told = servers.saved_state(job.parameters.after_save(job.parameters.mark))
    assert told is not None
    assert told.next_version == 2


def test_a_server_that_starts_again_in_its_pod_takes_the_place_of_the_one_before(site: Site) -> None:
    plane = site.told(
        Serve(node="digits-ps-1", incarnation="again", pod="digits-ps-1", index=1, address="a:1", copies=True)
    )
    assert plane.next_version == 2
    assert not {"digits-ps-1-process"} & site.game.job.parameters.servers.keys()


class Histories(RuleBasedStateMachine):
    """Servers, workers, plans and masters come and go in any order."""

    @initialize()
    def begin(self) -> None:
        self.site, self.version = Site(), 0
        self.site.game.lazy = True
        for place in range(3):
            self.site.start(place)
        self.site.workers["worker-0"] = Worker("worker-0")

    @rule(places=st.sets(st.integers(0, 4), min_size=1))
    def a_plan(self, places: set[int]) -> None:
        self.site.want(*sorted(places))

    @rule(place=st.integers(0, 4), life=st.integers(0, 2))
    def a_pod_starts(self, place: int, life: int) -> None:
        self.site.start(place, life)

    def one(self, data: st.DataObject) -> Server:
        return self.site.servers[data.draw(st.sampled_from(sorted(self.site.servers)))]

    @precondition(lambda self: self.site.servers)
    @rule(data=st.data())
    def a_server_is_lost(self, data: st.DataObject) -> None:
        del self.site.servers[self.one(data).pod]

    @precondition(lambda self: self.site.servers)
    @rule(data=st.data())
    def a_server_is_heard(self, data: st.DataObject) -> None:
        self.site.serve(self.one(data))

    @rule(name=st.sampled_from(["worker-0", "worker-1"]))
    def a_worker_is_at_its_boundary(self, name: str) -> None:
        self.site.follow(self.site.workers.setdefault(name, Worker(name)))

    @rule(seconds=st.sampled_from([0.5, 3, 700]))
    def time_passes(self, seconds: float) -> None:
        self.site.game.now += timedelta(seconds=seconds)
        for worker in list(self.site.workers.values()):
            self.site.follow(worker)
        self.site.game.tick()

    @rule()
    def another_master(self) -> None:
        self.site.another_master()
        self.version = 0  # what nobody was told may be forgotten

    @rule()
    def the_state_is_saved(self) -> None:
        self.site.save()

    @rule(chief=st.booleans())
    def a_save(self, chief: bool) -> None:
        for worker in self.site.workers.values():
            worker.finishes, worker.finished = chief, 0
        self.site.game.ask(Save(node="worker-0", incarnation="worker-0"))

    @precondition(lambda self: self.site.servers)
    @rule(data=st.data())
    def a_server_has_written(self, data: st.DataObject) -> None:
        server = self.one(data)
        server.written = server.copied

    @precondition(lambda self: self.site.servers)
    @rule(data=st.data(), copies=st.booleans())
    def a_server_has_copies_or_not(self, data: st.DataObject, copies: bool) -> None:
        self.one(data).copies = copies

    @precondition(lambda self: self.site.servers)
    @rule(data=st.data())
    def values_are_gone(self, data: st.DataObject) -> None:
        server = self.one(data)
        server.gone = server.plane.next_version

    @rule()
    def all_are_heard(self) -> None:
        takeover = self.site.game.job.spec.limits.takeover  # a new master may name the lost so long
        self.site.round(int(takeover.total_seconds() / BEAT) + 4)
        present = {server.index for server in self.site.servers.values()}
        wanted = set(self.site.game.job.scaling.placed.servers or ())
        if wanted <= present:
            found = self.site.game.job.parameters
            assert found.phase is Phase.STEADY
            assert found.restored <= found.current.version
            assert {server.index for server in found.current.members} == wanted

    @invariant()
    def no_server_that_is_used_may_go(self) -> None:
        used = {worker.uses for worker in self.site.workers.values() if worker.uses}
        current = self.site.game.job.parameters.current
        if current.version in used:
            assert not self.site.releasable & set(self.site.serving)
        assert current.version >= self.version
        self.version = current.version

    @invariant()
    def a_place_has_one_owner(self) -> None:
        places = [server.index for server in self.site.game.job.parameters.current.members]
        assert len(places) == len(set(places))

    @invariant()
    def nobody_uses_what_is_over(self) -> None:
        """A worker that is heard uses the present cluster, or waits."""
        job = self.site.game.job
        for worker in self.site.workers.values():
            if worker.uses and worker.node in job.parameters.followers:
                assert worker.uses == job.parameters.current.version


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
