"""Two teams and Kueue: a job grows into idle quota, gives it back and is evicted whole, and loses no step."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from elasticjob.api.v1alpha1.kueue import QUEUE_NAME
from elasticjob.cli.story.example import Example, load
from elasticjob.cli.story.watched import NAME
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD
from lab.clusters.installed.installation import Installation
from lab.clusters.installed.stage import Followed, followed, in_namespace, restricted
from lab.clusters.node.node import Node
from lab.clusters.plane import queues
from lab.clusters.plane.kueue import Kueue, why_missing
from lab.jobs.job import Job
from lab.jobs.site import Site
from lab.jobs.whole import local
from lab.waiting import PATIENCE

pytestmark = [
    pytest.mark.node,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(why_missing()), reason=why_missing()),
]
TEAMS = {"ours": "300m", "theirs": "200m"}
"""Quotas of the two queues in one cohort: the master and each worker ask for 100m of a processor."""
MEMORY = "1Gi"
"""The same of memory, for which the master asks: Kueue admits nothing that a queue has no quota of."""


@pytest.fixture
def kueue(node: Installation, tmp_path: Path) -> Iterator[Kueue]:
    """Kueue beside the node's control plane; its queues go with it."""
    if not isinstance(node.machine, Node):
        pytest.skip("Kueue is started beside the node's own control plane")
    with Kueue(node.machine.plane, tmp_path) as found:
        yield found
        found.unregister()


@pytest.fixture
async def teams(kueue: Kueue, admin: Client, home: str) -> AsyncIterator[str]:
    """The queues of two teams, in the namespace of the test."""
    objects = [(queues.RESOURCE_FLAVOR, queues.flavor(home))]
    for team, cpu in TEAMS.items():
        amounts = {"cpu": cpu, "memory": MEMORY}
        quota = queues.cluster_queue(f"{home}-{team}", amounts, flavor=home, cohort=home)
        objects.append((queues.CLUSTER_QUEUE, quota))
        objects.append((queues.LOCAL_QUEUE, queues.local_queue(team, home, f"{home}-{team}")))
    async with queues.set_up(admin, *objects, namespace=home):
        yield home


@pytest.fixture
async def play(node: Installation, admin: Client, teams: str, volume: Path) -> AsyncIterator[Followed]:
    """The demo's job in the queue of one team: one worker at least, three where there is quota."""
    example = queued(in_namespace(load(), teams), "ours", 3)
    async with followed(node, admin, example, volume, "queue") as found:
        yield found


async def test_a_job_grows_into_idle_quota_and_gives_it_back(
    play: Followed, site: Site, admin: Client, teams: str
) -> None:
    async def stop(policy: str) -> None:
        await admin.merge_patch(queues.LOCAL_QUEUE, "ours", {"spec": {"stopPolicy": policy}}, teams)

    job = Job(site)
    await play.stage.apply()
    # made suspended, and resumed once the operator knows of Kueue: it looks every 15 s
    await site.until(lambda: job.condition("Admitted")[0] == "False")
    await site.patch({"suspend": False})
    async with play.noted("admitted with one worker, grown to three into another team's idle quota"):
        await play.trains(3)
    await site.apply(rival(), "rival", {"labels": {QUEUE_NAME: "theirs"}})
    async with play.noted("the other team's job arrives, a worker's quota is taken back"):
        await play.trains(2)
    await site.until(lambda: site.job("rival").status.phase == "Running", 2 * PATIENCE)

    await stop("HoldAndDrain")
    await site.until(lambda: job.status.reason == "QueueUnavailable", 2 * PATIENCE)
    running = await admin.list(POD, teams, labels=f"{NAME}=digits", fields="status.phase=Running")
    assert running == []
    await stop("None")
    async with play.noted("the queue was stopped and started again: the job goes on where it was"):
        await play.trains(2)
    play.assert_nothing_lost()


def queued(example: Example, queue: str, workers: int) -> Example:
    """Return the job in a queue, each of its workers with a request that quota is for."""
    job = deepcopy(example.job)
    job["spec"]["suspend"] = True
    job["metadata"].setdefault("labels", {})[QUEUE_NAME] = queue
    role = job["spec"]["replicaSpecs"]["worker"]
    role |= {"replicas": workers, "minReplicas": 1, "maxReplicas": workers}
    [container] = role["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "100m"}}
    return replace(example, job=job)


def rival() -> Manifest:
    """Return a job of the other team, which needs all of its quota."""
    main = {
        "image": load().workers["template"]["spec"]["containers"][0]["image"],
        "command": ["python", "-c", "import signal; signal.pause()"],
        "resources": {"requests": {"cpu": "100m"}},
    }
    return local({"replicas": 2, "template": {"spec": restricted(main)}})
