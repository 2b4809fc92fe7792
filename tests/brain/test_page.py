"""Brain's page: what it remembers of jobs that are gone, to those who may read."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from elasticjob.api.sizes.facts import Sample, Use
from elasticjob.brain.main import serving
from elasticjob.brain.settings import Settings
from elasticjob.brain.store import DatabaseAway, Record, SeenJob, SeenPod, Store
from elasticjob.cli.brain_page import StoredJobs, cost, page
from elasticjob.kube.clock import VirtualClock
from elasticjob.page.pages import Pages
from elasticjob.page.remembered import FromMemory
from tests.kit.brain import NOW
from tests.kit.brain import serving as brain

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


def sample(minutes: int, cpu: float = 2.0, cores: float = 4.0) -> Sample:
    node = Use(name="digits-worker-0", role="worker", cpu=cpu, cores=cores)
    at = NOW - timedelta(minutes=minutes)
    return Sample(at=at, workers=3, steps=5.0, samples=320.0, nodes=(node,), goodput=0.8)


async def filled(store: Store) -> None:
    """Keep a job that has ended, with all that there is of one."""
    began = NOW - timedelta(hours=1)
    await store.see_job(
        SeenJob("u1", "team", "digits", began, phase="Succeeded", ended=NOW, status={"goodput": 0.8}), NOW
    )
    await store.add_samples("u1", [sample(60), sample(30), sample(0)])
    await store.see_pod(
        SeenPod("p1", "u1", "digits-worker-0", "worker", began, reason="OOMKilled", log="last words")
    )
    decision = Record(NOW, "Start", "start", "the smallest size", plan="digits-1", outcome="Succeeded")
    assert await store.keep("u1", decision, 0) == 1


async def read(shown: FromMemory, *job: str) -> Any:
    return msgspec.json.decode(await (shown.job(*job) if job else shown.fleet()))


async def test_a_job_that_is_gone_is_remembered(store: Store) -> None:
    await filled(store)
    shown = FromMemory(StoredJobs(store, VirtualClock(NOW)), VirtualClock(NOW))
    (row,) = (await read(shown))["jobs"]
    assert (row["name"], row["deleted"], row["goodput"]) == ("digits", True, 0.8)
    found = await read(shown, "team", "digits")
    assert found["series"]["samples"] == [320.0] * 3
    assert found["pastPods"][0]["log"] == "last words"
    assert found["happened"][0]["text"] == "the smallest size"
    assert found["cost"].startswith("2 core-hours used of 4 asked for (50%)")
    assert (await read(shown, "team", "letters"))["missing"]


async def test_a_database_that_is_away_is_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise DatabaseAway("it is away")

    monkeypatch.setattr(store, "newest_jobs", away)
    monkeypatch.setattr(store, "find", away)
    shown = FromMemory(StoredJobs(store, VirtualClock(NOW)), VirtualClock(NOW))
    for found in (await read(shown), await read(shown, "team", "digits")):
        assert found["cluster"]["brain"]["why"] == "it is away"


@pytest.mark.parametrize(
    ("samples", "sentence"),
    [
        ((), ""),
        ((sample(0),), ""),
        ((sample(60), sample(0, cores=0.0)), "2 core-hours used, as far as Brain has measured"),
        ((sample(60, 0.0), sample(0, 0.0)), ""),
    ],
)
def test_cost_in_a_sentence(database: str, samples: tuple[Sample, ...], sentence: str) -> None:
    assert cost(samples) == sentence


async def test_the_page_is_for_readers(store: Store, tmp_path: Path) -> None:
    shown = FromMemory(StoredJobs(store, VirtualClock(NOW)), VirtualClock(NOW))
    right = {"Authorization": f"Basic {base64.b64encode(b'ada:readers').decode()}"}
    async with brain(store, tmp_path, "readers", pages=Pages(shown).routes) as site:
        for path in ("/", "/page/app.js", "/page/fleet", "/page/jobs/team/digits", "/page/logs/team/pod"):
            url = f"http://{site.address}{path}"
            async with site.session.get(url) as response:
                assert response.status == 401
                assert "Basic" in response.headers["WWW-Authenticate"]
            async with site.session.get(url, headers=right) as response:
                assert response.status == (404 if "logs" in path else 200)
                assert "script-src 'self'" in response.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("alone", "token", "status"), [(True, "", 404), (False, "", 403), (False, "readers", 404)]
)
async def test_logs_are_for_readers_with_a_token_where_others_reach_brain(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool, token: str, status: int
) -> None:
    if not alone:
        monkeypatch.setattr("elasticjob.cli.brain_page.LOOPBACK", ())
    (tmp_path / "token").write_text(token)
    settings = Settings(port=0, reading_token_file=tmp_path / "token" if token else None, cluster=False)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        serving(settings, store, CollectorRegistry(), page(settings, store, None, session)) as server,
        session.get(f"http://{server.address}/page/logs/team/pod", headers=headers) as response,
    ):
        assert response.status == status
