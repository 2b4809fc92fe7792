"""The plans of running jobs: what is written, and under which name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.brain.events import Pace
from elasticjob.brain.plans import Plans
from elasticjob.brain.store import Record, SeenJob, Store
from elasticjob.kube.objects.kinds import Manifest
from lab.build.caches import caches, raw
from lab.build.jobs import job, plan, resource

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEPT = Record(NOW, "Idle", "mine", "it pays", {}, {"groups": {"worker": {"count": 3}}})


@dataclass
class Server:
    """An API server with plans, which takes any other."""

    plans: list[ScalePlan]
    made: list[str] = field(default_factory=list)

    def list(self, namespace: str) -> list[ScalePlan]:
        return self.plans

    async def create(self, kind: Any, manifest: Manifest) -> None:
        self.made.append(manifest["metadata"]["name"])


async def planner(store: Store, server: Server, jobs: Any, resources: Any) -> Plans:
    """Return what writes the plans of job-1, which the store has seen."""
    await store.see_job(SeenJob("job-1", "ml", "digits", NOW), NOW)
    return Plans(
        store,
        cast(Any, server),
        jobs,
        resources,
        cast(Any, server),
        algorithms=(),
        pace=Pace(),
        every=timedelta(seconds=30),
        now=lambda: NOW,
    )


async def test_a_plan_gets_a_name_that_none_has_after_a_lost_database(store: Store) -> None:
    """Its decisions are numbered from 1 again, while plans of those before are still there."""
    names = ("digits-brain-job-1-7", "digits-brain-job-1-x", "digits-brain-other-9", "digits-user-12")
    server = Server([plan(name) for name in names])
    plans = await planner(store, server, server, server)
    assert await plans.carry_out(job(), KEPT, 0, NOW)
    assert server.made == ["digits-brain-job-1-8"]
    assert (await store.history("job-1", NOW)).decisions == 8


async def test_the_end_of_each_plan_is_noted_also_where_another_decision_came_since(store: Store) -> None:
    mine = job(status={"phase": "Running"}, optimizeMode="cluster")
    ends, server = {1: "Superseded", 2: "Succeeded"}, Server([])
    written = [(SCALEPLAN, raw(plan(f"digits-brain-job-1-{n}", phase=end))) for n, end in ends.items()]
    found = caches((ELASTICJOB, raw(mine)), (JOBRESOURCE, raw(resource())), *written)
    plans = await planner(store, server, found.jobs, found.resources)
    assert [await plans.carry_out(mine, KEPT, number - 1, NOW) for number in ends] == [True, True]
    await replace(plans, plans=found.plans)(mine.key)
    assert {each.number: each.outcome for each in await store.decisions_of("job-1")} == ends
