"""What masters and readers get from Brain over HTTP."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from elasticjob.api.rpc.brain import AskSizes, Sizes, TellStatistics, job_token
from elasticjob.api.rpc.message import Empty
from elasticjob.api.sizes.facts import JobFacts, Sample, Stage, Use
from elasticjob.api.sizes.role import Role
from elasticjob.brain.server import openapi
from elasticjob.brain.store import SeenJob, Store
from tests.kit.brain import KEY, NOW, Site, serving

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # test_store.py has both
JOB = JobFacts(namespace="team", name="digits", uid="u1", roles={"worker": Role(most=8)})
GIB = 1 << 30


@pytest_asyncio.fixture
async def site(store: Store, tmp_path: Path) -> AsyncIterator[Site]:
    async with serving(store, tmp_path) as found:
        yield found


def statistics(minutes: int) -> Sample:
    node = Use(name="digits-worker-0", role="worker", cpu=3.2, memory=4 * GIB, cores=4.0, bytes=8 * GIB)
    return Sample(at=NOW - timedelta(minutes=minutes), workers=3, steps=5.0, samples=320.0, nodes=(node,))


async def test_a_job_is_sized_by_an_earlier_one_like_it(site: Site, store: Store) -> None:
    create = AskSizes(job=JOB, stage=Stage.CREATE)
    first = await site.ask(create)
    assert (first.algorithm, first.groups["worker"].count) == ("start", 1)
    assert await site.ask(TellStatistics(job=JOB, records=(statistics(2), statistics(1)))) == Empty()
    seen = SeenJob("u1", "team", "digits", NOW, image="t:1", script="x", ended=NOW, completed=True)
    await store.see_job(seen, NOW)
    await store.see_job(SeenJob("u2", "team", "more", NOW, image="t:1", script="x"), NOW)
    again = JobFacts(namespace="team", name="more", uid="u2", roles={"worker": Role(most=8)})
    second = await site.ask(AskSizes(job=again, stage=Stage.CREATE))
    assert second.algorithm == "worker-from-history"
    assert second.groups["worker"].count == 3
    assert second.groups["worker"].resource == {"cpu": "3840m", "memory": "5735Mi"}
    (kept,) = await store.decisions_of("u2")
    assert (kept.number, kept.event, kept.reason) == (1, "Start", second.reason)
    assert kept.inputs["jobs like it"] == ["digits"]


@pytest.mark.parametrize("minutes", [-10, 0, 10])
async def test_records_are_kept_by_brains_clock(site: Site, store: Store, minutes: int) -> None:
    ahead = timedelta(minutes=minutes)
    skewed = replace(site, now=lambda: NOW + ahead)
    told = [msgspec.structs.replace(each, at=each.at + ahead) for each in (statistics(2), statistics(1))]
    for _ in range(2):
        await skewed.ask(TellStatistics(job=JOB, records=tuple(told)))
    found = (await store.history("u1", NOW)).samples
    assert [each.at for each in found] == [NOW - timedelta(minutes=2), NOW - timedelta(minutes=1)]


async def test_plans_of_running_jobs_are_not_made_twice(store: Store, tmp_path: Path) -> None:
    async with serving(store, tmp_path, plans=True) as site:
        found: Sizes = await site.ask(AskSizes(job=JOB, stage=Stage.RUNNING, settled=True))
        assert (dict(found.groups), found.reason) == ({}, "Brain writes the plans of running jobs itself")


async def test_who_is_refused(site: Site) -> None:
    body = msgspec.json.encode(AskSizes(job=JOB, stage=Stage.CREATE))
    for token in ("", "no", job_token(KEY, "u2"), job_token(b"", "u1")):
        status, problem = await site.post("/v1/brain/sizes", body, token)
        assert (status, problem.code) == (401, "unauthenticated")
        assert "token of job u1" in problem.detail
    status, problem = await site.post("/v1/brain/no", body)
    assert (status, problem.code) == (404, "unknown-verb")
    status, problem = await site.post("/v1/brain/sizes", b'{"job": {"uid": 1}}')
    assert (status, problem.code) == (400, "malformed")
    assert "`$.job.uid`" in problem.detail or "namespace" in problem.detail
    assert (await site.get("/v1/jobs/team/absent"))[0] == 404
    assert (await site.get("/v1/no"))[1]["code"] == "malformed"
    await site.ask(AskSizes(job=JOB, stage=Stage.CREATE))
    counts = {("other", "404"): 1, ("sizes", "200"): 1, ("sizes", "400"): 1, ("sizes", "401"): 4}
    assert requests(site) == counts | {("read", "404"): 2}


async def test_who_goes_in_the_midst_of_a_body_is_no_error_of_brain(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = site.address.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    start = b"POST /v1/brain/sizes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1d0\r\nhalf"
    writer.write(start)
    await writer.drain()
    await site.get("/v1/no")  # the start has been read by then
    writer.close()
    async with asyncio.timeout(20):
        while ("sizes", "400") not in requests(site):  # noqa: ASYNC110 - a counter tells nobody
            await asyncio.sleep(0)
    assert not caplog.records


def requests(site: Site) -> dict[tuple[str, str], float]:
    """Return how many requests with which verb had which answer."""
    samples = (sample for family in site.registry.collect() for sample in family.samples)
    counts = [each for each in samples if each.name == "elasticjob_brain_request_seconds_count"]
    return {(each.labels["verb"], each.labels["code"]): each.value for each in counts}


async def test_people_read_with_a_token(store: Store, tmp_path: Path) -> None:
    async with serving(store, tmp_path, reading="to read") as site:
        await site.ask(TellStatistics(job=JOB, records=(statistics(1),)))
        for header in ({}, {"Authorization": "Bearer no"}, {"Authorization": "Basic !"}):
            assert (await site.get("/v1/jobs", **header))[0] == 401
        password = base64.b64encode(b"ada:to read").decode()
        for sent in ("Bearer to read", f"Basic {password}"):
            status, found = await site.get("/v1/jobs", Authorization=sent)
            assert (status, [job["name"] for job in found["jobs"]]) == (200, ["digits"])
        status, job = await site.get("/v1/jobs/team/digits", Authorization="Bearer to read")
        assert job["samples"][0]["nodes"][0]["cpu"] == 3.2
        assert job["facts"]["roles"]["worker"]["most"] == 8


async def test_the_description_names_every_call(site: Site) -> None:
    status, found = await site.get("/openapi.json")
    assert status == 200
    assert set(found["paths"]) == {
        "/v1/brain/sizes",
        "/v1/brain/statistics",
        "/v1/jobs",
        "/v1/jobs/{namespace}/{name}",
    }
    assert set(openapi()["components"]["schemas"]) >= {"AskSizes", "JobFacts", "Sample"}
