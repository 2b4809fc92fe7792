"""The same samples from a master's own metrics and from a real Prometheus server that scrapes it."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry, generate_latest

from elasticjob.api.rpc.nodes import Report, Usage
from elasticjob.brain.history import Sample, Use
from elasticjob.brain.monitor import sources
from elasticjob.brain.monitor.samples import PLAIN, USES, Malformed, Reading, sample_of
from elasticjob.brain.monitor.sources import Masters, Prometheus, SourceError, Target, readings_of
from elasticjob.master.serving.pages import JobCollector
from elasticjob.master.state.job import Job
from elasticjob.master.state.training import Account
from lab.virtual.master import START, Played, join, report, watch
from lab.waiting import until
from tests.kit.monitoring.prometheus import prometheus

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


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(answer: Handler) -> AsyncIterator[str]:
    """A server whose every path is answered so, at host:port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        yield f"{server.host}:{server.port}"


def served(job: Job) -> AbstractAsyncContextManager[str]:
    """A master's metrics at host:port."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=text(job), content_type="text/plain")

    return serving(metrics)


def in_a_file(folder: Path, master: str) -> dict[str, object]:
    """Name a master in a file that Prometheus watches."""
    file = folder / "targets.json"
    file.write_text(json.dumps([{"targets": [master], "labels": {"namespace": "team"}}]))
    return {"file_sd_configs": [{"files": [str(file)]}]}


async def test_both_sources_give_the_same_sample(tmp_path: Path) -> None:
    job = training()
    async with (
        served(job) as master,
        prometheus(tmp_path, {"job_name": "masters", **in_a_file(tmp_path, master)}) as server,
        aiohttp.ClientSession() as session,
    ):
        watched = Target("u1", "team", "digits", master)
        assert await Masters(session).samples([watched], LATEST) == {"u1": EXPECTED}
        source = Prometheus(server.url, session)

        async def seen() -> bool:
            try:
                found = await source.samples([watched], datetime.now(UTC))
            except SourceError:  # it starts
                return False
            return [each.but(at=LATEST) for each in found.values() if isinstance(each, Sample)] == [EXPECTED]

        await until(seen, "Prometheus has scraped the master")
        other = Target("u2", "other", "digits", master)
        assert await source.samples([other], datetime.now(UTC)) == {}


def test_the_goodput_of_a_sample_is_the_account_s() -> None:
    job = training().but(account=Account(seconds={"productive": 3.0, "init": 1.0}))
    sample = sample_of(readings_of(text(job)), LATEST)
    assert sample is not None
    assert sample.goodput == 0.75


def test_there_is_no_sample_until_all_nodes_train() -> None:
    game = Played(1, 2)
    game.ask(watch("node-0"), join("node-0"))
    assert sample_of(readings_of(text(game.job)), START) is None
    assert sample_of((), START) is None


async def test_a_master_that_begins_is_left_out_and_who_cannot_be_read_is_named() -> None:
    away = Target("u1", "a", "b", "127.0.0.1:9")
    async with served(training()) as master, aiohttp.ClientSession() as session:
        both = [away, Target("u2", "a", "c", master), Target("u3", "a", "d")]
        assert await Masters(session).samples(both, LATEST) == {"u2": EXPECTED}
        assert await Masters(session).samples([both[2]], LATEST) == {}
        with pytest.raises(
            SourceError, match=r"none of 1 masters can be read, the last: http://127.0.0.1:9/"
        ):
            await Masters(session).samples([away], START)
        with pytest.raises(SourceError, match=r"http://127.0.0.1:9/api/v1/query cannot be reached"):
            await Prometheus("http://127.0.0.1:9/", session).samples([away], START)


GOOD = {"world_nodes": "2", "steps_per_second": "5", "samples_per_second": "40", "goodput_ratio": "0.5"}
WILD: Final = ("+Inf", "-Inf", "NaN", "-1", "1e30", "1e999", "9" * 400)


def page(**changed: str) -> bytes:
    lines = [f"elasticjob_{name} {value}" for name, value in {**GOOD, **changed}.items()]
    return "\n".join([*lines, 'elasticjob_node_cpu_cores{node="n",role="worker"} 1', ""]).encode()


@pytest.mark.parametrize("value", WILD)
@pytest.mark.parametrize("name", [*PLAIN, *(f'{use}{{node="evil",role="worker"}}' for use in USES)])
def test_a_number_that_no_job_reaches_is_named(name: str, value: str) -> None:
    with pytest.raises(Malformed, match=f"elasticjob_{name.split('{')[0]}.* is .*which no job reaches"):
        sample_of(readings_of(page(**{name: value})), LATEST)


@pytest.mark.parametrize(
    "text",
    [
        b'elasticjob_nodes{state="\xff"} 1',
        b"elasticjob_nodes{ 1",
        b'elasticjob_nodes{state="',
        page(world_nodes="1e9"),
        page() + b'elasticjob_node_cpu_cores{node="n",role="worker"} 1\n' * 100_000,
    ],
    ids=["no text", "no label", "no end", "a huge world", "more than any job says"],
)
def test_metrics_that_make_no_sense_are_no_sample(text: bytes) -> None:
    with pytest.raises(Malformed):
        sample_of(readings_of(text), LATEST)


def test_metrics_of_others_are_not_even_parsed() -> None:
    others = b'elasticjob_world_nodes_of_others{ 9\n{"\nelasticjob_x{ 1\n'
    assert sample_of(readings_of(others + page() + others), LATEST) == sample_of(readings_of(page()), LATEST)


async def test_a_master_does_not_send_brain_elsewhere() -> None:
    async with served(training()) as master, aiohttp.ClientSession() as session:

        async def elsewhere(_: web.Request) -> web.Response:
            raise web.HTTPFound(f"http://{master}/metrics")

        async with serving(elsewhere) as liar:
            watched = Target("u1", "a", "b", liar)
            with pytest.raises(SourceError, match="answers 302"):
                await Masters(session).samples([watched], LATEST)


async def test_masters_that_do_not_answer_are_asked_more_and_more_seldom() -> None:
    """Each costs a look five seconds: hundreds of one tenant would hold up the samples of all."""
    asked = list[str]()

    async def metrics(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=503 if len(asked) <= 7 else 200, body=page())

    async with serving(metrics) as master, aiohttp.ClientSession() as session:
        watched = [Target("u1", "a", "b", master)]
        masters, counts = Masters(session), list[int]()
        for _ in range(80):
            with suppress(SourceError):
                await masters.samples(watched, LATEST)
            counts.append(len(asked))
    assert (counts[3], counts[19], counts[31]) == (4, 7, 7)
    assert counts[79] - counts[59] == 20  # it answers again


async def test_few_pages_are_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    read, parsed, goes = list[str](), list[bytes](), threading.Event()

    async def metrics(request: web.Request) -> web.Response:
        read.extend(["metrics"] * (request.path == "/metrics"))
        return web.Response(body=page())

    def parse(text: bytes) -> list[Reading]:
        parsed.append(text)
        goes.wait()
        return readings_of(text)

    monkeypatch.setattr(sources, "AT_ONCE", 3)
    monkeypatch.setattr(sources, "PARSED_AT_ONCE", 1)
    monkeypatch.setattr(sources, "readings_of", parse)
    async with serving(metrics) as master, aiohttp.ClientSession() as session:
        watched = [Target(f"u{number}", "a", "b", master) for number in range(9)]
        asking = asyncio.create_task(Masters(session).samples(watched, LATEST))
        try:
            await until(lambda: parsed, "a page is parsed")
            for _ in range(20):  # round trips, in which those of the others would have come, too
                async with session.get(f"http://{master}/nowhere") as answer:
                    await answer.read()
            assert [len(read), len(parsed)] == [3, 1]
        finally:
            goes.set()
        assert len(await asking) == 9


def series(job: str, metric: str, value: str, **labels: str) -> dict[str, Any]:
    about = {"__name__": f"elasticjob_{metric}", "namespace": "team", "exported_job": job, **labels}
    return {"metric": about, "value": [1.5, value]}


@dataclass
class Answers:
    """A Prometheus server that knows some series, and remembers what it is asked."""

    known: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def query(self, request: web.Request) -> web.Response:
        assert (request.method, request.path) == ("POST", "/api/v1/query")
        form = await request.post()
        assert set(form) == {"query"}, "it has a clock of its own"
        self.asked.append(str(form["query"]))
        names = re.search(r'exported_job=~("[^"]*")', self.asked[-1])
        assert names is not None
        wanted = [
            each for each in self.known if re.fullmatch(json.loads(names[1]), each["metric"]["exported_job"])
        ]
        return web.json_response({"data": {"result": wanted}})


@asynccontextmanager
async def asked(known: Sequence[dict[str, Any]]) -> AsyncIterator[tuple[Answers, Prometheus]]:
    answers = Answers([*known])
    async with serving(answers.query) as server, aiohttp.ClientSession() as session:
        yield answers, Prometheus(f"http://{server}/", session)


def of(job: str, **changed: str) -> list[dict[str, Any]]:
    return [series(job, name, value) for name, value in {**GOOD, **changed}.items()]


def watched(*names: str) -> list[Target]:
    return [Target(name, "team", name) for name in names]


async def test_one_jobs_numbers_cost_prometheus_no_other_job() -> None:
    known = [*of("good"), *(each for n, value in enumerate(WILD) for each in of(f"bad{n}", goodput=value))]
    async with asked([*known, *of("words", world_nodes="many")]) as (_, source):
        names = ("good", *(f"bad{n}" for n in range(len(WILD))), "words")
        found = dict(await source.samples(watched(*names), LATEST))
    assert found.pop("good") == Sample(LATEST, 2, 5.0, 40.0, (), 0.5)
    assert {*map(type, found.values())} == {Malformed}
    assert len(found) == len(WILD) + 1


async def test_what_is_too_much_for_one_answer_is_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LARGEST", 4000)
    names = [f"job-{n}" for n in range(40)]
    huge = [series("job-3", "node_cpu_cores", "1", node=f"job-3-worker-{n}") for n in range(50)]
    async with asked([each for name in names for each in of(name)] + huge) as (answers, source):
        found = await source.samples(watched(*names), LATEST)
    assert [*found] == [name for name in names if name != "job-3"]
    assert len(answers.asked) < 40


async def test_what_prometheus_repeats_over_a_gap_is_no_sample() -> None:
    later = LATEST + timedelta(minutes=1)
    async with asked(of("a")) as (answers, source):
        assert [*await source.samples(watched("a"), LATEST)] == ["a"]
        assert await source.samples(watched("a"), later) == {}
        answers.known = []
        assert await source.samples(watched("a"), later) == {}
        answers.known = of("a", steps_per_second="5.5")
        assert [*await source.samples(watched("a"), later)] == ["a"]
