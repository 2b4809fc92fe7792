"""Ten thousand agents in virtual time: churn, partitions, an impatient network; and what a turn costs."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from elasticjob.api.rpc.nodes import Order, Watch
from elasticjob.api.rpc.rendezvous import Join, Leave, Recovery, World
from elasticjob.api.sizes.role import Range
from elasticjob.master.handlers import dispatch, rendezvous
from elasticjob.master.state.invariants import invariants
from elasticjob.master.state.job import Job, Spec
from elasticjob.master.state.node import Node, Phase
from elasticjob.master.state.roster import Roster
from lab.virtual.master import START

STEP = timedelta(seconds=2)


@dataclass
class Agent:
    """An agent as a machine of a few states: it does as it is told, while it is reachable."""

    index: int
    life: int = 0
    away: int = 0  # steps for which the network, or the node itself, is gone
    round: int = 0
    seen: int = 0
    ended: int = 0  # the last round that it was told to leave
    joining: bool = False

    def __post_init__(self) -> None:
        self.node = f"node-{self.index}"

    @property
    def incarnation(self) -> str:
        return f"{self.node}-{self.life}"

    def watch(self) -> Watch:
        return Watch(
            node=self.node,
            role="worker",
            index=self.index,
            incarnation=self.incarnation,
            seen=self.seen,
            round=0 if self.joining else self.round,
        )

    def join(self) -> Join:
        return Join(
            node=self.node,
            role="worker",
            index=self.index,
            incarnation=self.incarnation,
            slots=8,
            address="10.0.0.1",
            port=1,
            recovery=Recovery.IN_PROCESS,
            after=self.round,
        )

    def start_again(self, away: int) -> None:
        self.life, self.away = self.life + 1, away
        self.round, self.seen, self.ended, self.joining = 0, 0, 0, False


class Crowd:
    """The master's state and all agents."""

    def __init__(self, many: int, bounds: Range, seed: int) -> None:
        self.job, self.now = Job(spec=Spec(job="crowd", bounds=bounds), gathering=START), START
        self.agents = [Agent(index) for index in range(many)]
        self.chance = random.Random(seed)
        self.worlds: list[World] = []

    def become(self, job: Job) -> None:
        """Note each world, and what must be true of it."""
        world, self.job = job.world, job
        if world is None or (self.worlds and world is self.worlds[-1]):
            return
        bounds = job.spec.bounds
        assert bounds.smallest <= len(world.members) <= (bounds.largest or 0)
        assert len(world.members) % bounds.unit == 0
        assert len({member.node for member in world.members}) == len(world.members)
        assert [m.since for m in world.members] == sorted(m.since for m in world.members)
        if self.worlds:
            assert world.round > self.worlds[-1].round
        self.worlds.append(world)

    def step(self, trouble: int) -> None:
        """Let time pass, so many things go wrong, and all reachable agents do as they are told."""
        self.now += STEP
        self.become(dispatch.tick(self.job, self.now))
        for agent in self.chance.sample(self.agents, trouble):
            self.chance.choice((self.crash, self.vanish, self.lose_worker, self.leave))(agent)
        if trouble and self.chance.random() < 0.4:
            self.partition()
        here = [agent for agent in self.agents if not agent.away]
        self.chance.shuffle(here)
        for agent in here:
            self.follow(agent)
        for agent in here:
            self.collect(agent)
        for agent in self.agents:
            agent.away = max(0, agent.away - 1)

    def follow(self, agent: Agent) -> None:
        turn = dispatch.handle(self.job, agent.watch(), self.now)
        self.become(turn.job)
        if orders := turn.reply:
            agent.seen = orders.version
            idle = orders.order is Order.TRAIN and not orders.round
            agent.joining = agent.joining or idle
            agent.ended = orders.round if orders.order is Order.REGROUP else 0
        if agent.round and agent.ended == agent.round:
            agent.joining = True
        if agent.joining:
            self.become(dispatch.handle(self.job, agent.join(), self.now).job)

    def collect(self, agent: Agent) -> None:
        """Take the answer to a waiting Join."""
        if agent.joining and (world := rendezvous.answer(self.job, agent.join())):
            agent.round, agent.joining = world.round, False

    def crash(self, agent: Agent) -> None:
        """The node's connection is cut; another agent comes, soon or later."""
        if not agent.away:
            self.become(dispatch.cut(self.job, agent.watch(), self.now))
        agent.start_again(self.chance.randint(0, 4))

    def vanish(self, agent: Agent) -> None:
        agent.away = self.chance.randint(1, 6)

    def lose_worker(self, agent: Agent) -> None:
        if agent.round and not agent.away and self.knows(agent):
            leave = Leave(node=agent.node, incarnation=agent.incarnation, round=agent.round, planned=False)
            if self.job.nodes[agent.node].round == agent.round:
                self.become(dispatch.handle(self.job, leave, self.now).job)
                agent.joining = True

    def leave(self, agent: Agent) -> None:
        if not agent.away and self.knows(agent):
            leave = Leave(node=agent.node, incarnation=agent.incarnation, round=agent.round, planned=True)
            self.become(dispatch.handle(self.job, leave, self.now).job)
            agent.start_again(self.chance.randint(0, 4))

    def knows(self, agent: Agent) -> bool:
        node = self.job.nodes.get(agent.node)
        return node is not None and node.incarnation == agent.incarnation

    def partition(self) -> None:
        """A part of the nodes is cut off for longer than the master waits, or not."""
        begin, many = self.chance.randrange(len(self.agents)), len(self.agents) // 5
        for agent in self.agents[begin : begin + many]:
            agent.away = max(agent.away, self.chance.randint(2, 5))


@pytest.mark.parametrize(
    ("many", "minimum", "maximum", "unit", "steps", "seed"),
    [
        pytest.param(10_000, 6_000, 9_990, 8, 3, 1, marks=pytest.mark.story),
        (500, 300, 490, 8, 5, 1),
        (200, 1, 400, 1, 20, 2),
        (200, 195, 200, 5, 20, 3),
    ],
)
def test_crowds_of_agents_in_a_bad_network_all_end_in_a_world(
    many: int, minimum: int, maximum: int, unit: int, steps: int, seed: int
) -> None:
    crowd = Crowd(many, Range(least=minimum, most=maximum, unit=unit), seed)
    crowd.step(0)
    for _ in range(steps):
        crowd.step(trouble=many // 100)
        assert invariants(crowd.job) == []
    while any(agent.away for agent in crowd.agents):
        crowd.step(0)
    for _ in range(4):
        crowd.step(0)
    job, bounds = crowd.job, crowd.job.spec.bounds
    assert invariants(job) == []
    assert job.running
    assert len(job.running.members) == min(many // unit * unit, (bounds.largest or 0))
    assert sum(agent.round == job.round for agent in crowd.agents) == len(job.running.members)
    assert all(agent.round == job.round or job.nodes[agent.node].joined for agent in crowd.agents)
    assert len(crowd.worlds) > 1


def kinds_of(nodes: Roster) -> Counter[object]:
    return Counter(node.kind for node in nodes.values())


def test_rosters_do_not_see_what_became_of_each_other() -> None:
    first = Roster(Node(name=f"node-{index}", index=index) for index in range(100))
    left, right = first.put(Node(name="left")), first.put(Node(name="right"))
    again = right.put(Node(name="left", phase=Phase.RUNNING))
    failed = left.put(Node(name="node-7", failed=True, failures=1))
    assert [*left] == [*first, "left"]
    assert [*again] == [*first, "right", "left"]
    assert ("left" in right, "right" in left, "left" in first) == (False, False, False)
    assert (first["node-7"].failed, failed["node-7"].failed, len(failed)) == (False, True, 101)
    for each in (first, left, right, again, failed):
        assert each.kinds == kinds_of(each)
        assert [each[name] for name in each] == each.values()


def test_joins_that_were_taken_back_count_for_last_call_until_nobody_waits() -> None:
    crowd = Crowd(3, Range(least=3, most=3), seed=0)
    times: list[datetime] = []
    for agent in crowd.agents[:2]:
        crowd.now += STEP
        times.append(crowd.now)
        crowd.become(dispatch.handle(crowd.job, agent.join(), crowd.now).job)
    crowd.become(dispatch.cut(crowd.job, crowd.agents[0].join(), crowd.now))
    assert (crowd.job.nodes.first, crowd.job.nodes.last) == (times[0], times[1])
    crowd.become(dispatch.cut(crowd.job, crowd.agents[1].join(), crowd.now))
    assert (crowd.job.nodes.first, crowd.job.nodes.last) == (None, None)
