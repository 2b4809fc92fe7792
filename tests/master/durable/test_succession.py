"""A job goes on under the master of another of its nodes, from the snapshot that the nodes carry."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from elasticjob.api.rpc.nodes import Heir, Order
from elasticjob.kube.clock import VirtualClock
from elasticjob.master.durable.store import Nowhere
from elasticjob.master.durable.succession import HEIRS, inherit, part_of, succession
from elasticjob.master.serving.server import Master
from elasticjob.master.state.invariants import invariants
from lab.virtual.master import Played, finish, join, leave, played, report, watch
from lab.waiting import PATIENCE


def test_nodes_carry_the_job_once_it_has_a_world() -> None:
    game = Played(maximum=2)
    game.ask(watch("node-0"), watch("node-1"))
    assert succession(game.job, "node-0") is None
    game.ask(join("node-0"), join("node-1"))
    left = succession(game.job, "node-0")
    assert left is not None
    assert (left.host, left.heirs) == ("node-0", (Heir(node="node-1", address="127.0.0.1"),))


def test_node_alone_has_no_heir() -> None:
    assert succession(played("node-0").job, "node-0") is None


def test_nodes_that_are_gone_inherit_nothing() -> None:
    game = played("node-0", "node-1", "node-2")
    game.ask(leave("node-1", 1, planned=True))
    left = succession(game.job, "node-0")
    assert left is not None
    assert [heir.node for heir in left.heirs] == ["node-2"]


def test_only_heirs_carry_the_snapshot() -> None:
    names = [f"node-{index}" for index in range(HEIRS + 3)]
    game = Played(minimum=1, maximum=len(names))
    game.ask(*(watch(name) for name in names), *(join(name) for name in names))
    left = succession(game.job, "node-0")
    assert left is not None
    assert [heir.node for heir in left.heirs] == game.names()[1 : HEIRS + 1]
    carried = {name: part_of(left, name).snapshot for name in game.names()[1:]}
    assert [bool(snapshot) for snapshot in carried.values()] == [True] * HEIRS + [False] * 2
    assert {part_of(left, name).heirs for name in names} == {left.heirs}


def test_survivors_form_the_next_world_without_the_host_at_once() -> None:
    game = played("node-0", "node-1", "node-2")
    game.ask(report("node-1", 1, 47))
    left = succession(game.job, "node-0")
    assert left is not None
    game.now += timedelta(seconds=3)
    game.job = inherit(left, game.job.spec, game.now)
    assert invariants(game.job) == []
    orders = game.ask(watch("node-1", round=1, seen=game.job.version - 1))
    assert (orders.order, orders.lost) == (Order.REGROUP, ("node-0",))
    game.ask(watch("node-2", round=1), join("node-1", after=1), join("node-2", after=1))
    assert game.names() == ["node-1", "node-2"]
    assert game.job.world is not None
    assert (game.job.world.round, game.job.world.batch_slots) == (2, 3)
    assert game.job.training.progress is not None


async def test_heirs_know_that_the_host_has_finished() -> None:
    game = played("node-0", "node-1")
    master = Master(game.job, "secret", Nowhere(), clock=VirtualClock(), node="node-0")
    first = await master.ask(watch("node-1", round=1))
    await master.ask(finish("node-0", 1))
    async with asyncio.timeout(PATIENCE):
        orders = await master.ask(watch("node-1", round=1, seen=first.version))
    assert (orders.order, orders.round) == (Order.TRAIN, 1)
    game.job = inherit(orders.succession, game.job.spec, game.now)
    assert game.job.ending is None  # node-1 may take its time to evaluate
    game.ask(watch("node-1", round=1), finish("node-1", 1))
    assert game.verdict.reason == "Finished"
