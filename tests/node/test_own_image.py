"""The agent in a user's own image, which has Python and PyTorch and nothing of ours."""

from __future__ import annotations

import json
import time
from typing import Final

import pytest

from elasticjob import __version__
from elasticjob.api.v1alpha1.common import AGENT, AGENT_IMAGE, AGENT_PLACE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.objects.kinds import Manifest
from lab.clusters.images.interpreter import NOBODY, PREFIX
from lab.clusters.images.oci import Recipe
from lab.clusters.installed.site import READY, Site
from lab.clusters.installed.stage import restricted
from lab.clusters.installed.timeline import Row

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


async def test_a_job_trains_in_an_image_that_has_nothing_of_ours(site: Site, home: str) -> None:
    trainer = site.loaded["trainer", __version__]
    interpreter, packages = trainer.blobs[2:4]  # the last layer, ours, is left out
    recipe = Recipe(NAME, user=f"{NOBODY}:{NOBODY}", environment={"PATH": f"{PREFIX}/bin:/usr/bin:/bin"})
    site.node.load(site.store.image(recipe, (interpreter, packages)), site.store)
    began = time.time()
    code = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "code", "namespace": home},
        "data": {"train.py": SCRIPT},
    }
    await site.kubectl.apply(code)
    await site.kubectl.apply(job(home))
    await site.kubectl("-n", home, "wait", "--for=condition=Complete", "elasticjob/own", READY)
    site.rows.append(Row(0.0, "a user's own image", "the agent is brought along", time.time() - began))
    for index in (0, 1):
        assert "sum 2 of 2" in await site.kubectl("-n", home, "logs", f"own-worker-{index}", "-c", "main")
    pod = json.loads(await site.kubectl("-n", home, "get", "pod", "own-worker-0", "-o", "json"))
    assert [each["name"] for each in pod["spec"]["initContainers"]] == [AGENT]


def job(namespace: str) -> Manifest:
    """Return a job of two workers; the annotation of its template brings the agent."""
    mount = {"name": "code", "mountPath": "/workspace"}
    main = {
        "image": NAME,
        "command": ["python3", f"{AGENT_PLACE}/start.py", "run", "/workspace/train.py"],  # it has no shell
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "OMP_NUM_THREADS", "value": "1"}],
        "volumeMounts": [mount],
    }
    template = {
        "metadata": {"annotations": {AGENT_IMAGE: f"elasticjob/agent:{__version__}"}},
        "spec": restricted(main, {"name": "code", "configMap": {"name": "code"}}),
    }
    return {
        "apiVersion": ELASTICJOB.api_version,
        "kind": ELASTICJOB.name,
        "metadata": {"name": "own", "namespace": namespace},
        "spec": {"replicaSpecs": {"worker": {"replicas": 2, "template": template}}},
    }
