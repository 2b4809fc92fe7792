"""Random lives: joins, leaves, losses, repeats, ticks, new masters; what must hold, holds after each turn."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.nodes import Order
from elasticjob.api.rpc.rendezvous import Join, World
from elasticjob.master.durable.store import restore, snapshot
from elasticjob.master.handlers import dispatch
from elasticjob.master.rendezvous import rules
from elasticjob.master.state.errors import RequestError
from elasticjob.master.state.invariants import invariants
from elasticjob.master.state.job import Job
from lab.virtual.master import Played, failure, finish, join, leave, plain, ran, report, watch

NAMES = [f"node-{index}" for index in range(6)]
ANY = st.sampled_from(NAMES)


class Lives(RuleBasedStateMachine):
    """Agents that behave as agents do, on a network that loses, repeats and delays."""

    @initialize(
        minimum=st.integers(1, 3),
        more=st.integers(0, 4),
        unit=st.integers(1, 3),
        enter=st.sampled_from([join, plain]),
    )
    def begin(self, minimum: int, more: int, unit: int, enter: Callable[..., Join]) -> None:
        self.enter = enter
        maximum = max(minimum + more, -(-minimum // unit) * unit)
        self.game = Played(minimum, maximum, unit, restart_count=1000, replicas=6)
        self.saved: list[bytes] = [snapshot(self.game.job)]
        self.lives = dict.fromkeys(NAMES, 0)
        self.sent: list[Request[Any]] = []
        self.worlds: list[World] = []

    def ask(self, request: Request[Any]) -> None:
        """Send a request: refused ones change nothing, and every one may come again."""
        self.sent.append(request)
        before = self.game.job
        try:
            self.game.ask(request)
        except RequestError:
            assert self.game.job is before
        if self.game.job.world is not before.world:  # nobody else saves what it begins without
            assert set(rules.saving(before, self.game.now)) <= {request.node}  # type: ignore[attr-defined]
        self.note_world()

    def note_world(self) -> None:
        world = self.game.job.world
        if world and (not self.worlds or self.worlds[-1] != world):
            self.check_world(world)
            self.worlds.append(world)

    def check_world(self, world: World) -> None:
        """What must be true of a world in the moment it is formed."""
        bounds = self.game.job.spec.bounds
        completed = self.game.job.nodes.count(lambda kind: kind.completed)  # they count for the minimum
        assert bounds.smallest - completed <= len(world.members) <= (bounds.largest or 0)
        assert len(world.members) % bounds.unit == 0
        if self.worlds:
            assert world.round > self.worlds[-1].round
            old = {m.node: m for m in self.worlds[-1].members}
            survivors = [m for m in world.members if m.since < world.round]
            for member in survivors:
                assert old[member.node].since == member.since
                assert old[member.node].incarnation == member.incarnation
            assert list(world.members[: len(survivors)]) == survivors

    def life(self, name: str) -> str:
        return f"{name}-{self.lives[name]}"

    def round_of(self, name: str) -> int:
        node = self.game.job.nodes.get(name)
        return node.round if node and node.incarnation == self.life(name) else 0

    @rule(names=st.lists(ANY, min_size=2, unique=True))
    def agents_do_as_they_are_told(self, names: list[str]) -> None:
        """Watch, and join if that is asked for or the node is in no world."""
        for name in names:
            if self.gone(name):
                self.lives[name] += 1
            self.an_agent_watches(name)
        for name in names:
            orders = self.game.orders(name, self.life(name))
            if orders.order is Order.REGROUP or (orders.order is Order.TRAIN and not orders.round):
                self.an_agent_joins(name, False)

    @rule()
    def all_agents_do_as_they_are_told(self) -> None:
        self.agents_do_as_they_are_told(NAMES)

    @rule(name=ANY)
    def an_agent_watches(self, name: str) -> None:
        self.ask(watch(name, self.life(name), round=self.round_of(name)))

    @rule(name=ANY, broken=st.booleans())
    def an_agent_joins(self, name: str, broken: bool) -> None:
        self.ask(self.enter(name, self.life(name), after=self.round_of(name), broken=broken))

    @rule(name=ANY, planned=st.booleans(), grace=st.sampled_from([0.0, 3.0, 10.0]))
    def an_agent_leaves(self, name: str, planned: bool, grace: float) -> None:
        self.ask(leave(name, self.round_of(name), planned=planned, life=self.life(name), grace=grace))

    @rule(name=ANY)
    def a_line_is_cut(self, name: str) -> None:
        self.game.cut(watch(name, self.life(name)))
        self.note_world()

    @rule(name=ANY, turn=st.integers(0, 6), error=st.sampled_from(["", "", "no link"]))
    def an_agent_is_checked(self, name: str, turn: int, error: str) -> None:
        """The check's list is not the training's: only a node at fault leaves that."""
        before = {each: node.joined for each, node in self.game.job.nodes.items()}
        request = ran(name, turn, error=error, life=self.life(name))
        world = self.game.job.world
        self.ask(request)
        if self.game.job.world is world:
            for each, node in self.game.job.nodes.items():
                assert node.joined == before.get(each) or node.failed or each == name

    @rule(name=ANY)
    def a_join_is_withdrawn(self, name: str) -> None:
        self.game.cut(join(name, self.life(name)))
        self.note_world()

    @rule(name=ANY)
    def an_agent_is_replaced(self, name: str) -> None:
        self.lives[name] += 1
        self.ask(watch(name, self.life(name)))

    @rule(name=ANY)
    def an_agent_gives_up(self, name: str) -> None:
        self.ask(failure(name, life=self.life(name), number=self.round_of(name)))

    @precondition(lambda self: len(self.sent) > 12)
    @rule(name=ANY)
    def an_agent_finishes(self, name: str) -> None:
        self.ask(finish(name, self.round_of(name), self.life(name)))

    @rule(name=ANY, step=st.integers(0, 100))
    def progress_is_reported(self, name: str, step: int) -> None:
        request = report(name, self.round_of(name), step)
        self.ask(request)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def an_old_request_comes_again(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.sent[-8:]))
        before = self.game.job
        try:
            self.game.ask(request)
        except RequestError:
            assert self.game.job is before
        self.note_world()

    @rule(seconds=st.sampled_from([0.25, 1.0, 4.0, 6.0, 31.0]), heard=st.sets(ANY))
    def time_passes(self, seconds: float, heard: set[str]) -> None:
        self.game.now += timedelta(seconds=seconds)
        for name in sorted(heard):
            self.an_agent_watches(name)
        self.game._become(dispatch.tick(self.game.job, self.game.now))
        self.note_world()

    @rule()
    def the_master_is_saved(self) -> None:
        self.saved = [snapshot(self.game.job)]

    @rule(fresh=st.booleans())
    def a_new_master_takes_over(self, fresh: bool) -> None:
        """From the latest snapshot, as `_save` writes it whenever a world changes; or from one that lags."""
        data = snapshot(self.game.job) if fresh else self.saved[-1]
        before = self.game.job
        self.game._become(restore(data, before.spec, self.game.now))
        if fresh:
            assert self.game.job.world == before.world
            assert self.game.job.round == before.round
        else:
            self.sent.clear()
            self.worlds = [self.game.job.world] if self.game.job.world else []

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "game"):
            assert invariants(self.game.job) == []

    @invariant()
    def a_question_changes_nothing(self) -> None:
        if not hasattr(self, "game"):
            return
        before = self.game.job
        for name, node in before.nodes.items():
            if node.incarnation:
                self.game.orders(name, node.incarnation)
        assert self.game.job is before

    @invariant()
    def who_trains_is_told_its_round(self) -> None:
        if not hasattr(self, "game") or self.game.job.verdict:
            return
        job: Job = self.game.job
        for name, node in job.nodes.items():
            if not node.incarnation:
                continue
            orders = self.game.orders(name, node.incarnation)
            inside = bool(job.running and job.member(name))
            assert (orders.order is Order.TRAIN and orders.round > 0) is inside

    def teardown(self) -> None:
        """Once the network behaves, everybody who lives is in the world, or waits and is told why."""
        if hasattr(self, "game") and not self.game.job.verdict:
            self.calm_down()
            self.everybody_has_a_place()

    def calm_down(self) -> None:
        game = self.game
        for node in game.job.nodes.values():  # who is held back would have its turn a day later
            game.job = game.job.put(node.but(spoilt={}))
        for _ in range(8):
            game.now += timedelta(seconds=2)
            self.all_agents_do_as_they_are_told()
            game._become(dispatch.tick(game.job, game.now))
            self.note_world()

    def gone(self, name: str) -> bool:
        node = self.game.job.nodes.get(name)
        current = node is not None and node.incarnation == self.life(name)
        retired = node is not None and self.life(name) in node.retired
        return retired or bool(current and node and (node.leaving or node.ended))

    def everybody_has_a_place(self) -> None:
        job, bounds = self.game.job, self.game.job.spec.bounds
        if job.verdict:
            return
        done = {name for name in NAMES if job.nodes[name].finished}
        inside = [name for name in NAMES if job.running and job.member(name)]
        possible = min(len(NAMES) // bounds.unit * bounds.unit, (bounds.largest or 0))
        if not done:  # those that have finished enter no world, and let nobody into the one they finished
            assert len(inside) == (possible if possible >= bounds.smallest else 0)
        for name in set(NAMES) - set(inside) - done:
            assert job.nodes[name].joined
            assert self.game.orders(name, self.life(name)).reason


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=50, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
