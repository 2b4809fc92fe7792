"""Two nodes are out of memory, three controllers look at it in any order: the job grows once, both wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.build.jobs import job, resource
from lab.virtual.passes import Passes

Step = Callable[[Passes], Any]
PASSES: tuple[Step, ...] = (Passes.look_at_the_job, Passes.look_at_the_plans, Passes.look_at_the_nodes)
KILLS: tuple[Step, ...] = (
    lambda world: world.end("digits-worker-0", 137, "OOMKilled"),
    lambda world: world.end("digits-worker-1", 137, "OOMKilled"),
)
GROWN = {"memory": "1Gi"}


@pytest.mark.parametrize(
    ("own", "plans"),
    [({}, 1), ({"digits-worker-0": {"memory": "512Mi"}}, 2)],
    ids=["of their role", "one has its own"],
)
@settings(max_examples=50)
@given(order=st.permutations((*KILLS, *(PASSES * 3))))
def test_memory_grows_once_and_no_successor_has_the_old_limit(
    own: dict[str, dict[str, str]], plans: int, order: list[Step]
) -> None:
    world = Passes(job(), resource(nodes=own))
    world.look_at_the_nodes()
    world.start_all()
    for step in (*order, *PASSES * 4 * plans):
        step(world)
    limits = {name: pod["spec"]["containers"][0]["resources"]["limits"] for name, pod in world.pods.items()}
    successors = {name: limit for name, limit in limits.items() if name.count("-") == 3}
    assert successors == {f"digits-worker-{index}-1": GROWN for index in (0, 1)}
    spec = world.resource.spec
    assert spec.replica_resource_specs["worker"].resource == GROWN
    assert {node.name: node.resource for node in spec.nodes} == dict.fromkeys(own, GROWN)
    assert len(world.made) == plans
    assert {*world.made} <= {f"digits-worker-{index}-memory" for index in (0, 1)}
