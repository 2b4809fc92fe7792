"""di-server under load: coordinators that poll once a second, as stock DI-engine does.

python -m benchmarks.services.di_server [--jobs 1000] [--seconds 60]

A devcluster without kubelets has the DIJobs and their pods; di-server and the callers are processes.
Printed: calls a second, p50, p99 and the longest in ms, processor time and memory of di-server.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp

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
AT_ONCE = 16


@dataclass(frozen=True)
class Load:
    """What was measured."""

    calls: int
    seconds: float
    latencies: list[float]
    cores: float
    megabytes: float

    def text(self) -> str:
        """Return it as one line."""
        found = sorted(self.latencies)
        p50, p99, longest = (1000 * found[int(share * (len(found) - 1))] for share in (0.5, 0.99, 1.0))
        return (
            f"{self.calls / self.seconds:.0f} calls/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
            f"longest {longest:.0f} ms, "
            f"{self.cores:.2f} cores, {self.megabytes:.0f} MB"
        )


async def fill(client: Client, jobs: int) -> None:
    """Make DIJobs with a coordinator, two collectors and a learner each."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with slots:
            spec = {role: {"template": TEMPLATE} for role in ("coordinator", "collector", "learner")}
            manifest = {"metadata": {"name": f"job-{number}"}, "spec": spec}
            job = await client.create(DIJOB, manifest, "default")
            for index, role in enumerate(ROLES):
                name = coordinator(f"job-{number}") if not index else f"job-{number}-{role}-0000{index}"
                await client.create(POD.untyped(), pods.pod(job, role, name, Server(), TEMPLATE), "default")

    await asyncio.gather(*(one(number) for number in range(jobs)))


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


async def measure(jobs: int, seconds: float) -> Load:
    """Return what one di-server does under this load."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        async with DevCluster(folder, nodes=[]) as cluster, Client(cluster.config()) as client:
            await install(client)
            await fill(client, jobs)
            async with programs.di_server(cluster.kubeconfig, folder) as server:
                before, began = server.cpu_seconds, time.perf_counter()
                module = (sys.executable, "-m", "benchmarks.services.di_server", "--poll", server.url)
                flags = ("--jobs", str(jobs), "--seconds", str(seconds))
                async with Dialogue("calls", (*module, *flags), folder) as calling:
                    latencies = await asyncio.to_thread(calling.result)
                took = time.perf_counter() - began
                used = server.cpu_seconds - before
                return Load(len(latencies), took, latencies, used / took, server.rss / 1e6)


def main() -> None:
    """Measure, or be the callers of a measurement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--poll", default="", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="100 jobs, 5 seconds: whether it works")
    options = parser.parse_args()
    if options.quick:
        options.jobs, options.seconds = 100, 5
    if options.poll:
        print(asyncio.run(poll(options.poll, options.jobs, options.seconds)))
        return
    print(f"{options.jobs} coordinators:", asyncio.run(measure(options.jobs, options.seconds)).text())


if __name__ == "__main__":
    main()
