"""`make bench-scale`: many jobs at once through a real control plane, on nodes that only pretend (kwok).

For each number of jobs a control plane is started (etcd, kube-apiserver, kube-controller-manager,
kube-scheduler, kwok) and the real `elasticjob operator` with its webhooks beside it. All jobs are created as
fast as the server takes them. Measured is the time from the first create until the last job says that all of
its nodes run: the condition Running is true, and as many workers are active as it wants. kwok makes a pod
Running and ready as soon as it is scheduled; no container exists, no image is pulled, nothing trains.

- *master*: jobs as they are by default (AllreduceStrategy): a master pod and 3 workers.
- *local*: `distributionStrategy: Local`, 4 workers and no master.

Then 30 of a job's 32 workers are deleted at once, without grace: until the API server has 30 new ones, and
until they run.

    python -m benchmarks.scale [--quick] [--jobs 100,300,1000] [--shape master|local|both] [--json FILE]
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from benchmarks import figures
from benchmarks.figures import NONE, Sheet, growth, number
from benchmarks.load import Manifest, Plain, all_of, plain
from benchmarks.programs import (
    Program,
    Usage,
    end_on_sigterm,
    free_port,
    running,
    say,
    usage,
    wait_until_ready,
)
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.kube.cache import Cache
from elasticjob.kube.client import Client
from elasticjob.kube.conditions import is_true
from elasticjob.kube.informer import Informer
from elasticjob.kube.objects import POD
from elasticjob.kube.store import Change
from hack.cluster.audit import Audited
from hack.cluster.controlplane import ControlPlane

NAMESPACE: Final = "bench"
MACHINES: Final = 40
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
LOST: Final = 30
PATIENCE: Final = 240.0
OPERATOR: Final = "elasticjob-operator"
SELDOM: Final = 0.1
"""Writes per job that are not worth a line."""


@dataclass(frozen=True)
class Shape:
    """What the jobs are like: how many workers, how many pods with the master."""

    name: str
    strategy: str
    workers: int
    pods: int

    def manifest(self, name: str, workers: int | None = None) -> Manifest:
        """Return a job of this shape."""
        container = {
            "name": "main",
            "image": "registry.example.com/team/trainer:1",
            "command": ["elasticjob", "run", "train.py"],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        }
        worker = {"replicas": workers or self.workers, "template": {"spec": {"containers": [container]}}}
        return {
            "apiVersion": ELASTICJOB.api_version,
            "kind": ELASTICJOB.name,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"distributionStrategy": self.strategy, "replicaSpecs": {"worker": worker}},
        }


SHAPES: Final[Mapping[str, Shape]] = {
    shape.name: shape for shape in (Shape("master", "AllreduceStrategy", 3, 4), Shape("local", "Local", 4, 4))
}


@dataclass(frozen=True)
class Taken:
    """What so many jobs took."""

    jobs: int
    seconds: float
    creating_seconds: float
    requests: Mapping[str, int]  # of the operator, by method
    passes: Mapping[str, int]  # of the operator, by controller
    writes: Mapping[str, int]  # of everybody, "who verb resource"
    cpu_seconds: Mapping[str, float]
    megabytes: Mapping[str, float]


@dataclass(frozen=True)
class Lost:
    """How long pods that were lost took to be made again, and to run."""

    deleting_seconds: float  # until the API server had answered the last deletion
    made_seconds: float
    running_seconds: float

    def __str__(self) -> str:
        return (
            f"deleted in {self.deleting_seconds:.2f} s, made again after {self.made_seconds:.2f} s, "
            f"running after {self.running_seconds:.2f} s"
        )


@dataclass
class Stage:
    """A control plane with pretended machines and the operator at work."""

    plane: ControlPlane
    program: Program
    probes: str
    server: Plain
    client: Client

    def usage(self) -> dict[str, Usage]:
        """Return what each program has used so far."""
        pids = {name: self.plane.pid(name) for name in PROGRAMS} | {"operator": self.program.process.pid}
        return {name: usage(pid) for name, pid in pids.items()}

    def metrics(self) -> str:
        """Return what the operator says of itself, as Prometheus reads it."""
        with urlopen(f"http://{self.probes}/metrics", timeout=10) as answer:
            return str(answer.read().decode())


def counted(exposition: str, name: str, label: str) -> Counter[str]:
    """Return the totals of one counter in a Prometheus exposition, by one of its labels."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name == name:
                found[sample.labels[label]] += int(sample.value)
    return found


REQUESTS: Final = ("rest_client_requests_total", "method")
PASSES: Final = ("controller_runtime_reconcile_total", "controller")


def writes_in(audited: Iterable[Audited]) -> Counter[str]:
    """Return who wrote what how often: "who verb resource"."""
    found: Counter[str] = Counter()
    for request in audited:
        who = request.agent.partition("/")[0]
        what = "/".join(filter(None, (request.resource, request.subresource)))
        found[f"{who} {request.verb} {what}"] += 1
    return found


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Stage]:
    """Start everything."""
    say("  starting a control plane")
    with ControlPlane(folder, scheduler=True, kwok=True) as plane:
        async with plain(plane.kubeconfig, "bench-user") as server, Client(plane.config()) as client:
            await server.namespace(NAMESPACE)
            await all_of([_machine(server, number) for number in range(MACHINES)])
            probes = f"127.0.0.1:{free_port()}"
            flags = (
                "--kubeconfig",
                str(plane.kubeconfig),
                "--install",
                "--webhook-port",
                "0",
                "--probes",
                probes,
            )
            with running("elasticjob.cli", "operator", *flags) as program:
                await asyncio.to_thread(wait_until_ready, program, f"http://{probes}/readyz")
                yield Stage(plane, program, probes, server, client)


def _machine(server: Plain, number: int) -> Callable[[], Any]:
    name = f"machine-{number:03}"
    metadata = {
        "name": name,
        "annotations": {"kwok.x-k8s.io/node": "fake"},
        "labels": {"kubernetes.io/hostname": name},
    }
    return lambda: server.send(
        "POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    )


async def many(on: Stage, shape: Shape, jobs: int) -> Taken:
    """Create so many jobs and wait until all of them run."""
    waiting = {f"job-{number:04}" for number in range(jobs)}
    done = asyncio.Event()

    def changed(cache: Cache[ElasticJob], change: Change) -> None:
        if change.new and change.new.key.name in waiting and runs(cache.view(change.new)):
            waiting.discard(change.new.key.name)
            if not waiting:
                done.set()

    before, said, logged = on.usage(), on.metrics(), len(on.plane.audit())
    path = ELASTICJOB.path(NAMESPACE)
    async with _followed(on.client, ELASTICJOB, changed):
        say(f"  {jobs} jobs, {shape.name}")
        began = time.monotonic()
        creations = [partial(on.server.send, "POST", path, shape.manifest(name)) for name in sorted(waiting)]
        creating = await all_of(creations)
        await _within(
            done, lambda: f"{len(waiting)} of {jobs} jobs do not run, such as {sorted(waiting)[:3]}"
        )
        took = time.monotonic() - began
    after, says = on.usage(), on.metrics()
    return Taken(
        jobs,
        took,
        creating,
        counted(says, *REQUESTS) - counted(said, *REQUESTS),
        counted(says, *PASSES) - counted(said, *PASSES),
        writes_in(on.plane.audit()[logged:]),
        {name: after[name].cpu_seconds - before[name].cpu_seconds for name in after},
        {name: after[name].rss / 1e6 for name in after},
    )


def runs(job: ElasticJob) -> bool:
    """Whether a job says that all of its nodes run."""
    said = job.status.replica_statuses.values()
    whole = bool(said) and all(0 < role.desired == role.active for role in said)
    return whole and is_true(job.status.conditions, "Running")


async def lose(on: Stage, shape: Shape) -> Lost:
    """Delete most pods of a large job at once, and wait for new ones."""
    size, name = LOST + 2, "large"
    running: set[str] = set()
    made: dict[str, float] = {}
    all_run, all_made = asyncio.Event(), asyncio.Event()
    wanted = size

    def changed(cache: Cache[Any], change: Change) -> None:
        item = change.new
        if item is None or not item.key.name.startswith(f"{name}-worker"):
            return
        made.setdefault(item.meta.uid, time.monotonic())
        if cache.view(item).status.phase == "Running":
            running.add(item.meta.uid)
        if len(made) == wanted:
            all_made.set()
        if len(running) == wanted:
            all_run.set()

    async with _followed(on.client, POD, changed) as pods:
        await on.server.send("POST", ELASTICJOB.path(NAMESPACE), shape.manifest(name, size))
        await _within(all_run, lambda: f"{len(running)} of {size} pods run")
        chosen = sorted(pod.metadata.name for pod in pods.list() if pod.metadata.uid in running)[:LOST]
        wanted = size + LOST
        all_run.clear()
        all_made.clear()
        say(f"  {LOST} pods are lost")
        began = time.monotonic()
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        deletions = [partial(on.server.send, "DELETE", POD.path(NAMESPACE, pod), options) for pod in chosen]
        deleting = await all_of(deletions, at_once=LOST)
        await _within(all_made, lambda: f"{len(made) - size} of {LOST} pods were made again")
        await _within(all_run, lambda: f"{len(running) - size} of {LOST} new pods run")
        return Lost(deleting, max(made.values()) - began, time.monotonic() - began)


@asynccontextmanager
async def _followed(
    client: Client, kind: Any, changed: Callable[[Cache[Any], Change], None]
) -> AsyncIterator[Cache[Any]]:
    """A cache of a kind that is told of, while the block lasts."""
    cache: Cache[Any] = Cache(kind, NAMESPACE)
    cache.subscribe(lambda change: changed(cache, change))
    watching = asyncio.create_task(Informer(client, cache).run())
    try:
        await cache.wait_synced()
        yield cache
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def _within(event: asyncio.Event, late: Callable[[], str]) -> None:
    try:
        await asyncio.wait_for(event.wait(), PATIENCE)
    except TimeoutError:
        raise TimeoutError(f"after {PATIENCE:.0f} s {late()}") from None


def sheet(shape: Shape, runs: Sequence[Taken]) -> Sheet:
    """Return what the jobs of one shape took, a column per number of jobs, and how each figure grows."""
    rows = [_row(name, runs, map(figure, runs)) for name, figure in _FIGURES]
    for who in ("operator", *PROGRAMS):
        rows.append(_row(f"CPU seconds of {who}", runs, (run.cpu_seconds[who] for run in runs)))
    for who in ("operator", *PROGRAMS):
        rows.append(_row(f"RSS of {who}, MB", runs, (run.megabytes[who] for run in runs)))
    grows = ["grows as jobs^"] if len(runs) > 1 else []
    return Sheet(
        [f"{shape.strategy}, {shape.pods} pods each", *(f"{run.jobs:,} jobs" for run in runs), *grows], rows
    )


def _writes(taken: Taken, who: str = "") -> int:
    return sum(count for what, count in taken.writes.items() if what.startswith(who))


_FIGURES: Final[tuple[tuple[str, Callable[[Taken], float]], ...]] = (
    ("seconds until all run", lambda taken: taken.seconds),
    ("of which until all are created", lambda taken: taken.creating_seconds),
    ("requests of the operator, per job", lambda taken: sum(taken.requests.values()) / taken.jobs),
    ("of which GET", lambda taken: taken.requests.get("GET", 0) / taken.jobs),
    ("passes of its controllers, per job", lambda taken: sum(taken.passes.values()) / taken.jobs),
    ("writes of the operator, per job", lambda taken: _writes(taken, OPERATOR) / taken.jobs),
    ("writes of everybody, per job", lambda taken: _writes(taken) / taken.jobs),
    ("writes of everybody, per second", lambda taken: _writes(taken) / taken.seconds),
    ("operator CPU ms, per job", lambda taken: taken.cpu_seconds["operator"] / taken.jobs * 1e3),
)


def _row(name: str, runs: Sequence[Taken], figures: Iterable[float]) -> list[str]:
    values = list(figures)
    if len(runs) < 2:
        return [name, *map(number, values)]
    grows = f"{growth([run.jobs for run in runs], values):.2f}" if min(values) > 0 else NONE
    return [name, *map(number, values), grows]


def writers(taken: Taken) -> Sheet:
    """Return who wrote what, per job, the most frequent first."""
    often = sorted(taken.writes.items(), key=lambda pair: -pair[1])
    rows = [[what, f"{count / taken.jobs:.2f}"] for what, count in often if count >= taken.jobs * SELDOM]
    return Sheet([f"writes at {taken.jobs:,} jobs", "per job"], rows)


async def measured(shape: Shape, jobs: int, *, lost: bool) -> tuple[Taken, Lost | None]:
    """Measure one number of jobs on a control plane of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as folder:
        async with stage(Path(folder, "plane")) as on:
            taken = await many(on, shape, jobs)
            say(f"  {taken.seconds:.1f} s")
            return taken, await lose(on, shape) if lost else None


def main() -> None:
    """Measure, print the tables."""
    parser = ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="5 and 10 jobs: whether it works, not how fast")
    parser.add_argument("--jobs", default="", help="how many, comma-separated (100,300,1000)")
    parser.add_argument(
        "--shape", choices=[*SHAPES, "both"], default="both", help="with a master per job, or without"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    args = parser.parse_args()
    end_on_sigterm()
    sizes = [int(word) for word in (args.jobs or ("5,10" if args.quick else "100,300,1000")).split(",")]
    began, found = time.monotonic(), dict[str, list[Taken]]()
    losses: dict[str, Lost] = {}
    failed = False
    for shape in (shape for shape in SHAPES.values() if args.shape in (shape.name, "both")):
        for jobs in sizes if shape.name == "master" or args.shape != "both" else sizes[-1:]:
            try:
                taken, lost = asyncio.run(measured(shape, jobs, lost=jobs == sizes[-1]))
            except TimeoutError as error:
                say(f"  {jobs} jobs, {shape.name}: {error}")
                failed = True
                continue
            found.setdefault(shape.name, []).append(taken)
            if lost:
                losses[shape.name] = lost
    for name, runs in found.items():
        figures.show(sheet(SHAPES[name], runs))
        print()
        figures.show(writers(runs[-1]))
        print()
    for name, lost in losses.items():
        print(f"{LOST} workers of one job lost at once ({name}, beside {sizes[-1]:,} jobs): {lost}")
    print(f"\n{figures.machine()}; {time.monotonic() - began:.0f} s; made by")
    print(shlex.join(["python", "-m", "benchmarks.scale", *sys.argv[1:]]))
    if args.json:
        report = {name: [asdict(run) for run in runs] for name, runs in found.items()}
        args.json.write_text(
            json.dumps(report | {"lost": {n: asdict(lost) for n, lost in losses.items()}}, indent=1)
        )
    sys.exit(failed)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # all that was started has been ended by now
        sys.exit(130)
