"""Brain shares a cluster by goodput: the job that gains by it gets a ScalePlan, with the reason."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import aiohttp
import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.brain import main
from elasticjob.brain.fulfilment.planners import Share
from elasticjob.brain.history import Sample
from elasticjob.brain.settings import Settings, Source
from elasticjob.brain.store import NoSuchJob, Store
from elasticjob.controllers.install import install
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NODE
from lab.build.jobs import role
from lab.waiting import until

SPEEDS = {"scales": {1: 10.0, 2: 20.0}, "flat": {1: 10.0, 2: 10.1}}
"""Records a second by number of workers."""


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_the_job_that_gains_by_it_grows(client: Client, namespace: str, store: Store) -> None:
    await install(client)
    ready = {"type": "Ready", "status": "True"}
    node: Manifest = {"metadata": {"name": "shared", "labels": {"team": namespace}}}
    node["status"] = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"}, "conditions": [ready]}
    await client.create(NODE.untyped(), node)
    uids = {name: await made(client, namespace, name) for name in SPEEDS}
    settings = Settings(
        namespace=namespace, probes="", source=Source.NONE, share=Share.GOODPUT, every=0.2, settle=0
    )
    async with aiohttp.ClientSession() as session:
        operator = main.compose(client, settings, store, session, signals=False)
        running = asyncio.create_task(operator.run())
        for name, uid in uids.items():
            await until(lambda name=name, uid=uid: sampled(store, uid, SPEEDS[name]), "Brain knows it")  # type: ignore[misc]
        plans: dict[str, ScalePlan] = {}

        async def planned() -> bool:
            plans.update({plan.spec.owner_job: plan for plan in await client.list(SCALEPLAN, namespace)})
            return "scales" in plans

        await until(planned, "a job grows")
        operator.stop()
        await running
    assert list(plans) == ["scales"]
    spec = plans["scales"].spec
    assert spec.replica_resource_specs["worker"].replicas == 4
    assert spec.reason.startswith(f"goodput: {namespace}/scales grows from 2 to 4 instances: 2.00 times")
    (kept,) = await store.decisions_of(uids["scales"])
    assert (kept.algorithm, kept.inputs) == ("goodput", {"before": 2, "after": 4})


async def made(client: Client, namespace: str, name: str) -> str:
    """Make a job of two workers, which may have one to four; return its uid."""
    worker = role(None, minReplicas=1, maxReplicas=4)
    spec = {"optimizeMode": "cluster", "replicaSpecs": {"worker": worker}}
    found = await client.create(ELASTICJOB.untyped(), {"metadata": {"name": name}, "spec": spec}, namespace)
    await client.merge_patch(
        ELASTICJOB, name, {"status": {"phase": "Running"}}, namespace, subresource="status"
    )
    size = {"replicas": 2, "resource": {"cpu": "1", "memory": "1Gi"}}
    about = {"name": name, "labels": {"elasticjob.dlrover/name": name}}
    placed = {"selector": {"name": name}, "replicaResourceSpecs": {"worker": size}}
    await client.create(JOBRESOURCE.untyped(), {"metadata": about, "spec": placed}, namespace)
    return str(found["metadata"]["uid"])


async def sampled(store: Store, uid: str, speeds: dict[int, float]) -> bool:
    """Add the job's samples, as soon as Brain knows it."""
    now = datetime.now(UTC)
    samples = [Sample(now.replace(microsecond=n), n, speed / 10, speed) for n, speed in speeds.items()]
    try:
        await store.add_samples(uid, samples)
    except NoSuchJob:
        return False
    return True
