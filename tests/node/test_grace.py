"""A save of half a minute and a grace of a minute: each way to leave waits for it, its peer saves with it.

The script is the textbook's (`lab/scripts/e2e/graceful.py`), a plain one: `make grace`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from elasticjob.api.v1alpha1.kueue import QUEUE_NAME
from elasticjob.cli.story.watched import INDEX, NAME, ROLE
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Kind, Manifest
from lab.clusters.installed.installation import READY, Installation
from lab.clusters.installed.stage import VOLUME, furniture, role
from lab.clusters.node.node import Node
from lab.clusters.plane import queues
from lab.clusters.plane.kueue import Kueue, why_missing
from lab.jobs.grace import SCRIPT, Life, after_saves, last_save, trained
from lab.jobs.site import Site
from lab.waiting import PATIENCE, until

pytestmark = [pytest.mark.grace, pytest.mark.timeout(3600)]
SAVE: Final = 28
GRACE: Final = 60
SHORT: Final = 10
SIZES: Final[Manifest] = {"replicas": 2, "minReplicas": 1, "maxReplicas": 2, "restartCount": 9}
OTHER: Final = "graceful-worker-1"
JOB: Final = "elasticjob/graceful"
MERGE: Final = ("patch", JOB, "--type=merge", "-p")
QUOTA: Final = {"cpu": "300m", "memory": "1Gi"}
"""The master and each worker ask for 100m of a processor."""


@dataclass
class Play:
    """A job that saves when it is asked to leave, and what came of each way."""

    node: Installation
    site: Site
    folder: Path
    grace: int
    table: list[tuple[str, ...]] = field(default_factory=list)

    async def kubectl(self, *words: str) -> str:
        return await self.node.kubectl("-n", self.site.namespace, *words)

    async def leave(
        self, way: str, size: int, act: Callable[[], Awaitable[Any]], more: float = PATIENCE / 3
    ) -> list[Life]:
        """Have `size` workers train, do what makes one or all leave, and note what became of each."""
        before = await trained(self.folder, size)
        await act()
        found = await after_saves(self.folder, before, self.grace + more)
        for life in found:
            self.table.append((way, f"{self.grace} s", life.pod, life.told))
        print(*self.table[-len(found) :], sep="\n", flush=True)
        return found

    async def status(self) -> str:
        """All that the job's status, its events and the logs of its workers say."""
        told = [await self.kubectl("get", JOB, "-o", "jsonpath={.status}")]
        told.append(await self.kubectl("get", "events", "-o", "jsonpath={.items[*].message}"))
        return "\n".join(told)


async def played(node: Installation, site: Site, folder: Path, grace: int, **labels: str) -> Play:
    """Apply a job of two workers, which become one where that is asked for; it is in a queue by a label."""
    command = ["elasticjob", "run", f"/code/{SCRIPT.name}", VOLUME, "--save", str(SAVE)]
    worker = role(command, resources={"requests": {"cpu": "100m"}}, **SIZES)
    worker["template"]["spec"]["terminationGracePeriodSeconds"] = grace
    await node.kubectl.apply(*furniture(site.namespace, SCRIPT))
    spec = {"replicaSpecs": {"worker": worker}, "suspend": bool(labels)}
    await site.apply(spec, "graceful", {"labels": labels})
    return Play(node, site, folder, grace)


def told(play: Play) -> str:
    """Return the table."""
    rows = [("way", "grace", "worker", "what it did"), *play.table]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(" | ".join(map(str.ljust, row, widths)) for row in rows)


def assert_saved(play: Play) -> None:
    """All of them saved."""
    assert [row for row in play.table if ", saved after" not in row[-1]] == [], told(play)


async def test_each_way_to_leave_waits_for_the_save(node: Installation, site: Site, volume: Path) -> None:
    play = await played(node, site, volume, GRACE)
    kubectl = play.kubectl
    machine = await node.kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")

    async def drain() -> None:
        chosen = f"{NAME}=graceful,{ROLE}=worker,{INDEX}=0"
        await node.kubectl("drain", machine, "--pod-selector", chosen, READY)

    try:
        await play.leave("deletion", 2, lambda: kubectl("delete", "pod", OTHER, "--wait=false"))
        await play.leave("drain", 2, drain)
    finally:
        await node.kubectl("uncordon", machine)
    await play.leave("suspend", 2, lambda: kubectl(*MERGE, '{"spec": {"suspend": true}}'))
    await kubectl(*MERGE, '{"spec": {"suspend": false}}')
    both = await trained(volume, 2)
    assert {life.first("begun")["step"] for life in both} == {last_save(volume)}
    await play.leave("scale-down", 2, lambda: kubectl("scale", JOB, "--replicas", "1"))
    print(told(play))
    assert_saved(play)


async def test_a_grace_that_is_too_short_is_told(node: Installation, site: Site, volume: Path) -> None:
    play = await played(node, site, volume, SHORT)
    delete = ("delete", "pod", OTHER, "--wait=false")
    found = await play.leave("deletion", 2, lambda: play.kubectl(*delete), more=SAVE)
    assert not any(life.saved for life in found)

    async def says() -> bool:
        return "CutOff" in await play.status()

    await until(says, "the status says that a save was cut off", PATIENCE / 3)
    print(told(play), await play.status(), sep="\n")


@pytest.mark.skipif(bool(why_missing()), reason=why_missing())
async def test_a_preemption_waits_for_the_save(
    node: Installation, site: Site, admin: Client, home: str, volume: Path, tmp_path: Path
) -> None:
    if not isinstance(node.machine, Node):
        pytest.skip("Kueue is started beside the node's own control plane")
    with Kueue(node.machine.plane, tmp_path) as kueue:
        async with queues.set_up(admin, *preempting(home), namespace=home):
            play = await played(node, site, volume, GRACE, **{QUEUE_NAME: "ours"})

            async def known() -> bool:
                """Whether the operator knows of Kueue; that alone has it look at no suspended job."""
                await play.kubectl("annotate", JOB, f"looked={time.time()}", "--overwrite")
                return site.condition("Admitted", "graceful")[0] == "False"

            await site.until(lambda: site.job("graceful"))
            await until(known, "the job is in a queue")
            await play.kubectl(*MERGE, '{"spec": {"suspend": false}}')
            await play.leave("preemption", 2, lambda: admin.create(queues.WORKLOAD, rival(home)))
            await play.kubectl("delete", "elasticjob", "--all", READY)
            await play.kubectl("wait", "--for=delete", READY, "pods", "--all")
            node.seen = len(node.machine.audit())  # the role of its master went before its pod
        kueue.unregister()
    print(told(play))
    assert_saved(play)


def preempting(home: str) -> list[tuple[Kind[Manifest], Manifest]]:
    """Return a queue that has room for one job, and takes it back for one of higher priority."""
    quota = queues.cluster_queue(home, QUOTA, flavor=home)
    return [
        (queues.RESOURCE_FLAVOR, queues.flavor(home)),
        (queues.CLUSTER_QUEUE, quota),
        (queues.LOCAL_QUEUE, queues.local_queue("ours", home, home)),
    ]


def rival(namespace: str) -> Manifest:
    """Return what is of higher priority, and needs all of the quota."""
    main = {"name": "main", "image": "none", "resources": {"requests": QUOTA}}
    template = {"spec": {"containers": [main], "restartPolicy": "Never"}}
    pods = [{"name": "main", "count": 1, "template": template}]
    about = {"name": "rival", "namespace": namespace}
    return {"metadata": about, "spec": {"queueName": "ours", "priority": 1000, "podSets": pods}}
