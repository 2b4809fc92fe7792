"""Where pods go, and the sentences why they go nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.devcluster.controllers.scheduler import allocation, occupancy, place, requests, tolerates
from elasticjob.devcluster.quantity import parse
from elasticjob.kube.objects.views import NODE, POD, Node, Pod


def node(name: str, labels: dict[str, str] | None = None, **fields: Any) -> Node:
    ready = [{"type": "Ready", "status": fields.pop("ready", "True")}]
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "10", **fields.pop("capacity", {})}
    return NODE.convert(
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": fields,
            "status": {"conditions": ready, "allocatable": capacity},
        }
    )


def pod(name: str = "p", requests: dict[str, Any] | None = None, **spec: Any) -> Pod:
    container = {"name": "c", "resources": {"requests": requests or {}}}
    return POD.convert({"metadata": {"name": name, "uid": name}, "spec": {"containers": [container], **spec}})


def verdict(wants: Pod, *nodes: Node, on: tuple[Pod, ...] = ()) -> str:
    found = place(wants, occupancy(nodes, on, {}))
    return found.node or found.why


@pytest.mark.parametrize(
    ("wants", "nodes", "answer"),
    [
        (pod(), (node("a"),), "a"),
        (pod(), (), "no nodes available to schedule pods"),
        (pod(), (node("a", ready="False"),), "no nodes available to schedule pods"),
        (pod(requests={"nvidia.com/gpu": 1}), (node("a"),),
         "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."),
        (pod(requests={"cpu": "5", "memory": "9Gi"}), (node("a"), node("b", capacity={"cpu": "8"})),
         "0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient memory."),
        (pod(), (node("a", unschedulable=True),), "0/1 nodes are available: 1 node(s) were unschedulable."),
        (pod(), (node("a", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),),
         "0/1 nodes are available: 1 node(s) had untolerated taint {k: v}."),
        (pod(), (node("a", taints=[{"key": "k", "effect": "PreferNoSchedule"}]),), "a"),
        (pod(tolerations=[{"key": "k", "operator": "Exists"}]),
         (node("a", taints=[{"key": "k", "effect": "NoSchedule"}]),), "a"),
        (pod(nodeSelector={"zone": "x"}), (node("a"), node("b", labels={"zone": "x"})), "b"),
        (pod(nodeSelector={"zone": "x"}), (node("a"),),
         "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."),
    ],
)  # fmt: skip
def test_place(wants: Pod, nodes: tuple[Node, ...], answer: str) -> None:
    assert verdict(wants, *nodes) == answer


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("In", ["x", "y"], True),
        ("In", ["y"], False),
        ("NotIn", ["y"], True),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["1"], False),
    ],
)
def test_required_affinity(operator: str, values: list[str], fits: bool) -> None:
    expression = {"key": "zone", "operator": operator, "values": values}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    wants = pod(affinity={"nodeAffinity": required})
    assert (verdict(wants, node("a", labels={"zone": "x"})) == "a") is fits


def test_least_allocated_node_wins() -> None:
    there = pod("q", {"cpu": "2"}, nodeName="a")
    assert verdict(pod(requests={"cpu": "1"}), node("a"), node("b"), on=(there,)) == "b"


def test_pods_that_ask_for_nothing_spread_too() -> None:
    assert verdict(pod(), node("a"), node("b"), on=(pod("q", nodeName="a"),)) == "b"


def test_full_nodes_take_no_more_pods() -> None:
    there = tuple(pod(f"q{n}", nodeName="a") for n in range(10))
    assert verdict(pod(), node("a"), on=there) == "0/1 nodes are available: 1 Too many pods."


def test_assumed_pods_hold_their_room() -> None:
    other = pod("q", {"cpu": "3"})
    found = place(pod(requests={"cpu": "2"}), occupancy([node("a")], [other], {"q": "a"}))
    assert found.why == "0/1 nodes are available: 1 Insufficient cpu."


def test_finished_pods_hold_nothing() -> None:
    over = POD.convert(
        {
            "metadata": {"name": "q"},
            "spec": {"nodeName": "a", "containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]},
            "status": {"phase": "Succeeded"},
        }
    )
    assert verdict(pod(requests={"cpu": "4"}), node("a"), on=(over,)) == "a"


def test_init_containers_count_at_their_peak_and_sidecars_for_good() -> None:
    def container(name: str, cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}

    wants = POD.convert(
        {
            "spec": {
                "initContainers": [container("s", "1", restartPolicy="Always"), container("i", "4")],
                "containers": [container("a", "1"), container("b", "1500m")],
            }
        }
    )
    assert requests(wants) == {"cpu": 5}


@pytest.mark.parametrize(
    ("toleration", "covered"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], covered: bool) -> None:
    assert tolerates(toleration, {"key": "k", "value": "v", "effect": "NoSchedule"}) is covered


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_no_node_is_ever_overcommitted(sizes: list[int]) -> None:
    nodes = [node("a"), node("b"), node("c", capacity={"cpu": "2"})]
    placed: list[Pod] = []
    for number, cpu in enumerate(sizes):
        wants = pod(f"p{number}", {"cpu": cpu})
        found = place(wants, occupancy(nodes, placed, {}))
        if found.node:
            placed.append(pod(f"p{number}", {"cpu": cpu}, nodeName=found.node))
    for each in occupancy(nodes, placed, {}):
        assert each.used.get("cpu", 0) <= each.allocatable["cpu"]
        assert 0 <= allocation(pod(), each) <= 2


def test_allocation_is_exact() -> None:
    (empty,) = occupancy([node("a")], [], {})
    assert allocation(pod(requests={"cpu": "1", "memory": "2Gi"}), empty) == parse("0.25")
