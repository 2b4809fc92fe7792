"""What is idle in a cohort, and whom slices are given back for."""

from __future__ import annotations

import pytest

from elasticjob.api.resources import Resources
from elasticjob.controllers.kueue.quota import market
from elasticjob.controllers.kueue.reclaim import claimed, crowds, giving
from elasticjob.controllers.kueue.workload import COHORT, Cohort, Workload
from tests.kit.controllers.build import NOW
from tests.kit.controllers.queued import BASE, admitted, cluster_queue, workload


@pytest.mark.parametrize(
    ("queues", "used", "idle"),
    [
        ([cluster_queue("a", "4")], {}, 4),
        ([cluster_queue("a", "4")], {"a": 3}, 1),
        ([cluster_queue("a", "4"), cluster_queue("b", "6")], {"a": 3}, 1),
        ([cluster_queue("a", "4", "c"), cluster_queue("b", "6", "c")], {}, 10),
        ([cluster_queue("a", "4", "c"), cluster_queue("b", "6", "c")], {"a": 6, "b": 2}, 2),
        ([cluster_queue("a", "4", "c"), cluster_queue("b", "6", "c")], {"b": 8}, 2),
        ([cluster_queue("a", "4", "c", borrowingLimit="3"), cluster_queue("b", "6", "c")], {"a": 5}, 2),
        ([cluster_queue("a", "4", "c"), cluster_queue("b", "6", "c", lendingLimit="1")], {}, 5),
        ([cluster_queue("a", "4", "c"), cluster_queue("b", "6", "c", lendingLimit="1")], {"b": 5}, 5),
        ([cluster_queue("a", "4", "c"), cluster_queue("b", "6", "c", lendingLimit="1")], {"b": 6}, 4),
        ([cluster_queue("a", "4", "c", lendingLimit="0"), cluster_queue("b", "6", "c")], {"b": 6}, 4),
    ],
)
def test_what_is_idle_for_queue_a(queues: list[object], used: dict[str, int], idle: int) -> None:
    every = [admitted(f"w-{queue}", count, queue=queue, job="") for queue, count in used.items()]
    found = market(queues, every)  # type: ignore[arg-type]
    assert found.available("a", ("f", "cpu")) == idle
    assert (found.assignment("a", Resources.parse({"cpu": idle})) is None) == (idle == 0) or idle
    assert found.assignment("a", Resources.parse({"cpu": idle + 1})) is None


def cohort(name: str, nominal: str = "0", parent: str = "", **limits: str) -> Cohort:
    """As it is written: limits only where there is a parent."""
    cells = [{"name": "cpu", "nominalQuota": nominal, **limits}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": cells}]}]
    spec = {"parentName": parent, "resourceGroups": groups}
    return COHORT.convert({"metadata": {"name": name}, "spec": spec})


A, B = cluster_queue("a", "4", "c"), cluster_queue("b", "6", "d")


@pytest.mark.parametrize(
    ("cohorts", "used", "idle"),
    [
        ([], {}, 4),
        ([cohort("c", "3")], {}, 7),
        ([cohort("c", "3")], {"a": 5}, 2),
        ([cohort("c", parent="org"), cohort("d", parent="org")], {}, 10),
        ([cohort("c", parent="org"), cohort("d", parent="org"), cohort("org", "5")], {"b": 8}, 7),
        ([cohort("c", parent="org"), cohort("d", parent="org", lendingLimit="2")], {}, 6),
        ([cohort("c", parent="org"), cohort("d", parent="org", lendingLimit="2")], {"b": 5}, 5),
        ([cohort("c", "1", parent="org", borrowingLimit="2"), cohort("d", parent="org")], {}, 7),
        ([cohort("c", "1", parent="org", borrowingLimit="2"), cohort("d", parent="org")], {"a": 6}, 1),
        ([cohort("c", parent="d")], {}, 10),
        ([cohort("c", parent="elsewhere"), cohort("d", parent="org")], {}, 4),
    ],
)
def test_what_is_idle_below_cohorts(cohorts: list[Cohort], used: dict[str, int], idle: int) -> None:
    every = [admitted(f"w-{queue}", count, queue=queue, job="") for queue, count in used.items()]
    found = market([A, B], every, cohorts)
    assert found.available("a", ("f", "cpu")) == idle


def test_queues_below_one_root_give_to_each_other() -> None:
    apart, below = cohort("c", parent="elsewhere"), cohort("c", parent="org")
    assert not market([A, B], [], [apart, cohort("d", parent="org")]).same_cohort("a", "b")
    assert market([A, B], [], [below, cohort("d", parent="org")]).same_cohort("a", "b")
    assert market([A, B], [], [cohort("d", parent="c")]).same_cohort("a", "b")


def test_cohorts_that_go_in_circles_admit_nothing() -> None:
    found = market([A, B], [], [cohort("c", parent="d"), cohort("d", parent="c")])
    assert found.assignment("a", Resources.parse({"cpu": 1})) is None
    assert not found.same_cohort("a", "b")


def test_a_resource_that_no_flavour_covers_never_fits() -> None:
    found = market([cluster_queue("a", "4")], [])
    assert found.assignment("a", Resources.parse({"cpu": 1, "memory": "1Gi"})) is None
    assert found.assignment("a", Resources.parse({"cpu": 1, "pods": 3})) == {("f", "cpu"): 1}


def test_a_resource_that_kueue_leaves_out_needs_no_quota() -> None:
    left_out = cluster_queue("all", "4", resource="nvidia.com/gpu")
    asks = Resources.parse({"cpu": 1, "nvidia.com/gpu": 1})
    assert market([left_out], []).assignment("all", asks) is None
    found = market([left_out], [admitted(BASE)])  # which asks for cores
    assert found.assignment("all", asks) == {("f", "nvidia.com/gpu"): 1}


def in_all(each: Workload) -> str:
    return each.status.admission.cluster_queue if each.status.admission else "all"


ONE, TWO, THREE = (f"{BASE}-worker-{number}" for number in (1, 2, 3))
OTHER = "elasticjob-words-11111"


@pytest.mark.parametrize(
    ("name", "every", "given"),
    [
        ("nobody waits", [admitted(ONE), admitted(TWO)], set()),
        ("the youngest is enough", [admitted(ONE), admitted(TWO), workload("w", job="")], {TWO}),
        ("both are needed", [admitted(ONE), admitted(TWO), workload("w", 2, job="")], {ONE, TWO}),
        ("it would not fit even so", [admitted(ONE), admitted(TWO), workload("w", 3, job="")], set()),
        (
            "one is on its way back already",
            [admitted(ONE, true={"Evicted": "Preempted"}), admitted(TWO), workload("w", job="")],
            set(),
        ),
        ("it has just come", [admitted(ONE), admitted(TWO), workload("w", job="", age=1)], set()),
        ("its queue is stopped", [admitted(ONE), workload("w", job="", refused="Inadmissible")], set()),
        (
            "it has another base still",
            [admitted(ONE), admitted(OTHER, job="words"), workload("elasticjob-words-2", job="words")],
            set(),
        ),
        ("it is deactivated", [admitted(ONE), admitted(TWO), workload("w", job="", active=False)], set()),
        ("only growth waits", [admitted(ONE), admitted(TWO), workload(THREE)], set()),
        ("a base is never given", [admitted(BASE), admitted(TWO), workload("w", 2, job="")], set()),
    ],
)
def test_slices_are_given_back(name: str, every: list[Workload], given: set[str]) -> None:
    found, _ = giving(market([cluster_queue("all", "2")], every), every, in_all, NOW)
    assert {slice_ for _, slice_ in found} == given, name


def test_jobs_give_evenly() -> None:
    mine = [admitted(name) for name in (ONE, TWO, THREE)]
    theirs = [admitted(f"{OTHER}-worker-{n}", job="words", slice_=True) for n in (1, 2)]
    every = [*mine, *theirs, workload("w", 3, job="")]
    found, _ = giving(market([cluster_queue("all", "5")], every), every, in_all, NOW)
    assert {slice_ for _, slice_ in found} == {TWO, THREE, f"{OTHER}-worker-2"}


def test_a_queue_is_crowded_where_somebody_waits_who_could_be_admitted() -> None:
    queues = [cluster_queue("all", "2", "c"), cluster_queue("near", "2", "c"), cluster_queue("far", "9")]

    def crowded(*every: Workload) -> set[str]:
        return {*crowds(market(queues, every), market(queues, []), every, in_all, NOW)}

    assert crowded(workload("w", 3, job="", age=9)) == {"all", "near"}
    assert crowded(workload("w", 5, job="")) == set()  # more than there ever is
    assert crowded(workload(ONE)) == set()  # growth crowds nobody out
    assert crowded(workload("w", 2, job="", age=9)) == {"all", "near"}  # about to be admitted
    assert crowded(workload("w", 2, job="", age=99)) == set()  # which Kueue does not admit, though it fits


def test_quota_that_a_slice_waits_for_is_not_idle() -> None:
    every = [workload(ONE, 2)]
    found = claimed(market([cluster_queue("all", "3")], every), every, in_all)
    assert found.available("all", ("f", "cpu")) == 1
