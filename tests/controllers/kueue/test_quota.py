"""What is idle in a cohort, and whom slices are given back for."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from elasticjob.api.resources import Resources
from elasticjob.controllers.kueue.quota import Market, market
from elasticjob.controllers.kueue.reclaim import Room, attempts, crowds, reclaim, with_claims, without_slices
from elasticjob.controllers.kueue.workload import (
    COHORT,
    FLAVOR,
    GIVEN_BACK,
    NEEDED,
    ROOM_FOR,
    ClusterQueue,
    Cohort,
    ResourceFlavor,
    Workload,
)
from elasticjob.kube.objects.kinds import Manifest
from lab.build.jobs import NOW
from tests.kit.controllers.queued import BASE, admitted, cluster_queue, flavored, workload


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
ELASTIC = [admitted(ONE), admitted(TWO)]


@pytest.mark.parametrize(
    ("name", "every", "given"),
    [
        ("nobody waits", ELASTIC, set()),
        ("the youngest is enough", [*ELASTIC, workload("w", job="")], {TWO}),
        ("both are needed", [*ELASTIC, workload("w", 2, job="")], {ONE, TWO}),
        (
            "one that a raised minimum needs is not for others",
            [admitted(ONE), admitted(TWO, annotations={NEEDED: "the minimum"}), workload("w", job="")],
            {ONE},
        ),
        ("it would not fit even so", [*ELASTIC, workload("w", 3, job="")], set()),
        (
            "one is on its way back already",
            [admitted(ONE, true={"Evicted": "Preempted"}), admitted(TWO), workload("w", job="")],
            set(),
        ),
        ("it has just come", [*ELASTIC, workload("w", job="", age=1)], set()),
        ("its queue is stopped", [admitted(ONE), workload("w", job="", refused="Inadmissible")], set()),
        (
            "it has another base still",
            [admitted(ONE), admitted(OTHER, job="words"), workload("elasticjob-words-2", job="words")],
            set(),
        ),
        ("it is deactivated", [*ELASTIC, workload("w", job="", active=False)], set()),
        ("only growth waits", [*ELASTIC, workload(THREE)], set()),
        ("a base is never given", [admitted(BASE), admitted(TWO), workload("w", 2, job="")], set()),
    ],
)
def test_slices_are_given_back(name: str, every: list[Workload], given: set[str]) -> None:
    assert reclaimed([cluster_queue("all", "2")], every) == given, name


def reclaimed(queues: list[ClusterQueue], every: list[Workload], later: float = 0, **more: Any) -> set[str]:
    now = NOW + timedelta(seconds=later)
    return {name for _, name in reclaim(market(queues, every, **more), every, in_all, now).slices}


def test_jobs_give_evenly() -> None:
    mine = [admitted(name) for name in (ONE, TWO, THREE)]
    theirs = [admitted(f"{OTHER}-worker-{n}", job="words", slice_=True) for n in (1, 2)]
    every = [*mine, *theirs, workload("w", 3, job="")]
    assert reclaimed([cluster_queue("all", "5")], every) == {TWO, THREE, f"{OTHER}-worker-2"}


def test_a_queue_is_crowded_where_somebody_waits_who_could_be_admitted() -> None:
    queues = [cluster_queue("all", "2", "c"), cluster_queue("near", "2", "c"), cluster_queue("far", "9")]

    def crowded(*every: Workload) -> set[str]:
        found = market(queues, every)
        return {*crowds(found, without_slices(found, every), every, in_all, NOW)}

    assert crowded(workload("w", 3, job="", age=9)) == {"all", "near"}
    assert crowded(workload("w", 5, job="")) == set()  # more than there ever is
    assert crowded(workload("w", 4, job=""), admitted(BASE)) == set()  # till others end, growth costs nothing
    assert crowded(workload("w", 3, job=""), admitted(BASE), admitted(ONE, 3)) == {"all", "near"}
    assert crowded(workload(ONE)) == set()  # growth crowds nobody out
    assert crowded(workload("w", 2, job="", age=9)) == {"all", "near"}  # about to be admitted
    assert crowded(workload("w", 2, job="", age=99)) == set()  # which Kueue does not admit, though it fits


def test_quota_that_a_slice_waits_for_is_not_idle() -> None:
    every = [workload(ONE, 2)]
    found = with_claims(market([cluster_queue("all", "3")], every), every, in_all)
    assert found.available("all", ("f", "cpu")) == 1


def flavor(name: str, **spec: Any) -> ResourceFlavor:
    return FLAVOR.convert({"metadata": {"name": name}, "spec": spec})


def strict(name: str, quota: str) -> ClusterQueue:
    found = cluster_queue(name, quota)
    return replace(found, spec=replace(found.spec, queueing_strategy="StrictFIFO"))


def of(pod: Manifest | None = None, count: int = 1, **more: Any) -> Workload:
    """A Workload whose pods have more in their spec."""
    found = workload("w", count, job="", **more)
    [pods] = found.spec.pod_sets
    template = {"spec": {**pods.template["spec"], **(pod or {})}}
    return replace(found, spec=replace(found.spec, pod_sets=[replace(pods, template=template)]))


def affine(*keys: str) -> Manifest:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": ["b"]}]} for key in keys]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


SPOT = {"key": "spot", "value": "true", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("pod", "machines", "fits"),
    [
        ({}, {}, True),
        ({"nodeSelector": {"zone": "b"}}, {}, True),  # a label that the flavour says nothing about
        ({"nodeSelector": {"zone": "b"}}, {"nodeLabels": {"zone": "a"}}, False),
        ({"nodeSelector": {"zone": "b", "disk": "ssd"}}, {"nodeLabels": {"zone": "b"}}, True),
        (affine("zone"), {"nodeLabels": {"zone": "a"}}, False),
        (affine("zone"), {"nodeLabels": {"zone": "b"}}, True),
        (affine("zone", "disk"), {"nodeLabels": {"zone": "a"}}, True),
        ({}, {"nodeTaints": [SPOT]}, False),
        ({}, {"nodeTaints": [{**SPOT, "effect": "PreferNoSchedule"}]}, True),
        ({}, {"nodeTaints": [SPOT], "tolerations": [{"key": "spot", "operator": "Exists"}]}, True),
        ({"tolerations": [{"operator": "Exists"}]}, {"nodeTaints": [SPOT]}, True),
        ({}, {"topologyName": "racks"}, True),  # a queue of nothing else gives topologies unasked
    ],
)
def test_a_flavour_is_given_to_pods_that_its_machines_take(
    pod: Manifest, machines: Manifest, fits: bool
) -> None:
    found = market([cluster_queue("all", "4")], [], flavors=[flavor("f", **machines)])
    assert (found.fitting("all", of(pod).spec.pod_sets) is not None) == fits


def test_a_topology_is_given_to_whom_asks_for_it() -> None:
    both = [flavor("f", topologyName="racks"), flavor("g")]
    found = market([flavored("all", {"f": "4", "g": "4"})], [], flavors=both)
    [plain] = of().spec.pod_sets
    assert found.fitting("all", [plain]) == {("g", "cpu"): 1}
    assert found.fitting("all", [replace(plain, topology_request={"required": "rack"})]) == {("f", "cpu"): 1}
    of_a_job = replace(plain, topology_request={"podIndexLabel": "index"})  # each batch/v1 Job's has that
    assert found.fitting("all", [of_a_job]) == {("g", "cpu"): 1}
    several = [plain, replace(plain, count=4)]  # the sets of a Workload, one after another
    assert found.fitting("all", several) is None


def says(reason: str, message: str = "") -> Workload:
    """A Workload that waits, and Kueue's last answer about it."""
    found = workload("w", job="", refused=reason)
    [answer] = found.status.conditions
    return replace(found, status=replace(found.status, conditions=[replace(answer, message=message)]))


def leaves(name: str) -> Workload:
    return admitted(name, annotations={GIVEN_BACK: "others"})


UNASSIGNED = "couldn't assign flavors to pod set worker: "


@pytest.mark.parametrize(
    ("waiting", "given"),
    [
        (of(), {TWO}),
        (of({"nodeSelector": {"zone": "b"}}), set()),
        (says("Pending", UNASSIGNED + "insufficient unused quota for cpu"), {TWO}),
        (says("Pending", UNASSIGNED + "flavor f not found"), set()),
        (says("Pending", "workload namespace doesn't match ClusterQueue selector"), set()),
        (says("ExceedsMaxQuota"), set()),
        (says("Pending", "Pending the preemption of 1 workload(s)"), set()),
    ],
)
def test_room_is_made_only_for_whom_kueue_would_admit(waiting: Workload, given: set[str]) -> None:
    flavors = [flavor("f", nodeLabels={"zone": "a"})]
    assert reclaimed([cluster_queue("all", "2")], [*ELASTIC, waiting], flavors=flavors) == given


def test_behind_the_first_of_a_strict_queue_nobody_is_served_and_nobody_grows() -> None:
    first, second = workload("v", 9, job="", age=99), workload("w", 1, job="")
    every = [*ELASTIC, first, second]
    assert reclaimed([cluster_queue("all", "2")], every) == {TWO}
    assert reclaimed([strict("all", "2")], every) == set()
    assert crowds(market([strict("all", "2")], every), Market(), every, in_all, NOW) == {"all"}


def test_eight_hopeless_workloads_starve_nobody() -> None:
    hopeless = [workload(f"h{n}", 9, job="", priority=5) for n in range(20)]
    vain = [workload(f"v{n}", 0, job="", priority=5) for n in range(20)]  # they fit, and are not admitted
    every = [*ELASTIC, *hopeless, *vain, workload("w", job="")]
    assert reclaimed([cluster_queue("all", "2")], every) == {TWO}


def test_a_workload_is_served_once_unless_others_take_its_room() -> None:
    """Seconds, what holds quota, when room was made: what became of the room, and what is given back."""
    queues = [cluster_queue("all", "2")]
    story: list[tuple[float, list[Workload], float | None, Room | None, set[str]]] = [
        (0, ELASTIC, None, None, {TWO}),
        (1, ELASTIC, 0, Room.TAKEN, {TWO}),  # another job's are not on their way yet
        (11, [ELASTIC[0], leaves(TWO)], 0, Room.COMING, set()),
        (12, [ELASTIC[0]], 0, Room.FREE, set()),
        (20, ELASTIC, 0, Room.TAKEN, set()),
        (31, ELASTIC, 0, Room.TAKEN, {TWO}),
        (99, ELASTIC, -1, Room.VAIN, set()),
    ]
    for later, holding, made, room, given in story:
        w = workload("w", job="")
        mark = f"{w.metadata.uid}/0/0/"
        at_ = "" if made == -1 else (NOW + timedelta(seconds=made or 0)).isoformat()
        base = admitted(BASE, 0, annotations={} if made is None else {ROOM_FOR: json.dumps({mark: at_})})
        every, now = [base, *holding, w], NOW + timedelta(seconds=later)
        found = reclaim(market(queues, every), every, in_all, now)
        assert (found.rooms.get(mark), {name for _, name in found.slices}) == (room, given), later
        known = market(queues, every)
        crowded = crowds(known, without_slices(known, every), every, in_all, now)
        assert bool(crowded) == (room is not Room.VAIN), later
    changed = replace(w, metadata=replace(w.metadata, generation=2))
    assert reclaimed(queues, [base, *ELASTIC, changed]) == {TWO}


def test_memories_that_nobody_wrote_count_for_nothing() -> None:
    for text in ("", "{", "[1]", '{"w": 3}', '{"w": "yesterday"}'):
        assert attempts([admitted(annotations={ROOM_FOR: text})]) == {}
    theirs = admitted("theirs", job="", annotations={ROOM_FOR: '{"w": ""}'})
    assert attempts([theirs]) == {}
