"""What the server in a dict says of pods: budgets hold evictions, quotas hold new pods, selectors choose."""

from __future__ import annotations

import pytest

from elasticjob.kube.errors import Forbidden, NotFound, TooManyRequests
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD, POD_DISRUPTION_BUDGET
from lab.truths.quota import is_true
from lab.virtual import pods
from lab.virtual.server import Server

PLAIN = POD.untyped()


def pod(name: str) -> Manifest:
    about = {"name": name, "namespace": "ml", "labels": {"team": "a"}}
    return {"metadata": about, "spec": {"containers": [{"name": "main"}]}}


def running(count: int, least: int | None = None) -> Server:
    server = Server()
    for number in range(count):
        pods.start(server, server.put(POD, pod(f"p{number}")), "m")
    if least is not None:
        spec = {"minAvailable": least, "selector": {"matchLabels": {"team": "a"}}}
        server.put(POD_DISRUPTION_BUDGET, {"metadata": {"name": "b", "namespace": "ml"}, "spec": spec})
    return server


async def test_an_evicted_pod_leaves_and_says_why() -> None:
    server = running(2)
    await server.post(PLAIN, "p0", "eviction", {"deleteOptions": {"gracePeriodSeconds": 1}}, "ml")
    [left, _] = server.every(POD)
    assert "deletionTimestamp" in left["metadata"]
    assert is_true(left, "DisruptionTarget")


async def test_a_budget_counts_pods_that_are_ready_and_stay() -> None:
    server = running(2, least=1)
    await server.post(PLAIN, "p0", "eviction", {}, "ml")
    with pytest.raises(TooManyRequests):
        await server.post(PLAIN, "p1", "eviction", {}, "ml")
    with pytest.raises(NotFound):
        await server.post(PLAIN, "p2", "eviction", {}, "ml")


async def test_a_pod_that_does_not_run_may_leave_whatever_a_budget_says() -> None:
    server = running(1, least=5)
    server.put(POD, pod("waiting"))
    await server.post(PLAIN, "waiting", "eviction", {}, "ml")
    assert len(server.every(POD)) == 1


async def test_a_quota_counts_pods_that_have_not_ended() -> None:
    server = running(2)
    server.most_pods = 2
    with pytest.raises(Forbidden, match="exceeded quota"):
        await server.create(PLAIN, pod("more"))
    pods.end(server, server.every(POD)[0], 0)
    await server.create(PLAIN, pod("more"))


@pytest.mark.parametrize(
    ("labels", "fields", "names"),
    [
        ("team=a", "", ["p0", "p1"]),
        ("team", "metadata.name=p1", ["p1"]),
        ("team notin (a)", "", []),
        ("", "status.phase!=Running", []),
    ],
)
async def test_a_list_is_chosen_by_labels_and_fields(labels: str, fields: str, names: list[str]) -> None:
    found = await running(2).list(PLAIN, "ml", labels=labels, fields=fields)
    assert [each["metadata"]["name"] for each in found] == names
