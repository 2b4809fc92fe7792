"""Jobs whose sizes nobody gave, with real processes: they learn, and settle."""

from __future__ import annotations

import pytest

from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.controllers.site import Site
from tests.kit.e2e import Job, role

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
        time.sleep(max(0.2 / elastic.world_size, 0.1))
"""
"""Trains twice as fast with two workers as with one, and no faster with three."""
LEAKS = """
import time, torch
from elasticjob.trainer.torch import Elastic
model, kept = torch.nn.Linear(1, 1), []
elastic = Elastic(model, torch.optim.SGD(model.parameters(), 0.0))
data = elastic.loader(torch.utils.data.TensorDataset(torch.ones(400, 1)), global_batch=1)
for step in elastic.steps(data):
    with step:
        for (batch,) in step:
            step.backward(elastic.model(batch).mean())
        kept.append(b"x" * (1 << 20))
        time.sleep(0.1)
"""
"""Needs 10 MiB more each second, for 40 s."""
QUICK = {"ELASTICJOB_MASTER__PACE": {"value": "0.05"}}


LIMITS = {"cpu": "2", "memory": "5Gi"}


def learning(program: str, most: int, **more: object) -> Manifest:
    """Return the spec of a job without sizes, whose master looks twenty times as often."""
    worker = role(
        ["elasticjob", "run", "--no-python", "python", "-c", program], minReplicas=1, maxReplicas=most
    )
    del worker["replicas"]
    return {"replicaSpecs": {"worker": worker}, "envs": QUICK, "resourceLimits": LIMITS, **more}


async def plans(site: Site) -> list[ScalePlan]:
    return await site.client.list(SCALEPLAN, site.namespace)


async def test_a_job_without_sizes_grows_as_long_as_it_pays(site: Site) -> None:
    job = Job(site)
    await site.apply(learning(FASTEST_WITH_TWO, most=3))
    await site.until(lambda: "worker-2" in job.running(), 120)
    await site.until(lambda: job.status.workers == "2/2" and job.running() >= {"worker-0", "worker-1"}, 60)
    told = [plan.spec.reason for plan in sorted(await plans(site), key=lambda plan: plan.metadata.name)]
    assert any("is not worth it" in reason for reason in told)


async def test_a_worker_that_eats_memory_gets_more_before_it_dies(site: Site) -> None:
    job = Job(site)
    await site.apply(learning(LEAKS, most=1))
    await site.until(job.has_ended("Complete"), 120)
    told = [plan.spec.reason for plan in await plans(site)]
    assert any("out of memory in" in reason for reason in told)
    assert {name: len(uids) for name, uids in job.born.items()} == {"master-0": 1, "worker-0": 1}
