"""The loads on a master, small: what they measure is whole and plausible."""

from __future__ import annotations

import pytest

from benchmarks.services.agents import beats, calls, crowd, rendezvous, turns


def test_turns_form_a_world_without_connections() -> None:
    found = turns(100)
    assert (found["load"], found["agents"]) == ("turns", 100)


async def test_agents_form_a_world_over_two_connections_each() -> None:
    found = await rendezvous(40)
    assert (found["agents"], found["connections"]) == (40, 80)


async def test_agents_with_one_connection_form_the_same_world() -> None:
    async with crowd(20, alone=True) as (_, agents, _, alone):
        assert alone
        assert {agent.round for agent in agents} == {1}


async def test_agents_that_only_watch_stay_in_their_world() -> None:
    found = await beats(10, 0.1, settle=0.0)
    assert (found["agents"], found["failed"]) == (10, 0)


@pytest.mark.parametrize("kind", ["report", "shards"])
async def test_all_calls_of_every_kind_succeed(kind: str) -> None:
    found = await calls(2, kind, 2.0, settle=0.0)
    assert isinstance(rate := found["calls_per_second"], int)
    assert rate > 0
