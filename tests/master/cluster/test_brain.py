"""The client of Brain, with a stand-in that answers as Brain does, or badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import pytest_asyncio
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from elasticjob.api.rpc.brain import AskSizes, Size, Sizes, TellStatistics
from elasticjob.api.rpc.message import Empty, Problem
from elasticjob.api.sizes.facts import Stage
from elasticjob.api.sizes.role import Role
from elasticjob.kube.clock import Clock
from elasticjob.kube.metrics import Metrics
from elasticjob.master.cluster import brain as module
from elasticjob.master.cluster.brain import KEPT, Brain, BrainOptimizer, Reporter, WithStandIn
from elasticjob.master.scaling.local import LocalOptimizer
from elasticjob.master.scaling.optimizer import OptimizerError
from elasticjob.master.state.job import Job, Spec
from elasticjob.master.state.scaling import Scaling
from lab.build.sizing import NOW, asked, samples, use

QUESTION = asked(
    {"worker": Role(least=1, most=16), "ps": Role(count=1)},
    sizes={"worker": 2, "ps": 1},
    room={"worker": 3},
    samples=samples((2, 20), uses=(use("ps", cpu=1, of=4),)),
    limits={"cpu": "20"},
)
GROW = Sizes(groups={"worker": Size(count=4, resource={"cpu": "6"})}, reason="it pays", algorithm="running")
PROBLEM = Problem(title="Not here", status=404, detail="this Brain knows no such job", code="refused")


@dataclass
class StandIn:
    """Answers each call with what a test put there."""

    status: int = 200
    body: bytes = field(default_factory=lambda: msgspec.json.encode(GROW))
    silent: bool = False
    asked: list[tuple[str, str, bytes]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, request.headers["Authorization"], await request.read()))
        if self.silent:
            await asyncio.sleep(60)
        return web.Response(status=self.status, body=self.body)


@pytest.fixture
def standin() -> StandIn:
    return StandIn()


@pytest_asyncio.fixture
async def brain(standin: StandIn) -> AsyncIterator[Brain]:
    app = web.Application()
    app.router.add_post("/v1/brain/{verb}", standin.answer)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(TestServer(app))
        session = await stack.enter_async_context(ClientSession())
        yield Brain(f"127.0.0.1:{server.port}", lambda: "secret", session)


@pytest.fixture
def optimizer(brain: Brain) -> BrainOptimizer:
    return BrainOptimizer(brain)


async def test_a_question_arrives_whole_and_the_answer_is_a_plan(
    standin: StandIn, optimizer: BrainOptimizer
) -> None:
    plan = await optimizer.plan(QUESTION)
    [(path, token, body)] = standin.asked
    told = msgspec.json.decode(body, type=AskSizes)
    assert (path, token) == ("/v1/brain/sizes", "Bearer secret")
    assert (told.job.namespace, told.job.name, told.job.uid) == ("", "digits", "1")
    assert (told.stage.value, told.settled, told.job.limits) == ("Running", True, {"cpu": "20"})
    assert (told.placed.sizes, told.placed.room) == ({"worker": 2, "ps": 1}, {"worker": 3})
    assert [(each.workers, each.samples) for each in told.records] == [(2, 20)] * 3
    assert told.records[0].nodes[0].cores == 4
    group = plan.groups["worker"]
    assert (group.count, group.resource.manifest(), plan.reason) == (4, {"cpu": "6"}, "it pays (running)")


@pytest.mark.parametrize(
    ("sizes", "count", "resource"),
    [
        (Size(count=1000, resource={"cpu": "1", "memory": "1Ti"}), 60, {"cpu": "1", "memory": "64Gi"}),
        (Size(count=0, resource={"cpu": "0"}), None, {}),
    ],
)
async def test_answers_are_clipped(
    standin: StandIn, optimizer: BrainOptimizer, sizes: Size, count: int | None, resource: dict[str, str]
) -> None:
    standin.body = msgspec.json.encode(Sizes(groups={"worker": sizes}))
    group = (await optimizer.plan(QUESTION)).groups["worker"]
    assert (group.count, group.resource.manifest()) == (count, resource)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": 404, "body": msgspec.json.encode(PROBLEM)}, "refuses: Not here: this Brain knows no"),
        ({"status": 502, "body": b"<html>"}, "answers what no Brain says (HTTP 502)"),
        ({"body": b'{"groups": 7}'}, "answers what no Brain says (HTTP 200)"),
        ({"body": b'{"groups": {"worker": {"resource": {"cpu": "many"}}}}'}, "an amount that cannot be read"),
        ({"body": b" " * (module.LARGEST + 2)}, "answers with more than"),
        ({"silent": True}, "does not answer within"),
    ],
)
async def test_what_is_no_answer_says_why(
    standin: StandIn,
    optimizer: BrainOptimizer,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    words: str,
) -> None:
    for name, value in change.items():
        setattr(standin, name, value)
    if standin.silent:
        monkeypatch.setattr(module, "SECONDS", 0.1)
    with pytest.raises(OptimizerError, match=words.replace("(", r"\(").replace(")", r"\)")):
        await optimizer.plan(QUESTION)


async def test_the_job_decides_alone_while_brain_is_away(standin: StandIn, optimizer: BrainOptimizer) -> None:
    both = WithStandIn(optimizer, LocalOptimizer())
    start = replace(QUESTION, stage=Stage.CREATE, job=QUESTION.job.but(roles={"worker": Role(least=3)}))
    start = replace(start, placed=start.placed.but(sizes={}))
    standin.status = 503
    plan = await both.plan(start)
    assert plan.groups["worker"].count == 3
    assert "so the job decides alone: replicas is not set" in plan.reason
    standin.status = 200
    assert (await both.plan(start)).groups["worker"].count == 4


async def test_the_job_decides_alone_without_a_token_for_brain(standin: StandIn, tmp_path: Path) -> None:
    """Secrets of jobs that are older than Brain have none, and a file of bytes is none."""
    file, start = tmp_path / "brain-token", replace(QUESTION, stage=Stage.CREATE)
    for words in ("No such file", "can't decode"):
        async with ClientSession() as session:
            first = BrainOptimizer(Brain("127.0.0.1:9", file.read_text, session))
            plan = await WithStandIn(first, LocalOptimizer()).plan(start)
        assert "the token for it cannot be read" in plan.reason
        assert words in plan.reason
        assert "so the job decides alone" in plan.reason
        file.write_bytes(b"\xff\xfe")
    assert not standin.asked


async def test_records_are_reported_once_and_kept_while_brain_is_away(standin: StandIn, brain: Brain) -> None:
    job = Job(spec=Spec(job="digits"), scaling=Scaling(records=samples((1, 10))))
    known = [job]
    reporter = Reporter(brain, lambda: known[-1], cast(Clock, None), cast(Metrics, None))
    standin.status, standin.body = 503, b"{}"
    reporter.look()
    await reporter.send()
    standin.status, standin.body = 200, msgspec.json.encode(Empty())
    reporter.look()
    await reporter.send()
    await reporter.send()
    told = [msgspec.json.decode(body, type=TellStatistics) for _, _, body in standin.asked]
    assert [len(each.records) for each in told] == [3, 3]
    later = [
        record.but(at=NOW + timedelta(minutes=n))
        for n in range(1, KEPT + 11)
        for record in job.scaling.records[:1]
    ]
    known.append(job.but(scaling=Scaling(records=tuple(later))))
    reporter.look()
    await reporter.send()
    last = msgspec.json.decode(standin.asked[-1][2], type=TellStatistics)
    assert (len(last.records), last.dropped, last.records[-1].at) == (KEPT, 10, later[-1].at)
