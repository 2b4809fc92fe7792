"""The same samples from a master's own metrics and from a real Prometheus server that scrapes it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry, generate_latest

from elasticjob.api.rpc.nodes import Report, Usage
from elasticjob.brain.history import Sample, Use
from elasticjob.brain.monitor.samples import sample_of
from elasticjob.brain.monitor.sources import Masters, Prometheus, SourceError, Watched, readings_of
from elasticjob.master.serving.pages import JobCollector
from elasticjob.master.state.job import Job
from elasticjob.master.state.training import Account
from tests.kit.brain.prometheus import prometheus
from tests.kit.master.turns import START, Played, join, report, watch
from tests.kit.waiting import until

NAMES = ("node-0", "node-1")
LATEST = START + timedelta(seconds=10)


def training() -> Job:
    """A job that makes 5 steps and 40 records a second on two nodes."""
    game = Played(2, 2)
    game.ask(*map(watch, NAMES), *map(join, NAMES))
    for seconds in (0, 10):
        game.now = START + timedelta(seconds=seconds)
        for number, name in enumerate(NAMES):
            said = report(name, 1, 5 * seconds, samples=40 * seconds)
            usage = Usage(cpu=1.5 + number, memory=(1 + number) << 30)
            game.ask(Report(**{**{f: getattr(said, f) for f in said.__struct_fields__}, "usage": usage}))
    return game.job


def text(job: Job) -> bytes:
    registry = CollectorRegistry()
    registry.register(JobCollector(job))
    return generate_latest(registry)


EXPECTED = Sample(
    LATEST,
    2,
    5.0,
    40.0,
    (Use("node-0", "worker", 1.5, 1 << 30, 0.0, 0), Use("node-1", "worker", 2.5, 2 << 30, 0.0, 0)),
    goodput=1.0,
)


@asynccontextmanager
async def served(job: Job) -> AsyncIterator[str]:
    """A master's /metrics at host:port."""
    app = web.Application()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=text(job), content_type="text/plain")

    app.router.add_get("/metrics", metrics)
    server = TestServer(app)
    await server.start_server()
    try:
        yield f"{server.host}:{server.port}"
    finally:
        await server.close()


def in_a_file(folder: Path, master: str) -> dict[str, object]:
    """Name a master in a file that Prometheus watches."""
    file = folder / "targets.json"
    file.write_text(json.dumps([{"targets": [master], "labels": {"namespace": "team"}}]))
    return {"file_sd_configs": [{"files": [str(file)]}]}


async def test_both_sources_give_the_same_sample(tmp_path: Path) -> None:
    job = training()
    async with (
        served(job) as master,
        prometheus(tmp_path, {"job_name": "masters", **in_a_file(tmp_path, master)}) as url,
        aiohttp.ClientSession() as session,
    ):
        watched = Watched("u1", "team", "digits", master)
        assert await Masters(session).samples([watched], LATEST) == {"u1": EXPECTED}
        source = Prometheus(url, session)

        async def seen() -> bool:
            try:
                found = await source.samples([watched], datetime.now(UTC))
            except SourceError:  # it starts
                return False
            return {uid: each.but(at=LATEST) for uid, each in found.items()} == {"u1": EXPECTED}

        await until(seen, "Prometheus has scraped the master")
        other = Watched("u2", "other", "digits", master)
        assert await source.samples([other], datetime.now(UTC)) == {}


def test_the_goodput_of_a_sample_is_the_account_s() -> None:
    job = training().but(account=Account(seconds={"productive": 3.0, "init": 1.0}))
    sample = sample_of(readings_of(text(job).decode()), LATEST)
    assert sample is not None
    assert sample.goodput == 0.75


def test_there_is_no_sample_until_all_nodes_train() -> None:
    game = Played(1, 2)
    game.ask(watch("node-0"), join("node-0"))
    assert sample_of(readings_of(text(game.job).decode()), START) is None
    assert sample_of((), START) is None


async def test_who_cannot_be_read_is_left_out_or_named() -> None:
    async with aiohttp.ClientSession() as session:
        assert await Masters(session).samples([Watched("u1", "a", "b", "127.0.0.1:9")], START) == {}
        with pytest.raises(SourceError, match=r"http://127.0.0.1:9/api/v1/query cannot be reached"):
            await Prometheus("http://127.0.0.1:9/", session).samples([], START)
