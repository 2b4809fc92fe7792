"""Brain shares a cluster by goodput: the job that gains by it gets a ScalePlan, with the reason."""

from __future__ import annotations

from datetime import UTC, datetime

import aiohttp
import pytest

from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.brain import main
from elasticjob.brain.fulfilment.planners import Share
from elasticjob.brain.history import Sample
from elasticjob.brain.settings import Settings, Source
from elasticjob.brain.store import NoSuchJob, Store
from elasticjob.controllers.install import install
from elasticjob.kube.client.client import Client
from lab.running import running
from lab.waiting import until
from tests.kit.brain import machine, running_job

SPEEDS = {"scales": {1: 10.0, 2: 20.0}, "flat": {1: 10.0, 2: 10.1}}
"""Records a second by number of workers."""


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_the_job_that_gains_by_it_grows(client: Client, namespace: str, store: Store) -> None:
    await install(client)
    await machine(client, cpu="8", memory="8Gi", pods="9", team=namespace)
    jobs = {name: await running_job(client, namespace, name) for name in SPEEDS}
    uids = {name: job["metadata"]["uid"] for name, job in jobs.items()}
    settings = Settings(
        namespace=namespace, probes="", source=Source.NONE, share=Share.GOODPUT, every=0.2, settle=0
    )
    async with aiohttp.ClientSession() as session:
        operator = main.compose(client, settings, store, session, signals=False)
        plans: dict[str, ScalePlan] = {}

        async def planned() -> bool:
            plans.update({plan.spec.owner_job: plan for plan in await client.list(SCALEPLAN, namespace)})
            return "scales" in plans

        async with running(operator):
            for name, uid in uids.items():
                await until(lambda name=name, uid=uid: sampled(store, uid, SPEEDS[name]), "Brain knows it")  # type: ignore[misc]
            await until(planned, "a job grows")
    assert list(plans) == ["scales"]
    spec = plans["scales"].spec
    assert spec.replica_resource_specs["worker"].replicas == 4
    assert spec.reason.startswith(f"goodput: {namespace}/scales grows from 2 to 4 instances: 2.00 times")
    (kept,) = await store.decisions_of(uids["scales"])
    assert (kept.algorithm, kept.inputs) == ("goodput", {"before": 2, "after": 4})


async def sampled(store: Store, uid: str, speeds: dict[int, float]) -> bool:
    """Add the job's samples, as soon as Brain knows it."""
    now = datetime.now(UTC)
    samples = [Sample(now.replace(microsecond=n), n, speed / 10, speed) for n, speed in speeds.items()]
    try:
        await store.add_samples(uid, samples)
    except NoSuchJob:
        return False
    return True
