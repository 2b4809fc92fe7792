"""The real Kueue beside the real control plane: it admits, preempts, refuses, and returns from a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import Forbidden, ServerError
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NAMESPACE
from lab.clusters.plane import queues
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.guest import by_url, webhooks
from lab.clusters.plane.kueue import Kueue, why_missing
from lab.clusters.plane.queues import WORKLOAD
from lab.waiting import until

TEAM = "team"
built = pytest.mark.skipif(bool(why_missing()), reason=why_missing())


async def set_up(client: Client, cpu: str) -> None:
    await client.create(NAMESPACE, {"metadata": {"name": TEAM}})
    await client.create(queues.RESOURCE_FLAVOR, queues.flavor())
    await client.create(queues.CLUSTER_QUEUE, queues.cluster_queue("all", {"cpu": cpu}))
    await client.create(queues.LOCAL_QUEUE, queues.local_queue("queue", TEAM, "all"))


def asking(name: str, pods: int, priority: int = 0) -> Manifest:
    return queues.workload(name, TEAM, "queue", pods, {"cpu": "1"}, priority=priority)


async def says(client: Client, name: str, condition: str, reason: str) -> None:
    async def seen() -> bool:
        found = await client.get(WORKLOAD, name, TEAM)
        return queues.conditions(found).get(condition) == reason

    await until(seen, f"Workload {name} has {condition}={reason}")


@pytest.mark.plane
@built
async def test_kueue_admits_preempts_refuses_and_comes_back(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "plane") as plane, Kueue(plane, tmp_path / "kueue") as kueue:
        async with Client(plane.config()) as client:
            await set_up(client, "4")
            await client.create(WORKLOAD, asking("low", 3))
            await says(client, "low", "Admitted", "Admitted")
            await client.create(WORKLOAD, asking("high", 3, priority=100))
            await says(client, "low", "Evicted", "Preempted")

            twice = asking("odd", 2)
            [one] = twice["spec"]["podSets"]
            twice["spec"]["podSets"] = [{**one, "name": name, "minCount": 1} for name in ("a", "b")]
            with pytest.raises(Forbidden, match="at most one podSet can use minCount"):
                await client.create(WORKLOAD, twice)

            first = kueue.pid
            kueue.kill()
            with pytest.raises(ServerError, match="failed calling webhook"):
                await client.create(WORKLOAD, asking("while-down", 1))
            kueue.start()
            assert kueue.pid != first
            await client.delete(WORKLOAD, "low", TEAM)  # nobody's, so that Kueue itself lets it go
            await says(client, "high", "Admitted", "Admitted")
    assert kueue.identity is None


@pytest.mark.plane
@built
async def test_kueue_evicts_what_is_not_ready_in_time(tmp_path: Path) -> None:
    soon = {"timeout": "1s", "requeuingStrategy": {"backoffBaseSeconds": 1}}
    with (
        ControlPlane(tmp_path / "plane") as plane,
        Kueue(plane, tmp_path / "kueue", wait_for_pods_ready=soon),
    ):
        async with Client(plane.config()) as client:
            await set_up(client, "4")
            await client.create(WORKLOAD, asking("never-ready", 1))
            await says(client, "never-ready", "Evicted", "PodsReadyTimeout")


def test_webhooks_are_asked_by_url_and_those_of_other_groups_are_left_out() -> None:
    def hook(group: str) -> Manifest:
        return {
            "name": f"{group}.kb.io",
            "clientConfig": {"service": {"name": "webhook-service", "path": f"/validate-{group}"}},
            "rules": [{"apiGroups": [group]}],
        }

    both = {
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "validating-webhook-configuration"},
        "webhooks": [hook("kueue.x-k8s.io"), hook("batch")],
    }
    chosen = webhooks([both, {"kind": "Service"}], ["kueue.x-k8s.io"])
    [made] = by_url(chosen, "kueue", 9443, "PEM")
    assert made["metadata"] == {"name": "kueue"}
    assert [each["clientConfig"] for each in made["webhooks"]] == [
        {"url": "https://127.0.0.1:9443/validate-kueue.x-k8s.io", "caBundle": "UEVN"}
    ]
