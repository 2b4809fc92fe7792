"""di-server under load: coordinators that poll once a second, as stock DI-engine does.

A devcluster without kubelets has the DIJobs and their pods; di-server and the callers are processes.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import aiohttp
from typer import Option

from benchmarks.clients.load import all_of
from benchmarks.commands import play
from benchmarks.figures import Sheet, number, quantile, show
from elasticjob.api.diengine import pods
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.diengine.names import Role, coordinator
from elasticjob.api.diengine.pods import Server
from elasticjob.controllers.install import install
from elasticjob.devcluster import DevCluster
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import POD
from lab import programs
from lab.processes import Dialogue

TEMPLATE = {"spec": {"schedulerName": "nobody", "containers": [{"name": "di-container", "image": "none"}]}}
ROLES = (Role.COORDINATOR, Role.COLLECTOR, Role.COLLECTOR, Role.LEARNER)


async def fill(client: Client, jobs: int) -> None:
    """Make DIJobs with a coordinator, two collectors and a learner each."""
    spec = {role: {"template": TEMPLATE} for role in ("coordinator", "collector", "learner")}

    async def one(number: int) -> None:
        manifest = {"metadata": {"name": f"job-{number}"}, "spec": spec}
        job = await client.create(DIJOB, manifest, "default")
        for index, role in enumerate(ROLES):
            name = coordinator(f"job-{number}") if not index else f"job-{number}-{role}-0000{index}"
            await client.create(POD.untyped(), pods.pod(job, role, name, Server(), TEMPLATE), "default")

    await all_of([partial(one, number) for number in range(jobs)])


async def poll(url: str, jobs: int, seconds: float) -> list[float]:
    """Call for each job once a second, evenly spread; returns latencies in seconds."""
    latencies = list[float]()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(number: int) -> None:
            await asyncio.sleep(number / jobs)
            query = f"{url}/v1alpha1/replicas?namespace=default&coordinator=job-{number}-coordinator"
            until = time.perf_counter() + seconds
            while (began := time.perf_counter()) < until:
                async with session.get(query, data=b"{}") as answer:
                    found = await answer.json()
                assert len(found["data"]["collectors"]) == 2
                latencies.append(time.perf_counter() - began)
                await asyncio.sleep(max(0.0, 1 - (time.perf_counter() - began)))

        await asyncio.gather(*(one(number) for number in range(jobs)))
    return latencies


async def measure(jobs: int, seconds: float) -> dict[str, float]:
    """Return the figures of one di-server under this load."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        async with DevCluster(folder, nodes=[]) as cluster, Client(cluster.config()) as client:
            await install(client)
            await fill(client, jobs)
            async with programs.di_server(cluster.kubeconfig, folder) as server:
                before, began = server.cpu_seconds, time.perf_counter()
                words = ("poll", server.url, str(jobs), str(seconds))
                command = (sys.executable, "-m", "benchmarks.services.di_server", *words)
                async with Dialogue("calls", command, folder) as calling:
                    latencies = await asyncio.to_thread(calling.result)
                took = time.perf_counter() - began
                return {
                    "calls/s": len(latencies) / took,
                    "p50, ms": 1000 * quantile(latencies, 0.5),
                    "p99, ms": 1000 * quantile(latencies, 0.99),
                    "longest, ms": 1000 * max(latencies),
                    "cores": (server.cpu_seconds - before) / took,
                    "MB": server.rss / 1e6,
                }


async def main(
    jobs: Annotated[int, Option(min=1)] = 1000,
    seconds: Annotated[float, Option(min=1)] = 60.0,
    quick: bool = False,
) -> None:
    """Measure, and print the table; quick: 100 coordinators, 5 seconds, to see whether it works."""
    jobs, seconds = (100, 5.0) if quick else (jobs, seconds)
    figures = await measure(jobs, seconds)
    show(Sheet((f"{jobs:,} coordinators", *figures), [["di-server", *map(number, figures.values())]]))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["poll", url, jobs, seconds]:
            print(asyncio.run(poll(url, int(jobs), float(seconds))))
        case _:
            play(main)
