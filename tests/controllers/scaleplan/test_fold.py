"""What a JobResource says after a plan, and what cannot be planned."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.controllers.scaleplan.fold import Impossible, fold, touches
from tests.kit.controllers.build import job, plan, resource, role

ELASTIC = {"worker": role(2, minReplicas=1, maxReplicas=4)}
WITH_PS = {**ELASTIC, "ps": role(1)}

ROWS: list[tuple[str, Any, Any, Any, dict[str, Any], tuple[str, ...]]] = [
    (
        "a size",
        job(ELASTIC),
        resource(),
        plan("up", {"worker": 3}),
        {"worker": {"replicas": 3}},
        ("worker replicas 2 to 3",),
    ),
    (
        "too many",
        job(ELASTIC),
        resource(),
        plan("up", {"worker": 9}),
        {"worker": {"replicas": 4}},
        ("worker replicas 2 to 4 (9 was asked for, 1 to 4 is allowed)",),
    ),
    (
        "too few",
        job(ELASTIC),
        resource(),
        plan("up", {"worker": 0}),
        {"worker": {"replicas": 1}},
        ("worker replicas 2 to 1 (0 was asked for, 1 to 4 is allowed)",),
    ),
    ("the same", job(ELASTIC), resource(), plan("up", {"worker": 2}), {"worker": {"replicas": 2}}, ()),
    (
        "a multiple of nodeUnit",
        job(ELASTIC, nodeUnit=2),
        resource(),
        plan("up", {"worker": 3}),
        {"worker": {"replicas": 2}},
        (),
    ),
    (
        "memory, whatever the size",
        job(ELASTIC),
        resource({"worker": 3}),
        plan("up", memory={"worker": "1Gi"}),
        {"worker": {"replicas": 3, "resource": {"memory": "1Gi"}}},
        ("worker memory of the template to 1Gi",),
    ),
    (
        "what is not named stays",
        job(WITH_PS),
        resource({"worker": 2, "ps": 1}, resources={"worker": {"memory": "1Gi"}}),
        plan("up", {"worker": 3}),
        {"worker": {"replicas": 3, "resource": {"memory": "1Gi"}}, "ps": {"replicas": 1}},
        ("worker replicas 2 to 3",),
    ),
    (
        "a role that waited for a plan",
        job({"worker": role(None)}),
        resource({}),
        plan("start", {"worker": 3}),
        {"worker": {"replicas": 3}},
        ("worker replicas 0 to 3",),
    ),
    (
        "single pods count",
        job(ELASTIC),
        resource(),
        plan("up", createPods=[{"name": "digits-worker-2"}]),
        {"worker": {"replicas": 3}},
        ("worker replicas 2 to 3",),
    ),
    (
        "single pods leave",
        job(ELASTIC),
        resource(),
        plan("up", removePods=[{"name": "digits-worker-1"}]),
        {"worker": {"replicas": 1}},
        ("worker replicas 2 to 1",),
    ),
]


@pytest.mark.parametrize(
    ("case", "job_", "before", "plan_", "sizes", "changes"), ROWS, ids=[row[0] for row in ROWS]
)
def test_fold(
    case: str, job_: Any, before: Any, plan_: Any, sizes: dict[str, Any], changes: tuple[str, ...]
) -> None:
    folded = fold(job_, before, plan_)
    assert folded.manifest()["replicaResourceSpecs"] == sizes
    assert folded.changes == changes


def test_limits_hold_for_memory_that_a_template_only_limits() -> None:
    folded = fold(job(ELASTIC, resourceLimits={"memory": "1536Mi"}), resource(), plan("up", {"worker": 4}))
    assert folded.sizes["worker"].replicas == 3
    assert folded.changes == ("worker replicas 2 to 3 (more would need 2Gi memory of 1536Mi)",)


IMPOSSIBLE: list[tuple[str, Any, Any, str]] = [
    (
        "a role that is not there",
        job(),
        plan("up", {"elf": 1}),
        "job digits has no role 'elf': its roles are worker",
    ),
    (
        "an automatic plan for a role that only people scale",
        job({"worker": role(2, autoScale=False)}),
        plan("up", {"worker": 1}),
        "role worker has autoScale: false, so only a manual plan may change it",
    ),
    (
        "more memory than the job may have",
        job(ELASTIC, resourceLimits={"memory": "1Gi"}),
        plan("up", memory={"worker": "1Gi"}),
        "the job would need 2Gi memory of 1Gi: raise spec.resourceLimits, or ask for less",
    ),
    (
        "a node that is not there",
        job(),
        plan("up", migratePods=[{"name": "digits-worker-9", "resource": {"memory": "1Gi"}}]),
        "there is no node 'digits-worker-9': name one of digits-worker-0, digits-worker-1, …",
    ),
]


@pytest.mark.parametrize(("case", "job_", "plan_", "why"), IMPOSSIBLE, ids=[row[0] for row in IMPOSSIBLE])
def test_impossible(case: str, job_: Any, plan_: Any, why: str) -> None:
    with pytest.raises(Impossible) as caught:
        fold(job_, resource(), plan_)
    assert str(caught.value) == why


def test_a_person_may_scale_what_an_optimizer_may_not() -> None:
    folded = fold(
        job({"worker": role(3, autoScale=False)}), resource(), plan("up", {"worker": 3}, manual=True)
    )
    assert folded.sizes["worker"].replicas == 3


def test_nodes_with_resources_of_their_own() -> None:
    moved = plan(
        "up", {"worker": 2}, migratePods=[{"name": "digits-worker-1-3", "resource": {"memory": "2Gi"}}]
    )
    before = resource({"worker": 3}, nodes={"digits-worker-2": {"memory": "1Gi"}})
    folded = fold(job(ELASTIC), before, moved)
    assert folded.nodes == {"digits-worker-1": {"memory": "2Gi"}}
    assert "digits-worker-1 memory to 2Gi" in folded.changes


def test_what_plans_touch() -> None:
    assert touches(plan("a", {"worker": 2})) == {"worker replicas"}
    assert touches(plan("a", memory={"worker": "1Gi"})) == {"worker resource"}
    assert touches(plan("a", createPods=[{"name": "digits-ps-1"}])) == {"ps replicas"}


@given(
    now=st.integers(0, 12),
    asked=st.integers(0, 20),
    least=st.integers(0, 4),
    room=st.integers(0, 8),
    unit=st.sampled_from([1, 2, 4]),
    limit=st.sampled_from([None, "2Gi", "4Gi", "64Gi"]),
)
def test_bounds_and_limits_always_hold(
    now: int, asked: int, least: int, room: int, unit: int, limit: str | None
) -> None:
    spec = job(
        {"worker": role(None, minReplicas=least, maxReplicas=least + room)},
        nodeUnit=unit,
        resourceLimits={"memory": limit} if limit else {},
    )
    try:
        count = fold(spec, resource({"worker": now}), plan("up", {"worker": asked})).sizes["worker"].replicas
    except Impossible:
        return
    assert count is not None
    assert least <= count <= least + room
    if limit:
        assert count * 512 <= {"2Gi": 2048, "4Gi": 4096, "64Gi": 65536}[limit]
