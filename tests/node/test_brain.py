"""Brain in the cluster: a job is sized by the history of an earlier one."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from lab.clusters.installed.helm import program
from lab.clusters.installed.installation import READY, SYSTEM, Installation
from lab.clusters.installed.kubectl import CommandFailed
from lab.clusters.installed.stage import VOLUME, furniture, role, volume_of
from lab.clusters.node.node import Node
from lab.jobs.history import PACED, History, tell
from lab.jobs.job import STEPS
from lab.jobs.site import Site
from lab.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.timeout(1800)]

BRAIN: Final = "deployment/elasticjob-brain"
TOKEN: Final = "what people read with"
QUICK: Final = ("ELASTICJOB_BRAIN_EVERY=0.3", "ELASTICJOB_BRAIN_PACE=0.02")


@pytest.fixture
async def brain(node: Installation) -> AsyncIterator[str]:
    """The host of Brain, installed with Helm beside the operator; its database is on a volume of the node."""
    if not isinstance(node.machine, Node) or not program():
        pytest.skip("needs hack/node and Helm")
    node.load("brain")
    folder = node.machine.volumes / f"brain-{secrets.token_hex(3)}"
    folder.mkdir()
    folder.chmod(0o777)
    about = {"name": "elasticjob-brain", "namespace": SYSTEM}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": about}
    await node.kubectl.apply(
        {**secret, "stringData": {"key": "of this test", "reading-token": TOKEN}},
        volume_of(folder, SYSTEM, "elasticjob-brain", "ReadWriteOnce"),
    )
    try:
        async with node.beside("brain", "brain.enabled=true", env=QUICK) as host:
            try:
                await until(lambda: leads(node), "Brain leads")
                yield host
            finally:  # first its pods, since Helm takes their rights before them
                with suppress(CommandFailed):
                    await node.kubectl("-n", SYSTEM, "scale", BRAIN, "--replicas=0")
                    chosen = await node.kubectl.names("pods", SYSTEM)
                    brains = [name for name in chosen if name.startswith("pod/elasticjob-brain-")]
                    await node.kubectl("-n", SYSTEM, "wait", "--for=delete", READY, *brains)
    finally:  # the chart leaves the claim to its owner
        ours = (f"{kind}/elasticjob-brain" for kind in ("persistentvolumeclaim", "secret"))
        both = (*ours, f"persistentvolume/{folder.name}")
        await node.kubectl("-n", SYSTEM, "delete", *both, "--ignore-not-found", READY)
        shutil.rmtree(folder)


async def leads(node: Installation) -> bool:
    """Whether a Brain that runs holds the lease; one that was killed holds it for some seconds."""
    pods = {name.removeprefix("pod/") for name in await node.kubectl.names("pods", SYSTEM)}
    path = "jsonpath={.spec.holderIdentity}"
    holder = await node.kubectl("-n", SYSTEM, "get", "lease", "elasticjob-brain", "-o", path)
    return holder.partition("_")[0] in pods


async def test_a_job_is_sized_by_the_history_of_an_earlier_one(
    node: Installation, site: Site, volume: Path, brain: str
) -> None:
    async def lose_brain() -> None:
        chosen = ("-l", "app.kubernetes.io/component=brain")
        await node.kubectl("-n", SYSTEM, "delete", "pod", *chosen, "--force")
        await site.until(lambda: (now := site.job("first").status.training) and now.world_size == 2)
        await node.kubectl("-n", SYSTEM, "rollout", "status", BRAIN, READY)

    train = ["elasticjob", "run", f"/code/{STEPS.name}", *PACED, f"{VOLUME}/gate"]
    worker, headers = role(train), {"Authorization": f"Bearer {TOKEN}"}
    await node.kubectl.apply(*furniture(site.namespace, STEPS))
    place = History(
        site, f"http://{brain}:8090", worker, volume / "gate", lose_brain, cpu="1", headers=headers
    )

    async def is_measured() -> bool:
        return any(sample["goodput"] for sample in (await place.known("second")).get("samples", []))

    with node.timed("cluster mode", "the second job starts with what the first one learnt"):
        await tell(place)
        await until(is_measured, "the metrics of masters tell the goodput")  # and nothing else does
        await place.let_go("second")
