"""DIJobs in a queue: what they ask for, which pods go to a place, which leave, and what the status says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from elasticjob.api.diengine import pods
from elasticjob.api.diengine.dijob import DIJOB, DIJob, DIJobPhase
from elasticjob.api.diengine.names import Role
from elasticjob.api.diengine.pods import Server
from elasticjob.api.v1alpha1.kueue import (
    ADMITTED,
    POD_SET,
    PRIORITY_CLASS,
    QUEUE_NAME,
    QUOTA_GATE,
    TOPOLOGY_GATE,
    WORKLOAD_OF,
)
from elasticjob.controllers.dijob.decide import Terms, decide
from elasticjob.controllers.dijob.seen import Seen
from elasticjob.controllers.dijob.status import status_of, step
from elasticjob.controllers.kueue.grant import Grant, Place, places_of
from elasticjob.controllers.kueue.kinds.dijob import asked_by, demand_of, life_of, open_gate, role_of
from elasticjob.controllers.kueue.workload import UNCONSTRAINED, Workload
from elasticjob.controllers.passes.plan import Action, Create, Delete, Patch
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD, Pod
from lab.build.manifests import DIJOB as MANIFEST
from lab.build.manifests import TEMPLATE, changed

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
QUEUED = {QUEUE_NAME: "team-a"}
BASE, SLICE = "dijob-cartpole-abcde", "dijob-cartpole-abcde-collector-1"
BIG = {"cpu": "2"}


def job(phase: str | None = None, **changes: Any) -> DIJob:
    """A job in a queue."""
    status = {"status/phase": phase} if phase else {}
    return DIJOB.convert(changed(MANIFEST, {"metadata/labels": QUEUED, **status, **changes}))


def labelled(labels: dict[str, str]) -> DIJob:
    changes: dict[str, Any] = {"metadata/labels": labels}
    return job(**changes)


def raw(role: Role, name: str, cpu: str = "1", **changes: Any) -> Manifest:
    """A pod as di-server makes it; coordinators as the operator does."""
    made = pods.pod(job(), role, f"cartpole-{name}", Server(), TEMPLATE, {"cpu": cpu})
    made["metadata"]["uid"] = name
    return changed(made, {"status": {"phase": "Pending"}, **changes})


def pod(role: Role = Role.COLLECTOR, name: str = "collector-a", workload: str = "", **changes: Any) -> Pod:
    """A pod; one of a Workload runs."""
    runs: dict[str, Any] = {
        "metadata/annotations": {WORKLOAD_OF: workload},
        "spec/schedulingGates": [],
        "status": {"phase": "Running"},
    }
    return POD.convert(raw(role, name, **{**(runs if workload else {}), **changes}))


GATED, RUNS = pod(), pod(name="collector-b", workload=SLICE)
COORDINATOR = pod(Role.COORDINATOR, "coordinator", workload=BASE)
COLLECTOR = role_of(GATED)
NO_GATE: dict[str, Any] = {"spec/schedulingGates": []}
ENDED: dict[str, Any] = {"status": {"phase": "Succeeded"}}
LEAVES: dict[str, Any] = {"metadata/deletionTimestamp": "2026-01-01T00:00:00Z"}


def grant(*slices: str, admitted: bool = True) -> Grant:
    """The base, and slices with a place for one collector each."""
    given = {BASE: "coordinator", **dict.fromkeys(slices, COLLECTOR)}
    places = tuple(Place(name, role, 1, annotations={WORKLOAD_OF: name}) for name, role in given.items())
    reason, sentence = ("Admitted", "queue team-a, in all") if admitted else ("Queued", "queue team-a: full")
    return Grant("team-a", admitted, reason, sentence, {"coordinator": 1}, places if admitted else ())


def words(actions: tuple[Action, ...]) -> list[str]:
    """Actions on pods as words."""
    said = []
    for action in actions:
        match action:
            case Create(kind, manifest) if kind is POD:
                where = manifest["metadata"].get("annotations", {}).get(WORKLOAD_OF, "")
                said.append(f"+ {manifest['metadata']['name']} {where}".rstrip())
            case Delete(kind, name, grace=grace) if kind is POD:
                assert grace is None
                said.append(f"- {name}")
            case Patch(_, name, _, body):
                where = body.get("metadata", {}).get("annotations", {}).get(WORKLOAD_OF, "")
                said.append(f"{name} -> {where}")
    return said


PLACED = Place(
    SLICE,
    COLLECTOR,
    1,
    labels={POD_SET: COLLECTOR},
    annotations={WORKLOAD_OF: SLICE},
    node_selector={"pool": "games"},
    tolerations=({"key": "pool", "operator": "Exists"},),
)


def test_the_coordinator_is_the_base_and_pods_that_ask_for_the_same_are_a_role() -> None:
    found = (
        COORDINATOR,
        GATED,
        RUNS,
        pod(name="collector-c", cpu="2"),
        pod(name="collector-d", **LEAVES),
        pod(name="collector-e", **ENDED),
    )
    demand = demand_of(labelled({**QUEUED, PRIORITY_CLASS: "low"}), found)
    large = role_of(pod(name="x", cpu="2"))
    assert demand.base.startswith("dijob-cartpole-")
    assert demand.priority_class == ("WorkloadPriorityClass", "low")
    assert {r.name: (r.least, r.wanted, r.step) for r in demand.roles} == {
        "coordinator": (1, 1, 1),
        COLLECTOR: (0, 2, 1),
        large: (0, 1, 1),
    }
    asked = {r.name: r.template["spec"]["containers"][0]["resources"]["requests"] for r in demand.roles[1:]}
    assert asked == {COLLECTOR: {"cpu": "1"}, large: {"cpu": "2"}}


@pytest.mark.parametrize(
    ("changes", "class_", "suspended", "ended"),
    [
        ({}, ("", ""), False, None),
        ({"spec/priorityClassName": "high"}, ("PriorityClass", "high"), False, None),
        ({"phase": "Running"}, ("", ""), False, None),
        ({"phase": "Succeeded"}, ("", ""), False, True),
        ({"phase": "Failed"}, ("", ""), False, False),
        ({"spec/coordinator/template": {"spec": {"containers": []}}}, ("", ""), True, None),  # never runs
    ],
)
def test_what_a_job_asks(
    changes: dict[str, Any], class_: tuple[str, str], suspended: bool, ended: bool | None
) -> None:
    demand = demand_of(job(**changes), ())
    assert (demand.priority_class, demand.suspended, demand.ended) == (class_, suspended, ended)


def test_a_base_is_for_the_coordinator_alone() -> None:
    assert demand_of(job(), (GATED,)).base == demand_of(job(), ()).base
    changes: dict[str, Any] = {"spec/coordinator/template/spec/containers/0/resources": {"requests": BIG}}
    larger = job(**changes)
    assert demand_of(larger, ()).base != demand_of(job(), ()).base


@pytest.mark.parametrize(
    ("given", "found", "taken_back", "written"),
    [
        (grant(admitted=False), (), (), []),
        (grant(), (), (), [f"+ cartpole-coordinator {BASE}"]),
        (grant(), (pod(Role.COORDINATOR, "coordinator", workload=BASE, **LEAVES),), (), []),
        (None, (COORDINATOR, GATED), (), ["cartpole-collector-a -> "]),  # a cluster without Kueue
        (grant(), (COORDINATOR, GATED), (), []),
        (grant(SLICE), (COORDINATOR, GATED), (), [f"cartpole-collector-a -> {SLICE}"]),
        (grant(SLICE), (COORDINATOR, GATED, RUNS), (), []),
        (
            grant(SLICE),
            (COORDINATOR, GATED, pod(name="collector-b", workload=SLICE, **LEAVES)),
            (),
            [],
        ),  # its place is not free yet
        (grant(), (COORDINATOR, GATED, RUNS), (SLICE,), ["- cartpole-collector-b"]),
        (
            grant(admitted=False),
            (COORDINATOR, GATED, RUNS),
            (BASE,),
            ["- cartpole-coordinator", "- cartpole-collector-a", "- cartpole-collector-b"],
        ),
        (grant(), (COORDINATOR, pod(**NO_GATE)), (), ["- cartpole-collector-a"]),  # outside of its quota
    ],
)
def test_what_is_written(
    given: Grant | None, found: tuple[Pod, ...], taken_back: tuple[str, ...], written: list[str]
) -> None:
    seen = Seen(job("Running"), found, (), given, frozenset(taken_back))
    assert words(decide(seen, Terms(Server())).actions) == written


@pytest.mark.parametrize(("policy", "taken_back", "left"), [("None", (), 1), ("None", (SLICE,), 0)])
def test_pods_outlive_their_job_until_their_quota_is_taken_back(
    policy: str, taken_back: tuple[str, ...], left: int
) -> None:
    ended = job("Succeeded", **{"spec/cleanPodPolicy": policy})
    seen = Seen(ended, (RUNS,), (), grant(), frozenset(taken_back))
    assert len(words(decide(seen, Terms(Server(), graceful=True)).actions)) == 1 - left


def test_a_pod_keeps_its_role_in_its_place_and_its_replacement_waits_for_another() -> None:
    patch = open_gate(GATED, PLACED)
    assert patch["spec"]["schedulingGates"] is None
    before = raw(Role.COLLECTOR, "collector-a")
    about, annotated = before["metadata"], {"annotations": patch["metadata"]["annotations"]}
    placed = {
        **before,
        "metadata": {**about, "labels": {**about["labels"], **patch["metadata"]["labels"]}, **annotated},
        "spec": {**before["spec"], **patch["spec"], "schedulingGates": []},
    }
    placed["spec"]["nodeSelector"] = {**PLACED.node_selector, "kubernetes.io/hostname": "n1"}  # by Kueue
    seen = POD.convert(placed)
    assert len(seen.spec.tolerations) == 1
    assert asked_by(seen) == asked_by(GATED)
    assert (life_of(seen).role, life_of(seen).workload) == (COLLECTOR, SLICE)
    again = POD.convert(pods.replacement(placed, "cartpole-collector-z"))
    assert [gate["name"] for gate in again.spec.scheduling_gates] == [QUOTA_GATE, TOPOLOGY_GATE]
    assert (again.spec.node_selector, again.spec.tolerations) == ({}, [])
    assert (life_of(again).role, life_of(again).workload) == (COLLECTOR, "")
    assert POD_SET not in again.metadata.labels


def test_the_gate_of_a_topology_stays_where_kueue_chooses_the_machine() -> None:
    place = Place(SLICE, COLLECTOR, 1, gates=(TOPOLOGY_GATE,))
    assert open_gate(GATED, place)["spec"]["schedulingGates"] == [{"name": TOPOLOGY_GATE}]
    both: dict[str, Any] = {"spec/schedulingGates": [{"name": "theirs"}, {"name": QUOTA_GATE}]}
    assert open_gate(pod(**both), None) == {"spec": {"schedulingGates": [{"name": "theirs"}]}}


def test_pods_of_a_job_in_no_queue_and_coordinators_have_no_gate() -> None:
    free = labelled({})
    assert "schedulingGates" not in pods.pod(free, Role.COLLECTOR, "c", Server(), TEMPLATE)["spec"]
    assert "schedulingGates" not in pods.coordinator(job(), Server())["spec"]


@pytest.mark.parametrize(
    ("phase", "given", "found", "expected"),
    [
        (None, grant(admitted=False), (), (DIJobPhase.CREATED, "False", "Queued")),
        ("Running", grant(admitted=False), (), (DIJobPhase.CREATED, "False", "Queued")),
        ("Running", grant(), (COORDINATOR,), (DIJobPhase.RUNNING, "True", "Admitted")),
        ("Created", grant(), (COORDINATOR,), (DIJobPhase.RUNNING, "True", "Admitted")),
        ("Running", None, (COORDINATOR,), (DIJobPhase.RUNNING, "", "")),
    ],
)
def test_the_status_says_why_a_job_waits(
    phase: str | None, given: Grant | None, found: tuple[Pod, ...], expected: tuple[DIJobPhase, str, str]
) -> None:
    seen = Seen(job(phase), found, (), given)
    status = status_of(seen, step(seen), NOW)
    told = status.condition(ADMITTED)
    assert (status.phase, told.status if told else "", told.reason if told else "") == expected
    assert status_of(Seen(job().model_copy(update={"status": status}), found, (), given), None, NOW) == status


@pytest.mark.parametrize(
    ("chosen", "annotations", "added"),
    [
        (True, {}, {UNCONSTRAINED: "true"}),
        (True, {"kueue.x-k8s.io/podset-required-topology": "rack"}, {}),
        (False, {}, {}),
    ],
)
def test_kueue_sees_pods_whose_machine_it_chooses(
    chosen: bool, annotations: dict[str, str], added: dict[str, str]
) -> None:
    given = {"name": "worker", "count": 1, **({"topologyAssignment": {"levels": []}} if chosen else {})}
    conditions = [{"type": each, "status": "True"} for each in ("QuotaReserved", "Admitted")]
    workload = msgspec.convert(
        {
            "metadata": {"name": SLICE},
            "spec": {"podSets": [{"name": "worker", "template": {"metadata": {"annotations": annotations}}}]},
            "status": {"admission": {"podSetAssignments": [given]}, "conditions": conditions},
        },
        Workload,
    )
    [place] = places_of(workload, {})
    assert place.annotations == {WORKLOAD_OF: SLICE, **added}
    assert place.gates == ((TOPOLOGY_GATE,) if chosen else ())
