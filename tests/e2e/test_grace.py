"""A plain script that saves on SIGTERM has the time for it, in each way to leave; its peers save with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticjob.kube.objects.views import POD
from lab.jobs.grace import SCRIPT, Life, after_saves, last_save, trained
from lab.jobs.job import TRAINS, role, submitted
from lab.jobs.site import Site
from lab.waiting import PATIENCE

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]
SUPERVISOR = TRAINS
SAVE, GRACE = 6, 20
"""Seconds; longer than any patience of ours that a grace once hid behind."""


async def test_every_leave_waits_for_the_save(site: Site, tmp_path: Path) -> None:
    command = ["elasticjob", "run", str(SCRIPT), str(tmp_path), "--save", str(SAVE)]
    workers = role(command, 2, minReplicas=1, maxReplicas=2, restartCount=9)
    workers["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE
    job = await submitted(site, {"replicaSpecs": {"worker": workers}})

    async def all_save(those: list[Life], asked: set[str]) -> None:
        found = await after_saves(tmp_path, those, GRACE + PATIENCE / 6)
        assert [life.saved for life in found] == [True] * len(those), [life.told for life in found]
        assert {life.pod for life in found if life.first("asked")} == {f"digits-{place}" for place in asked}
        assert last_save(tmp_path) == found[0].first("saved")["step"]

    both = await trained(tmp_path, 2)
    await site.client.delete(POD, "digits-worker-1", site.namespace)
    await all_save(both, {"worker-1"})
    both = await trained(tmp_path, 2)
    assert {life.first("begun")["step"] for life in both} == {last_save(tmp_path)}
    await site.scale(1)
    await all_save(both, {newer.pod.removeprefix("digits-") for newer in both} - {"worker-0"})
    alone = await trained(tmp_path, 1)
    await site.patch({"suspend": True})
    await all_save(alone, {"worker-0"})
    await site.until(lambda: not job.pods())
    assert not job.status.restarts
