"""Jobs whose sizes nobody gave, with real processes: they learn, and settle."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.controllers.site import Site
from tests.kit.e2e import Job, role
from tests.kit.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

FASTEST_WITH_TWO = """
import time, torch
from elasticjob.trainer.torch import Elastic
model = torch.nn.Linear(1, 1)
elastic = Elastic(model, torch.optim.SGD(model.parameters(), 0.0))
data = elastic.loader(torch.utils.data.TensorDataset(torch.ones(100_000, 1)), global_batch=12)
for step in elastic.steps(data):
    with step:
        for (batch,) in step:
            step.backward(elastic.model(batch).mean())
        time.sleep({1: 0.3, 2: 0.15, 3: 0.25}[elastic.world_size])
"""
"""Trains fastest with two workers, by more than a busy machine can hide."""
LEAKS = """
import time, torch
from elasticjob.trainer.torch import Elastic
model, kept = torch.nn.Linear(1, 1), []
elastic = Elastic(model, torch.optim.SGD(model.parameters(), 0.0))
data = elastic.loader(torch.utils.data.TensorDataset(torch.ones(250, 1)), global_batch=1)
for step in elastic.steps(data):
    with step:
        for (batch,) in step:
            step.backward(elastic.model(batch).mean())
        kept.append(b"x" * (5 << 20))
        time.sleep(0.1)
"""
"""Needs 50 MiB more each second, for 25 s: more than it starts with."""


def learning(folder: Path, program: str, most: int, pace: float) -> Manifest:
    """Return the spec of a job without sizes; the times of its master are `pace` times as long as usual."""
    script = folder / "train.py"
    script.write_text(program)
    worker = role(["elasticjob", "run", str(script)], minReplicas=1, maxReplicas=most)
    del worker["replicas"]
    return {
        "replicaSpecs": {"worker": worker},
        "envs": {"ELASTICJOB_MASTER__PACE": {"value": str(pace)}},
        "resourceLimits": {"cpu": "2", "memory": "8Gi"},
    }


async def is_told(site: Site, *words: str) -> bool:
    """Whether the reason of a plan has all these words."""
    told = [plan.spec.reason for plan in await site.client.list(SCALEPLAN, site.namespace)]
    return any(all(word in reason for word in words) for reason in told)


async def test_a_job_without_sizes_grows_as_long_as_it_pays(site: Site, tmp_path: Path) -> None:
    job = Job(site)
    await site.apply(learning(tmp_path, FASTEST_WITH_TWO, most=3, pace=0.05))
    await until(lambda: is_told(site, "3 at", "is not worth it beside 2 at"), "three are too many")
    await site.until(lambda: job.running() == {"master-0", "worker-0", "worker-1"})
    await site.until(lambda: job.status.workers == "2/2")


async def test_a_worker_that_eats_memory_gets_more_before_it_dies(site: Site, tmp_path: Path) -> None:
    job = Job(site)
    await site.apply(learning(tmp_path, LEAKS, most=1, pace=0.02))
    await site.until(job.has_ended("Complete"))
    assert await is_told(site, "worker uses", "out of memory in")
    assert {name: len(uids) for name, uids in job.born.items()} == {"master-0": 1, "worker-0": 1}
