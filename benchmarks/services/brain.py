"""Brain with a long history: latency of its answers, memory, growth, on SQLite and PostgreSQL.

`python -m benchmarks.services.brain` fills a database with jobs of 200 scenarios (a sample of 5 nodes each
minute, pods, decisions), a tenth of them running, starts `elasticjob brain` on it, and asks as masters and
people do, one at a time, and eight at once. The growth is k of latency = c · jobs^k.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import aiohttp
import asyncpg
import msgspec
from typer import Option

from benchmarks.commands import play
from benchmarks.figures import Sheet, growth, number, peak, quantile, show
from elasticjob.api.rpc.brain import AskSizes, TellStatistics, job_token
from elasticjob.api.rpc.message import PREFIX, Request
from elasticjob.api.sizes.facts import JobFacts, Placement, Sample, Stage, Use
from elasticjob.api.sizes.role import Role
from elasticjob.brain.store import Record, SeenJob, SeenPod, Store, open_store
from lab import programs
from lab.processes import say
from lab.programs import postgres

NOW: Final = datetime.now(UTC)
SCENARIOS: Final = 200
RUNNING: Final = 10
"""One job in so many runs."""
GIB: Final = 1 << 30
CLIENTS: Final = 8
KEY: Final = b"the key of this benchmark"
PLACED: Final = Placement(sizes={"worker": 4}, resources={"worker": {"cpu": "8", "memory": "16Gi"}})


@dataclass
class Filled:
    """A database with jobs: how many, and the uids of those that run."""

    url: str
    jobs: int = 0
    running: list[str] = field(default_factory=list)


def facts(at: int) -> JobFacts:
    """Return what a master says of a job."""
    return JobFacts(
        namespace=f"team-{at % 20}",
        name=f"job-{at}",
        uid=f"uid-{at}",
        strategy="AllreduceStrategy",
        roles={"worker": Role(least=1, most=64)},
        limits={"cpu": "512", "memory": "2Ti"},
    )


def samples(at: int, count: int) -> list[Sample]:
    """Return a job's samples, one a minute, four workers and a master."""
    chance = random.Random(at)
    names = [("master", f"job-{at}-master-0"), *(("worker", f"job-{at}-worker-{i}") for i in range(4))]
    return [
        Sample(
            at=NOW - timedelta(minutes=count - minute),
            workers=4,
            steps=chance.uniform(3, 4),
            samples=chance.uniform(300, 400),
            nodes=tuple(
                Use(
                    name=name,
                    role=role,
                    cpu=chance.uniform(4, 6),
                    memory=int(chance.uniform(6, 8) * GIB),
                    cores=8.0,
                    bytes=16 * GIB,
                )
                for role, name in names
            ),
        )
        for minute in range(count)
    ]


async def add_job(store: Store, at: int, count: int) -> bool:
    """Keep a job with all that belongs to it; return whether it runs."""
    told, runs = facts(at), at % RUNNING == 0
    ended = None if runs else NOW - timedelta(seconds=at)
    scenario = random.Random(at).randrange(SCENARIOS)
    seen = SeenJob(
        told.uid,
        told.namespace,
        told.name,
        NOW - timedelta(hours=2),
        image=f"registry.example/image:{scenario}",
        script=f"train-{scenario}.py",
        mode="cluster",
        phase="Running" if runs else "Succeeded",
        ended=ended,
        completed=not runs,
    )
    await store.see_job(seen, NOW)
    await store.tell(told, samples(at, count), NOW)
    for i in range(4):
        pod = SeenPod(
            f"pod-{at}-{i}", told.uid, f"job-{at}-worker-{i}", "worker", NOW, ended=ended, log="x" * 500
        )
        await store.see_pod(pod)
    groups = {"worker": {"count": 4, "resource": {"cpu": "8", "memory": "16Gi"}}}
    kept = Record(NOW, "Start", "worker-from-history", "a sentence", {"samples": 4}, {"groups": groups})
    await store.keep(told.uid, kept, 0)
    return runs


async def fill(filled: Filled, jobs: int, count: int, at_once: int) -> float:
    """Have so many jobs in a database; return rows written a second."""
    began, first, rows = time.perf_counter(), filled.jobs, 0
    waiting = iter(range(first, jobs))

    async def some(store: Store) -> None:
        for at in waiting:
            if await add_job(store, at, count):
                filled.running.append(f"uid-{at}")
            done = at + 1 - first
            if done % 1000 == 0:
                say(f"  {done:,} of {jobs - first:,} jobs")

    async with open_store(filled.url) as store:
        await asyncio.gather(*(some(store) for _ in range(at_once)))
    filled.jobs, rows = jobs, (jobs - first) * (count + 6)
    return rows / (time.perf_counter() - began)


async def times(request: Callable[[str], Awaitable[None]], uids: Sequence[str], clients: int) -> list[float]:
    """Return the milliseconds of a request for each of these jobs."""
    found, waiting = list[float](), iter(uids)

    async def one() -> None:
        for uid in waiting:
            began = time.perf_counter()
            await request(uid)
            found.append(1000 * (time.perf_counter() - began))

    await asyncio.gather(*(one() for _ in range(clients)))
    return found


async def ask(filled: Filled, folder: Path, requests: int) -> dict[str, list[float]]:
    """Return figures of one Brain by their names."""
    figures: dict[str, list[float]] = {}
    key = folder / "key"
    key.write_bytes(KEY)
    brain = programs.brain(None, folder, key, database=filled.url)
    async with brain, aiohttp.ClientSession() as session:
        url = brain.url

        async def post(asked: Request[Any], uid: str) -> None:
            headers = {"Authorization": f"Bearer {job_token(KEY, uid)}"}
            body = msgspec.json.encode(asked)
            async with session.post(f"{url}{PREFIX}{asked.PATH}", data=body, headers=headers) as reply:
                if reply.status != 200:
                    raise SystemExit(f"{asked.PATH}: {reply.status} {await reply.text()}")

        async def get(path: str) -> None:
            async with session.get(url + path) as reply:
                await reply.read()
                reply.raise_for_status()

        figures["resident MB at the start"] = [brain.rss / 1e6]
        chance = random.Random(len(filled.running))
        some = [chance.choice(filled.running) for _ in range(requests)]
        about = {uid: facts(int(uid.removeprefix("uid-"))) for uid in some}
        kinds: Mapping[str, Callable[[str], Awaitable[None]]] = {
            "plan at the start": lambda uid: post(
                AskSizes(job=about[uid], stage=Stage.CREATE, placed=PLACED), uid
            ),
            "plan while running": lambda uid: post(
                AskSizes(job=about[uid], stage=Stage.RUNNING, placed=PLACED, settled=True), uid
            ),
            "one sample": lambda uid: post(TellStatistics(job=about[uid], records=tuple(samples(1, 1))), uid),
            "GET a job": lambda uid: get(f"/v1/jobs/{about[uid].namespace}/{about[uid].name}"),
            "GET the newest 1,000 jobs": lambda uid: get("/v1/jobs"),
        }
        for name, kind in kinds.items():
            count = requests // 20 if "1,000" in name else requests
            for clients in (1, CLIENTS):
                figures[f"{name}, {clients} at once"] = await times(kind, some[:count], clients)
        figures["resident MB at the end"] = [brain.rss / 1e6]
        figures["resident MB at most"] = [peak(brain.pid) / 1e6]
    return figures


async def size_of(url: str) -> float:
    """Return the megabytes of a database."""
    if url.startswith("sqlite"):
        file = Path(url.removeprefix("sqlite:///"))
        return (await asyncio.to_thread(file.stat)).st_size / 1e6
    connection = await asyncpg.connect(url)
    try:
        return float(await connection.fetchval("SELECT pg_database_size(current_database())")) / 1e6
    finally:
        await connection.close()


async def measure(
    filled: Filled, folder: Path, sizes: Sequence[int], samples: int, requests: int
) -> list[dict[str, list[float]]]:
    """Return the figures at each number of jobs."""
    found = []
    for jobs in sizes:
        rate = await fill(filled, jobs, samples, 1 if filled.url.startswith("sqlite") else CLIENTS)
        figures = await ask(filled, folder, requests)
        found.append(figures | {"rows written a second": [rate], "database MB": [await size_of(filled.url)]})
    return found


def rows_of(found: Sequence[dict[str, list[float]]], jobs: int) -> list[list[str]]:
    """Return the rows of a table: a latency has its median and p99, and its growth."""
    rows = []
    for name in found[0]:
        few, many = (figures[name] for figures in found)
        if len(few) == 1:
            rows.append([name, number(few[0]), number(many[0]), "", ""])
            continue
        k = growth([jobs / 10, jobs], [quantile(few, 0.5), quantile(many, 0.5)])
        cells = (" / ".join(number(quantile(some, share)) for share in (0.5, 0.99)) for some in (few, many))
        rows.append([f"{name}, ms", *cells, f"{k:.2f}", f"{len(many)}"])
    return rows


@contextmanager
def databases(folder: Path) -> Iterator[Mapping[str, str]]:
    """Yield the URLs of two empty databases."""
    server = folder / "server"
    server.mkdir()
    folder.chmod(0o711)
    with postgres.Postgres(server) as made:
        yield {"SQLite": f"sqlite:///{folder / 'brain.db'}", "PostgreSQL": f"{made.url}/postgres"}


def main(
    jobs: Annotated[int, Option(min=10, help="jobs in the database")] = 10_000,
    samples: Annotated[int, Option(min=1, help="samples of each job")] = 60,
    requests: Annotated[int, Option(min=1, help="requests of each kind")] = 1000,
    quick: Annotated[bool, Option(help="200 jobs with 10 samples, 100 requests: whether it works")] = False,
) -> None:
    """Print one table for each database."""
    if quick:
        jobs, samples, requests = 200, 10, 100
    sizes = jobs // 10, jobs
    with tempfile.TemporaryDirectory(prefix="bench-brain-") as made, databases(Path(made)) as urls:
        for name, url in urls.items():
            say(f"{name}: {jobs:,} jobs")
            found = asyncio.run(measure(Filled(url), Path(made), sizes, samples, requests))
            heads = [name, *(f"{size:,} jobs: p50 / p99" for size in sizes), "growth", "requests"]
            show(Sheet(heads, rows_of(found, jobs)))


if __name__ == "__main__":
    play(main)
