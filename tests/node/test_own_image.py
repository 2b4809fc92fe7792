"""The agent in a user's own image, which has Python and PyTorch and nothing of ours."""

from __future__ import annotations

from typing import Final

import pytest

from elasticjob import __version__
from elasticjob.api.v1alpha1.common import AGENT, AGENT_IMAGE, AGENT_PLACE
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import CONFIG_MAP
from lab.clusters.images.interpreter import NOBODY, PREFIX
from lab.clusters.images.oci import Recipe
from lab.clusters.installed.installation import Installation
from lab.clusters.installed.stage import restricted
from lab.jobs.job import submitted
from lab.jobs.site import Site

pytestmark = [pytest.mark.node, pytest.mark.timeout(1800)]

NAME: Final = "docker.io/team/pytorch:1"
SCRIPT: Final = """
import os
import elasticjob, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert elasticjob.__file__.startswith("/elasticjob/"), elasticjob.__file__
print("sum", int(total), "of", os.environ["WORLD_SIZE"], flush=True)
"""


async def test_a_job_trains_in_an_image_that_has_nothing_of_ours(node: Installation, site: Site) -> None:
    trainer = node.loaded["trainer", __version__]
    interpreter, packages = trainer.blobs[2:4]  # the last layer, ours, is left out
    recipe = Recipe(NAME, user=f"{NOBODY}:{NOBODY}", environment={"PATH": f"{PREFIX}/bin:/usr/bin:/bin"})
    node.machine.load(node.store.image(recipe, (interpreter, packages)), node.store)
    with node.timed("a user's own image", "the agent is brought along"):
        await site.client.create(
            CONFIG_MAP, {"metadata": {"name": "code"}, "data": {"train.py": SCRIPT}}, site.namespace
        )
        job = await submitted(site, spec())
        await site.until(job.has_ended("Complete"))
    for index in (0, 1):
        log = await node.kubectl("-n", site.namespace, "logs", f"digits-worker-{index}", "-c", "main")
        assert "sum 2 of 2" in log
    assert [each.name for each in job.pods()["worker-0"].spec.init_containers] == [AGENT]


def spec() -> Manifest:
    """Return a job of two workers; the annotation of its template brings the agent."""
    main = {
        "image": NAME,
        "command": ["python3", f"{AGENT_PLACE}/start.py", "run", "/workspace/train.py"],  # it has no shell
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "OMP_NUM_THREADS", "value": "1"}],
        "volumeMounts": [{"name": "code", "mountPath": "/workspace"}],
    }
    template = {
        "metadata": {"annotations": {AGENT_IMAGE: f"elasticjob/agent:{__version__}"}},
        "spec": restricted(main, {"name": "code", "configMap": {"name": "code"}}),
    }
    return {"replicaSpecs": {"worker": {"replicas": 2, "template": template}}}
