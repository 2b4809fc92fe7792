"""TensorFlow over servers on a real node: servers 3 → 4, one is killed, and no record is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from elasticjob import __version__
from elasticjob.kube.objects.kinds import Manifest
from lab.clusters.images import images
from lab.clusters.images.images import Product
from lab.clusters.installed.installation import Installation
from lab.clusters.installed.stage import VOLUME, furniture, role
from lab.jobs.job import submitted, with_servers
from lab.jobs.site import Site
from lab.jobs.training.over_servers import SCRIPT, SERVE, counts, kept
from lab.truths.steps import Steps
from lab.waiting import until

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(1800)]

NAME: Final = "tensorflow"
IMAGE: Final = Product(("tensorflow",), ("run", "--help"), 3500, about="TensorFlow and the training library")
RECORDS, USERS = 300_000, 20_000
FRAMEWORK: Final = f"elasticjob/{NAME}:{__version__}"


async def test_servers_come_and_are_killed_and_each_record_counts(
    node: Installation, site: Site, volume: Path
) -> None:
    node.machine.load(images.build(NAME, node.store, __version__, product=IMAGE), node.store)
    await node.kubectl.apply(*furniture(site.namespace, SCRIPT))
    (volume / "kept").mkdir()
    (volume / "kept").chmod(0o777)  # as the volume itself
    steps, job = Steps(volume), await submitted(site, spec())
    await steps.more()
    async with steps.standstill("servers 3 → 4"):
        await site.plan("four", replicaResourceSpecs={"ps": {"replicas": 4}})
        await site.until(lambda: "ps-3" in job.running())
    async with steps.standstill("a checkpoint"):
        (volume / "save").touch()
        await until(lambda: kept(volume), "a checkpoint")
    await steps.more()
    async with steps.standstill("a server is killed, back to the checkpoint"):
        delete = ("delete", "pod", "digits-ps-1", "--force", "--grace-period=0")
        await node.kubectl("-n", site.namespace, *delete)
        await site.until(lambda: len(job.born["ps-1"]) > 1 and "ps-1" in job.running())
    (volume / "gate").touch()
    await site.until(job.has_ended("Complete"))
    print(steps.stood)
    never, once, twice, most = counts(volume)
    print(f"records {RECORDS}: once {once}, never {never}, twice {twice}, at most {most} times")
    assert never == 0
    assert once == RECORDS


def spec() -> Manifest:
    """Return a job of three servers and two workers."""
    train = ["python3", f"/code/{SCRIPT.name}", VOLUME, str(RECORDS), str(USERS)]
    serve = ["python3", *SERVE[1:], f"{VOLUME}/kept"]
    return with_servers(
        role(serve, image=FRAMEWORK, replicas=3, minReplicas=1, maxReplicas=6),
        role(train, image=FRAMEWORK, replicas=2, minReplicas=1, maxReplicas=4),
        optimizeMode="manual",
    )
