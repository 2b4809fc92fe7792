"""Two teams and Kueue: a job grows into idle quota, gives it back and is evicted whole, and loses no step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from elasticjob.api.v1alpha1.kueue import QUEUE_NAME
from elasticjob.cli.demo.run import following
from elasticjob.cli.story.example import Example, load
from elasticjob.cli.story.seen import Seen
from elasticjob.cli.story.steps import gaps, lost
from elasticjob.cli.story.watched import NAME, JobView
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Kind, Manifest
from lab.clusters.installed.site import READY, Site
from lab.clusters.installed.stage import OnNode, in_namespace, restricted
from lab.clusters.installed.timeline import Row, longest
from lab.clusters.node.node import Node
from lab.clusters.plane import queues
from lab.clusters.plane.kueue import Kueue, why_missing
from lab.waiting import PATIENCE, until

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
def kueue(site: Site, tmp_path: Path) -> Iterator[Kueue]:
    """Kueue beside the node's control plane; its queues go with it."""
    if not isinstance(site.node, Node):
        pytest.skip("Kueue is started beside the node's own control plane")
    with Kueue(site.node.plane, tmp_path) as found:
        yield found
        found.unregister()


@pytest.fixture
async def teams(kueue: Kueue, admin: Client, home: str) -> AsyncIterator[str]:
    """The queues of two teams, in the namespace of the test."""
    made: list[tuple[Kind[Manifest], Manifest, str]] = [(queues.RESOURCE_FLAVOR, queues.flavor(home), "")]
    for team, cpu in TEAMS.items():
        amounts = {"cpu": cpu, "memory": MEMORY}
        quota = queues.cluster_queue(f"{home}-{team}", amounts, flavor=home, cohort=home)
        made.append((queues.CLUSTER_QUEUE, quota, ""))
        made.append((queues.LOCAL_QUEUE, queues.local_queue(team, home, f"{home}-{team}"), home))
    for kind, manifest, _ in made:
        await admin.create(kind, manifest)
    yield home
    for kind, manifest, namespace in reversed(made):
        await admin.delete(kind, manifest["metadata"]["name"], namespace)


@dataclass
class Play:
    """The job of one team, and what is noted of it."""

    site: Site
    admin: Client
    watched: JobView
    stage: OnNode

    async def world(self, size: int, event: str) -> None:
        """Wait until so many workers train and have made some steps; note how long it took."""
        began, step = time.time(), self.watched.seen.step
        await seen(self.watched, lambda now: now.world == size)
        after = self.watched.seen.step
        await seen(self.watched, lambda now: now.step > after + 20)
        during = (each for each in self.watched.steps if each.at >= began)
        did = f"{event}, from step {step} to {self.watched.seen.step}"
        self.site.rows.append(Row(0.0, "queue", did, time.time() - began, longest=longest(during)))

    async def queued(self) -> None:
        """Resume the job, which was made suspended, once the operator knows of Kueue: it looks every 15 s."""
        namespace, job = self.stage.example.key.namespace, self.stage.resource
        condition = 'jsonpath={.status.conditions[?(@.type=="Admitted")].status}'
        await self.site.kubectl("-n", namespace, "wait", job, f"--for={condition}=False", READY)
        await self.site.kubectl(
            "-n", namespace, "patch", job, "--type=merge", "-p", '{"spec": {"suspend": false}}'
        )

    async def reason(self, wanted: str) -> None:
        """Wait until the REASON column says so."""
        namespace, path = self.stage.example.key.namespace, "jsonpath={.status.reason}"

        async def says() -> bool:
            told = await self.site.kubectl("-n", namespace, "get", self.stage.resource, "-o", path)
            return told == wanted

        await until(says, f"REASON is {wanted}", 2 * PATIENCE)


@pytest.fixture
async def play(site: Site, admin: Client, teams: str, volume: Path) -> AsyncIterator[Play]:
    """The demo's job in the queue of one team: one worker at least, three where there is quota."""
    example = queued(in_namespace(load(), teams), "ours", 3).recording(Path("/checkpoints/steps.jsonl"))
    async with following(admin, example.key, volume / "steps.jsonl") as watched:
        yield Play(site, admin, watched, OnNode(site.kubectl, example, lambda: watched.seen))


async def test_a_job_grows_into_idle_quota_and_gives_it_back(play: Play, teams: str) -> None:
    kubectl = play.site.kubectl
    patch = ("-n", teams, "patch", "localqueue/ours", "--type=merge", "-p")
    await play.stage.apply()
    await play.queued()
    await play.world(3, "admitted with one worker, grown to three into quota that another team does not use")
    await kubectl.apply(rival(teams))
    await play.world(2, "the other team's job arrives, a worker's quota is taken back")

    async def runs() -> bool:
        return await phase(play, "rival") == "Running"

    await until(runs, "the other team's job runs", 2 * PATIENCE)

    await kubectl(*patch, '{"spec": {"stopPolicy": "HoldAndDrain"}}')
    await play.reason("QueueUnavailable")
    job, running = f"{NAME}={play.stage.example.key.name}", "--field-selector=status.phase=Running"
    listed = ("get", "pods", "-l", job, running, "-o", "name")
    assert await kubectl("-n", teams, *listed) == ""
    await kubectl(*patch, '{"spec": {"stopPolicy": "None"}}')
    await play.world(2, "the queue was stopped and started again: the job goes on where it was")
    assert gaps(play.watched.steps) == ()
    assert lost(play.watched.steps) == 0


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


def rival(namespace: str) -> Manifest:
    """Return a job of the other team, which needs all of its quota."""
    image = load().workers["template"]["spec"]["containers"][0]["image"]
    main = {
        "image": image,
        "command": ["python", "-c", "import signal; signal.pause()"],
        "resources": {"requests": {"cpu": "100m"}},
    }
    role = {"replicas": 2, "template": {"spec": restricted(main)}}
    return {
        "apiVersion": "elastic.iml.github.io/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "rival", "namespace": namespace, "labels": {QUEUE_NAME: "theirs"}},
        "spec": {"distributionStrategy": "Local", "replicaSpecs": {"worker": role}},
    }


async def phase(play: Play, job: str) -> str:
    """Return the phase of a job of the namespace."""
    namespace = play.stage.example.key.namespace
    return await play.site.kubectl(
        "-n", namespace, "get", f"elasticjob/{job}", "-o", "jsonpath={.status.phase}"
    )


async def seen(watched: JobView, true: Callable[[Seen], bool]) -> None:
    """Wait until something is true of the job."""
    async with asyncio.timeout(2 * PATIENCE):
        while not true(watched.seen):
            await watched.change()
