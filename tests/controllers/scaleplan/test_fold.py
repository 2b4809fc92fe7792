"""What a JobResource says after a plan, and what cannot be planned."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.controllers.scaleplan.fold import Impossible, fold, touches
from lab.build.jobs import job, plan, resource, role

ELASTIC = {"worker": role(2, minReplicas=1, maxReplicas=4)}


def asked(
    worker: int | None = None, *, has: int | None = 2, vacant: Any = (), of: Any = None, **spec: Any
) -> tuple[Any, Any, Any]:
    """A job of one to four workers, its JobResource, which `has` so many or none of them, and a plan."""
    had = resource({} if has is None else {"worker": has}, vacant={"worker": [*vacant]})
    return of or job(ELASTIC), had, plan("up", None if worker is None else {"worker": worker}, **spec)


def named(index: int, **more: Any) -> dict[str, Any]:
    return {"name": f"digits-worker-{index}", **more}


MORE: dict[str, Any] = {"memory": {"worker": "1Gi"}}
GIB = {"resource": {"memory": "1Gi"}}
TWO_TO_THREE = "worker replicas 2 to 3"
ROWS: dict[str, tuple[Any, ...]] = {
    "a size": (asked(3), {"replicas": 3}, TWO_TO_THREE),
    "too many": (asked(9), {"replicas": 4}, "worker replicas 2 to 4 (9 was asked for, 1 to 4 is allowed)"),
    "too few": (asked(0), {"replicas": 1}, "worker replicas 2 to 1 (0 was asked for, 1 to 4 is allowed)"),
    "the same": (asked(2), {"replicas": 2}),
    "a multiple of nodeUnit": (asked(3, of=job(ELASTIC, nodeUnit=2)), {"replicas": 2}),
    "memory": (asked(**MORE, has=3), {"replicas": 3, **GIB}, "worker memory of the template to 1Gi"),
    "a role that waited": (
        asked(3, has=None, of=job({"worker": role(None)})), {"replicas": 3}, "worker replicas 0 to 3"),
    "single pods count": (asked(createPods=[named(2)]), {"replicas": 3}, TWO_TO_THREE),
    "a node that is there is not created again": (asked(createPods=[named(1)]), {"replicas": 2}),
    "a node is created where its name says": (
        asked(createPods=[named(3, type="Worker")]), {"replicas": 3, "vacant": [2]}, TWO_TO_THREE),
    "or where its index says: the number in the name may be another": (
        asked(createPods=[named(7, rankIndex=0)], has=1, vacant=[0]), {"replicas": 2},
        "worker replicas 1 to 2"),
    "of more nodes than are allowed those come that are named first": (
        asked(createPods=[named(5), named(6)], has=3),
        {"replicas": 4, "vacant": [3, 4]},
        "worker replicas 3 to 4 (5 was asked for, 1 to 4 is allowed)",
    ),
    "single pods leave": (
        asked(removePods=[named(1)]), {"replicas": 1}, "worker replicas 2 to 1", "digits-worker-1 removed"),
    "the named node leaves, not the last": (
        asked(removePods=["digits-worker-0"]), {"replicas": 1, "vacant": [0]}, "worker replicas 2 to 1",
        "digits-worker-0 removed"),
    "a pod's name means its node, and both names mean one": (
        asked(removePods=["digits-worker-1-4", "digits-worker-1"], has=3), {"replicas": 2, "vacant": [1]},
        "worker replicas 3 to 2", "digits-worker-1 removed"),
    "more leave than are named: the last too": (
        asked(removePods=["digits-worker-1"], has=4, of=job(ELASTIC, nodeUnit=2)),
        {"replicas": 2, "vacant": [1]},
        "worker replicas 4 to 2 (3 was asked for, 1 to 4 by 2 is allowed)",
        "digits-worker-1 removed",
    ),
    "one leaves and another comes": (
        asked(removePods=["digits-worker-0"], createPods=[named(2)]), {"replicas": 2, "vacant": [0]},
        "digits-worker-0 removed"),
    "a role that shrinks further keeps the vacancies below its last node": (
        asked(2, has=3, vacant=[1]), {"replicas": 2, "vacant": [1]}, "worker replicas 3 to 2"),
    "a role that grows fills vacancies first": (
        asked(3, vacant=[0, 2]), {"replicas": 3, "vacant": [2]}, TWO_TO_THREE),
    "memory alone fills none": (
        asked(**MORE, has=1, vacant=[0]), {"replicas": 1, **GIB, "vacant": [0]},
        "worker memory of the template to 1Gi"),
}  # fmt: skip
"""What is given, what is said of the workers then, and the changes that are told."""


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_fold(row: tuple[Any, ...]) -> None:
    given_, worker, *changes = row
    folded = fold(*given_)
    assert (folded.manifest()["replicaResourceSpecs"], [*folded.changes]) == ({"worker": worker}, changes)


def test_what_is_not_named_stays() -> None:
    had = resource({"worker": 2, "ps": 1}, resources={"worker": {"memory": "1Gi"}})
    folded = fold(job({**ELASTIC, "ps": role(1)}), had, plan("up", {"worker": 3}))
    assert folded.manifest()["replicaResourceSpecs"] == {
        "worker": {"replicas": 3, **GIB},
        "ps": {"replicas": 1},
    }
    assert folded.changes == (TWO_TO_THREE,)


def test_limits_hold_for_memory_that_a_template_only_limits() -> None:
    folded = fold(job(ELASTIC, resourceLimits={"memory": "1536Mi"}), resource(), plan("up", {"worker": 4}))
    assert folded.sizes["worker"].replicas == 3
    assert folded.changes == ("worker replicas 2 to 3 (more would need 2Gi memory of 1536Mi)",)


IMPOSSIBLE: dict[str, tuple[tuple[Any, Any], str]] = {
    "a role that is not there": (
        (job(), plan("up", {"elf": 1})),
        "job digits has no role 'elf': its roles are worker",
    ),
    "an automatic plan for a role that only people scale": (
        (job({"worker": role(2, autoScale=False)}), plan("up", {"worker": 1})),
        "role worker has autoScale: false, so only a manual plan may change it",
    ),
    "more memory than the job may have": (
        (job(ELASTIC, resourceLimits={"memory": "1Gi"}), plan("up", memory={"worker": "1Gi"})),
        "the job would need 2Gi memory of 1Gi: raise spec.resourceLimits, or ask for less",
    ),
    "a node that is not there": (
        (job(), plan("up", migratePods=[{"name": "digits-worker-9", "resource": {"memory": "1Gi"}}])),
        "there is no node 'digits-worker-9': name one of digits-worker-0, digits-worker-1, …",
    ),
    "the removal of a node that is not there": (
        (job(ELASTIC), plan("up", removePods=["digits-worker-9"])),
        "there is no node 'digits-worker-9': name one of digits-worker-0, digits-worker-1, …",
    ),
    "the removal of a node below the minimum": (
        (job(), plan("up", removePods=["digits-worker-0"])),
        "digits-worker-0 cannot be removed: 1 was asked for, exactly 2 is allowed",
    ),
}


@pytest.mark.parametrize(("given_", "why"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible(given_: tuple[Any, Any], why: str) -> None:
    job_, plan_ = given_
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
    assert touches(plan("a", removePods=[{"name": "digits-h100-0-2"}])) == {"h100 replicas"}


def test_roles_may_end_in_digits() -> None:
    roles = {name: role(2, minReplicas=1, maxReplicas=4) for name in ("h100", "worker", "worker2")}
    asked = plan("down", removePods=[{"name": "digits-h100-1"}, {"name": "digits-worker2-0"}])
    folded = fold(job(roles), resource(dict.fromkeys(roles, 2)), asked)
    assert {name: size.replicas for name, size in folded.sizes.items()} == {
        "h100": 1,
        "worker": 2,
        "worker2": 1,
    }


def test_a_request_that_changes_nothing_says_why() -> None:
    folded = fold(job(ELASTIC, nodeUnit=2), resource({"worker": 2}), plan("up", {"worker": 3}))
    assert (folded.changes, folded.remarks) == ((), ("worker: 3 was asked for, 1 to 4 by 2 is allowed",))


@given(now=st.integers(1, 8), gaps=st.sets(st.integers(0, 9), max_size=3), data=st.data())
def test_nodes_that_are_not_removed_stay(now: int, gaps: set[int], data: Any) -> None:
    before = resource({"worker": now}, vacant={"worker": sorted(gaps)})
    had = before.spec.replica_resource_specs["worker"].indices
    gone = data.draw(st.sets(st.sampled_from(had)))
    more = data.draw(st.integers(0, 3))
    asked = plan(
        removePods=[f"digits-worker-{index}" for index in sorted(gone)],
        createPods=[{"name": f"digits-worker-{100 + n}"} for n in range(more)],
    )
    folded = fold(job({"worker": role(None, minReplicas=0)}), before, asked)
    spec = resource(
        {"worker": folded.sizes["worker"].replicas or 0}, vacant={"worker": folded.sizes["worker"].vacant}
    ).spec
    has = spec.replica_resource_specs["worker"].indices
    assert has == folded.sizes["worker"].indices
    assert set(had) - gone <= set(has)
    assert not gone & set(has)
    assert len(has) == now - len(gone) + more


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
    assert count == spec.spec.range_of("worker").clamp(count)
    if limit:  # a job that is beyond its limits already may need as much as now
        assert count * 512 <= max({"2Gi": 2048, "4Gi": 4096, "64Gi": 65536}[limit], now * 512)
