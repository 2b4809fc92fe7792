"""`make bench-scale`: many jobs at once through a real control plane, on nodes that only pretend (kwok).

For each number of jobs a control plane is started (etcd, kube-apiserver, kube-controller-manager,
kube-scheduler, kwok) and the real `elasticjob operator` with its webhooks beside it. All jobs are created as
fast as the server takes them. Measured is the time from the first create until the last job says that all of
its nodes run: the condition Running is true, and as many workers are active as it wants. kwok makes a pod
Running and ready as soon as it is scheduled; no container exists, no image is pulled, nothing trains.

- *master*: jobs as they are by default (AllreduceStrategy): a master pod and 3 workers.
- *local*: `distributionStrategy: Local`, 4 workers and no master.

Peers, for the largest number: as many pods with the same spec and without an operator, made by Jobs of the
kube-controller-manager, and one by one by a plain client. They show how much is the control plane's own.

Writes are counted in the API server's audit log, which takes some 4 % of its processor time in every column.

    python -m benchmarks.services.scale [--quick] [--jobs 100,300,1000] [--shape master|local|both]
                               [--no-peers] [--json FILE]
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from benchmarks import figures
from benchmarks.clients import load
from benchmarks.clients.load import Plain, all_of, plain
from benchmarks.figures import NONE, Sheet, growth, number
from benchmarks.services.crowds import NAMESPACE, PEERS, SHAPES, Crowd, Shape
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.controllers.logs import configure
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.conditions import is_true
from elasticjob.kube.objects.views import NODE, POD, Node
from lab import programs
from lab.clusters.plane.audit import Audited
from lab.clusters.plane.controlplane import ControlPlane
from lab.processes import Process, end_on_sigterm, say

MACHINES: Final = 40
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
PATIENCE: Final = 600.0
"""Seconds that a row may take: what a slow machine takes is a figure, too."""
OPERATOR: Final = "elasticjob-operator"
SELDOM: Final = 0.1
"""Writes per job that are not worth a line."""


@dataclass(frozen=True)
class Usage:
    """The resources used by a process so far."""

    cpu_seconds: float
    rss: int


@dataclass(frozen=True)
class Taken:
    """The cost of creating a number of jobs."""

    jobs: int
    seconds: float
    creating_seconds: float
    pods_seconds: float  # until all pods run, whether or not their job says so yet
    requests: Mapping[str, int]  # of the operator, by method
    passes: Mapping[str, int]  # of the operator, by controller
    writes: Mapping[str, int]  # of everybody, "who verb resource"
    cpu_seconds: Mapping[str, float]
    megabytes: Mapping[str, float]


@dataclass
class Stage:
    """A control plane with pretended machines and, unless it is None, the operator at work."""

    plane: ControlPlane
    server: Plain
    client: Client
    operator: Process | None = None

    def usage(self) -> dict[str, Usage]:
        """Return what each program has used so far."""
        there = {name: self.plane.programs[name] for name in PROGRAMS}
        if self.operator:
            there["operator"] = self.operator
        return {name: Usage(each.cpu_seconds, each.rss) for name, each in there.items()}

    def metrics(self) -> str:
        """Return what the operator says of itself, as Prometheus reads it."""
        if not self.operator:
            return ""
        with urlopen(f"{self.operator.url}/metrics", timeout=60) as answer:
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
    """Return the number of writes by client: "user verb resource"."""
    found: Counter[str] = Counter()
    for request in audited:
        who = request.agent.partition("/")[0]
        what = "/".join(filter(None, (request.resource, request.subresource)))
        found[f"{who} {request.verb} {what}"] += 1
    return found


@asynccontextmanager
async def stage(folder: Path, *, operator: bool = True) -> AsyncIterator[Stage]:
    """Start everything, with or without our operator."""
    say("  starting a control plane")
    with ControlPlane(folder, scheduler=True, kwok=True) as plane:
        async with plain(plane.kubeconfig, "bench-user") as server, Client(plane.config()) as client:
            await server.namespace(NAMESPACE)
            made = (load.machine(f"machine-{number:03}") for number in range(MACHINES))
            await all_of([partial(server.send, "POST", NODE.path(), machine) for machine in made])
            await _machines_ready(client)
            if not operator:
                yield Stage(plane, server, client)
                return
            with serving(Stage(plane, server, client)) as on:
                yield on


@contextmanager
def serving(on: Stage) -> Iterator[Stage]:
    """Run the operator while the block lasts; it is ready."""
    with programs.operator(on.plane.kubeconfig, on.plane.folder) as program:
        yield replace(on, operator=program)


async def _machines_ready(client: Client) -> None:
    """Wait for what the control plane does with new machines: no pod is placed before."""
    ready = Awaited(MACHINES, "machines")
    async with followed(client, NODE, ready.seen(_takes_pods)):
        await ready.all()


def _takes_pods(machine: Node) -> bool:
    return is_true(machine.status.conditions, "Ready") and not machine.spec.taints


async def many(on: Stage, crowd: Crowd, jobs: int) -> Taken:
    """Create so many jobs, or their pods only, and wait until all of them run."""
    before, metrics, logged = on.usage(), on.metrics(), on.plane.audit_end()
    pods = Awaited(jobs * crowd.pods, "pods")
    all_say = Awaited(jobs if isinstance(crowd, Shape) else 0, "jobs")
    async with AsyncExitStack() as following:
        of_pods = pods.seen(lambda pod: bool(pod.status.phase == "Running"))
        await following.enter_async_context(followed(on.client, POD, of_pods))
        if on.operator:
            await following.enter_async_context(followed(on.client, ELASTICJOB, all_say.seen(runs)))
        say(f"  {jobs} jobs, {crowd.name}")
        began = time.monotonic()
        creating = await all_of(
            [partial(on.server.send, "POST", path, made) for path, made in crowd.creations(jobs)]
        )
        pods_run = await pods.all()
        done = max(pods_run, await all_say.all())
    after, says = on.usage(), on.metrics()
    return Taken(
        jobs,
        done - began,
        creating,
        pods_run - began,
        dict(counted(says, *REQUESTS) - counted(metrics, *REQUESTS)),
        dict(counted(says, *PASSES) - counted(metrics, *PASSES)),
        dict(writes_in(on.plane.audit(logged))),
        {name: after[name].cpu_seconds - before[name].cpu_seconds for name in after},
        {name: after[name].rss / 1e6 for name in after},
    )


class Awaited:
    """Waits until a condition holds for a number of objects."""

    def __init__(self, number: int, what: str) -> None:
        self._number = number
        self._what = what
        self._found: set[str] = set()
        self._all = asyncio.Event()
        self._at = 0.0
        self._look()

    def seen(self, is_true_of: Callable[[Any], bool]) -> Callable[[Cache[Any], Change], None]:
        """Return what a cache is to tell of changes."""

        def changed(cache: Cache[Any], change: Change) -> None:
            if change.new and change.new.meta.uid not in self._found and is_true_of(cache.view(change.new)):
                self._found.add(change.new.meta.uid)
                self._look()

        return changed

    async def all(self, patience: float = PATIENCE) -> float:
        """Wait until it is true of all; returns when that was, or for none at all 0. Raises TimeoutError."""
        try:
            await asyncio.wait_for(self._all.wait(), patience)
        except TimeoutError:
            raise TimeoutError(f"after {patience:.0f} s {self.progress()}") from None
        return self._at

    def progress(self) -> str:
        """Return how many there are, in words."""
        return f"{len(self._found)} of {self._number} {self._what} are ready"

    def _look(self) -> None:
        if len(self._found) >= self._number and not self._all.is_set():
            self._at = time.monotonic() if self._number else 0.0
            self._all.set()


def runs(job: ElasticJob) -> bool:
    """Whether a job's status reports all of its nodes as running."""
    statuses = job.status.replica_statuses.values()
    whole = bool(statuses) and all(0 < role.desired == role.active for role in statuses)
    return whole and is_true(job.status.conditions, "Running")


@asynccontextmanager
async def followed(
    client: Client, kind: Any, changed: Callable[[Cache[Any], Change], None]
) -> AsyncIterator[Cache[Any]]:
    """A cache of a kind that is told of, while the block lasts."""
    cache: Cache[Any] = Cache(kind, NAMESPACE if kind.namespaced else "")
    cache.subscribe(lambda change: changed(cache, change))
    async with load.followed(client, cache):
        yield cache


def sheet(shape: Shape, runs: Sequence[Taken], peers: Mapping[str, Taken] | None = None) -> Sheet:
    """Return what the jobs of one shape took: a column per number of jobs, how it grows, and the peers."""
    everything = [*_FIGURES, *map(_cpu, ("operator", *PROGRAMS)), *map(_rss, ("operator", *PROGRAMS))]
    beside = list((peers or {}).items())
    heads = [f"{run.jobs:,} jobs" for run in runs]
    heads += ["grows as jobs^"] if len(runs) > 1 else []
    heads += [f"{run.jobs:,} × {title}" for title, run in beside]
    rows = [
        _row(name, runs, map(figure, runs)) + [_peer(figure, run) for _, run in beside]
        for name, figure in everything
    ]
    return Sheet([shape.title, *heads], rows)


Figure = Callable[[Taken], float]


def _cpu(who: str) -> tuple[str, Figure]:
    return f"CPU seconds of {who}", lambda taken: taken.cpu_seconds.get(who, 0.0)


def _rss(who: str) -> tuple[str, Figure]:
    return f"RSS of {who}, MB", lambda taken: taken.megabytes.get(who, 0.0)


def _peer(figure: Figure, taken: Taken) -> str:
    """A figure of a peer; – for what an operator would do, which it does not have."""
    return number(value) if (value := figure(taken)) else NONE


def _writes(taken: Taken, who: str = "") -> int:
    return sum(count for what, count in taken.writes.items() if what.startswith(who))


_FIGURES: Final[tuple[tuple[str, Figure], ...]] = (
    ("seconds until all run", lambda taken: taken.seconds),
    ("of which until all are created", lambda taken: taken.creating_seconds),
    ("of which until all pods run", lambda taken: taken.pods_seconds),
    ("requests of the operator, per job", lambda taken: sum(taken.requests.values()) / taken.jobs),
    ("of which GET", lambda taken: taken.requests.get("GET", 0) / taken.jobs),
    ("passes of its controllers, per job", lambda taken: sum(taken.passes.values()) / taken.jobs),
    ("writes of the operator, per job", lambda taken: _writes(taken, OPERATOR) / taken.jobs),
    ("writes of everybody, per job", lambda taken: _writes(taken) / taken.jobs),
    ("writes of everybody, per second", lambda taken: _writes(taken) / taken.seconds),
    ("operator CPU ms, per job", lambda taken: taken.cpu_seconds.get("operator", 0.0) / taken.jobs * 1e3),
    ("CPU ms of everybody, per job", lambda taken: sum(taken.cpu_seconds.values()) / taken.jobs * 1e3),
)


def _row(name: str, runs: Sequence[Taken], figures: Iterable[float]) -> list[str]:
    values = list(figures)
    if len(runs) < 2:
        return [name, *map(number, values)]
    grows = f"{growth([run.jobs for run in runs], values):.2f}" if min(values) > 0 else NONE
    return [name, *map(number, values), grows]


def writers(taken: Taken, whose: str = "jobs") -> Sheet:
    """Return the writes per job by client, the most frequent first."""
    often = sorted(taken.writes.items(), key=lambda pair: -pair[1])
    rows = [[what, f"{count / taken.jobs:.2f}"] for what, count in often if count >= taken.jobs * SELDOM]
    return Sheet([f"writes at {taken.jobs:,} {whose}", "per job"], rows)


def compared(taken: Taken, title: str, peer: Taken) -> str:
    """Return the time until all pods run, in words, as a multiple of that of a peer."""
    times = taken.pods_seconds / peer.pods_seconds
    return f"{taken.pods_seconds:.1f} s, {times:.1f} × {peer.pods_seconds:.1f} s of {title}"


async def measured(crowd: Crowd, jobs: int) -> Taken:
    """Measure one number of jobs on a control plane of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as folder:
        async with stage(Path(folder, "plane"), operator=isinstance(crowd, Shape)) as on:
            taken = await many(on, crowd, jobs)
            say(f"  {taken.seconds:.1f} s")
            return taken


@dataclass
class Found:
    """The measurements so far."""

    runs: dict[str, list[Taken]] = field(default_factory=dict)
    peers: dict[str, Taken] = field(default_factory=dict)
    failed: bool = False

    def measure(self, crowd: Crowd, jobs: int) -> None:
        """Measure one more number of jobs. A timeout is reported and counts as failed; other errors are
        raised."""
        try:
            taken = asyncio.run(measured(crowd, jobs))
        except TimeoutError as error:
            say(f"  {jobs} jobs, {crowd.name}: {error}")
            self.failed = True
            return
        if isinstance(crowd, Shape):
            self.runs.setdefault(crowd.name, []).append(taken)
        else:
            self.peers[crowd.title] = taken

    def show(self) -> None:
        """Print the tables of what there is."""
        for name, taken in self.runs.items():
            figures.show(sheet(SHAPES[name], taken, self.peers))
            print()
            figures.show(writers(taken[-1]))
            print(
                *(f"\nall pods run after {compared(taken[-1], *peer)}" for peer in self.peers.items()), "\n"
            )
        for title, run in self.peers.items():
            figures.show(writers(run, f"× {title}"))
            print()

    def json(self) -> str:
        """Return all figures."""
        runs = {name: [asdict(run) for run in taken] for name, taken in self.runs.items()}
        peers = {title: asdict(run) for title, run in self.peers.items()}
        return json.dumps(runs | {"peers": peers}, indent=1)


def main() -> None:
    """Measure and print the tables, also those of earlier measurements after an error."""
    args = _arguments()
    end_on_sigterm()
    configure(quiet=True)
    sizes = [int(word) for word in (args.jobs or ("5,10" if args.quick else "100,300,1000")).split(",")]
    began, found = time.monotonic(), Found()
    try:
        for shape in (shape for shape in SHAPES.values() if args.shape in (shape.name, "both")):
            for jobs in sizes if shape.name == "master" or args.shape != "both" else sizes[-1:]:
                found.measure(shape, jobs)
        for peer in PEERS if args.peers else ():
            found.measure(peer, sizes[-1])
    finally:
        found.show()
        print(figures.made_by("benchmarks.services.scale", began), flush=True)
        if args.json:
            args.json.write_text(found.json())
    sys.exit(found.failed)


def _arguments() -> Namespace:
    parser = ArgumentParser(
        prog="python -m benchmarks.services.scale", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="5 and 10 jobs: whether it works, not how fast")
    parser.add_argument("--jobs", default="", help="how many, comma-separated (100,300,1000)")
    parser.add_argument(
        "--shape", choices=[*SHAPES, "both"], default="both", help="with a master per job, or without"
    )
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="nothing but our operator")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # all that was started has been ended by now
        sys.exit(130)
