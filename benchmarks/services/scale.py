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

    python -m benchmarks.services.scale --jobs 100,300,1000
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final
from urllib.request import urlopen

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from typer import Exit, Option

from benchmarks import figures
from benchmarks.clients.load import Plain, all_of
from benchmarks.clients.plane import TooLate, machine, pretended, seen
from benchmarks.commands import chosen, numbers, play
from benchmarks.figures import NONE, Sheet, growth, number
from benchmarks.services.crowds import PEERS, PODS, SHAPES, Crowd
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.conditions import is_true
from elasticjob.kube.objects.views import NODE, POD, Node
from lab import programs
from lab.clusters.plane.audit import Audited
from lab.clusters.plane.controlplane import ControlPlane
from lab.processes import Process, say

MACHINES: Final = 40
PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
PATIENCE: Final = 600.0
"""Seconds that a row may take: what a slow machine takes is a figure, too."""
OPERATOR: Final = "elasticjob-operator"
SELDOM: Final = 0.1
"""Writes per job that are not worth a line."""


@dataclass(frozen=True)
class Cost:
    """The requests of the operator by method, its passes by controller, and what each program has used."""

    requests: Counter[str] = field(default_factory=Counter)
    passes: Counter[str] = field(default_factory=Counter)
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    megabytes: Mapping[str, float] = field(default_factory=dict)

    def since(self, before: Cost) -> Cost:
        """Return what came since then; memory is that of now."""
        used = {name: used - before.cpu_seconds.get(name, 0.0) for name, used in self.cpu_seconds.items()}
        return Cost(self.requests - before.requests, self.passes - before.passes, used, self.megabytes)


@dataclass(frozen=True)
class Taken:
    """The cost of creating a number of jobs."""

    jobs: int
    seconds: float
    creating_seconds: float
    pods_seconds: float  # until all pods run, whether or not their job says so yet
    writes: Mapping[str, int]  # of everybody, "who verb resource"
    cost: Cost


@dataclass
class Stage:
    """A control plane with pretended machines and, unless it is None, the operator at work."""

    plane: ControlPlane
    server: Plain
    client: Client
    operator: Process | None = None

    def cost(self) -> Cost:
        """Return the cost so far."""
        there = {name: self.plane.programs[name] for name in PROGRAMS}
        says = ""
        if self.operator:
            there["operator"] = self.operator
            with urlopen(f"{self.operator.url}/metrics", timeout=60) as answer:
                says = answer.read().decode()
        return Cost(
            counted(says, "rest_client_requests_total", "method"),
            counted(says, "controller_runtime_reconcile_total", "controller"),
            {name: each.cpu_seconds for name, each in there.items()},
            {name: each.rss / 1e6 for name, each in there.items()},
        )


def counted(exposition: str, name: str, label: str) -> Counter[str]:
    """Return the totals of one counter in a Prometheus exposition, by one of its labels."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name == name:
                found[sample.labels[label]] += int(sample.value)
    return found


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
    machines = (machine(f"machine-{number:03}") for number in range(MACHINES))
    async with pretended(folder, machines) as (plane, server, client):
        async with seen(client, NODE, _takes_pods) as ready:  # no pod is placed before
            await ready.all(MACHINES, "machines", PATIENCE)
        bare = Stage(plane, server, client)
        with serving(bare) if operator else nullcontext(bare) as on:
            yield on


@contextmanager
def serving(on: Stage) -> Iterator[Stage]:
    """Run the operator while the block lasts; it is ready."""
    with programs.operator(on.plane.kubeconfig, on.plane.folder) as program:
        yield replace(on, operator=program)


def _takes_pods(machine: Node) -> bool:
    return is_true(machine.status.conditions, "Ready") and not machine.spec.taints


async def many(on: Stage, crowd: Crowd, jobs: int) -> Taken:
    """Create so many jobs, or their pods only, and wait until all of them run."""
    before, logged = on.cost(), on.plane.audit_end()
    async with (
        seen(on.client, POD, lambda pod: bool(pod.status.phase == "Running")) as pods,
        seen(on.client, ELASTICJOB, runs) if on.operator else nullcontext() as all_say,
    ):
        say(f"  {jobs} jobs, {crowd.name}")
        began = time.monotonic()
        creating = await all_of(
            [partial(on.server.send, "POST", path, made) for path, made in crowd.creations(jobs)]
        )
        pods_run = await pods.all(jobs * PODS, "pods", PATIENCE)
        done = await all_say.all(jobs, "jobs", PATIENCE) if all_say else pods_run
    cost, writes = on.cost().since(before), writes_in(on.plane.audit(logged))
    return Taken(jobs, done - began, creating, pods_run - began, writes, cost)


def runs(job: ElasticJob) -> bool:
    """Whether a job's status reports all of its nodes as running."""
    statuses = job.status.replica_statuses.values()
    whole = bool(statuses) and all(0 < role.desired == role.active for role in statuses)
    return whole and is_true(job.status.conditions, "Running")


def sheet(shape: Crowd, runs: Sequence[Taken], peers: Mapping[str, Taken] | None = None) -> Sheet:
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
    return f"CPU seconds of {who}", lambda taken: taken.cost.cpu_seconds.get(who, 0.0)


def _rss(who: str) -> tuple[str, Figure]:
    return f"RSS of {who}, MB", lambda taken: taken.cost.megabytes.get(who, 0.0)


def _peer(figure: Figure, taken: Taken) -> str:
    """A figure of a peer; – for what an operator would do, which it does not have."""
    return number(value) if (value := figure(taken)) else NONE


def _writes(taken: Taken, who: str = "") -> int:
    return sum(count for what, count in taken.writes.items() if what.startswith(who))


_FIGURES: Final[tuple[tuple[str, Figure], ...]] = (
    ("seconds until all run", lambda taken: taken.seconds),
    ("of which until all are created", lambda taken: taken.creating_seconds),
    ("of which until all pods run", lambda taken: taken.pods_seconds),
    ("requests of the operator, per job", lambda taken: sum(taken.cost.requests.values()) / taken.jobs),
    ("of which GET", lambda taken: taken.cost.requests.get("GET", 0) / taken.jobs),
    ("passes of its controllers, per job", lambda taken: sum(taken.cost.passes.values()) / taken.jobs),
    ("writes of the operator, per job", lambda taken: _writes(taken, OPERATOR) / taken.jobs),
    ("writes of everybody, per job", lambda taken: _writes(taken) / taken.jobs),
    ("writes of everybody, per second", lambda taken: _writes(taken) / taken.seconds),
    (
        "operator CPU ms, per job",
        lambda taken: taken.cost.cpu_seconds.get("operator", 0.0) / taken.jobs * 1e3,
    ),
    ("CPU ms of everybody, per job", lambda taken: sum(taken.cost.cpu_seconds.values()) / taken.jobs * 1e3),
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
        async with stage(Path(folder, "plane"), operator=crowd.ours) as on:
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
        """Measure one more number of jobs. What comes too late is said, and counts as failed."""
        try:
            taken = asyncio.run(measured(crowd, jobs))
        except TooLate as error:
            say(f"  {jobs} jobs, {crowd.name}: {error}")
            self.failed = True
            return
        if crowd.ours:
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

    def json(self) -> bytes:
        """Return all figures."""
        return msgspec.json.format(msgspec.json.encode({**self.runs, "peers": self.peers}), indent=1)


def main(
    quick: Annotated[bool, Option("--quick", help="5 and 10 jobs: whether it works, not how fast")] = False,
    jobs: Annotated[str, Option(help="how many, comma-separated (100,300,1000)")] = "",
    shape: Annotated[str, Option(help=f"with a master per job, or without: {' or '.join(SHAPES)}")] = "",
    peers: Annotated[bool, Option("--peers/--no-peers", help="or nothing but our operator")] = True,
    json: Annotated[Path | None, Option(help="write all figures there, too")] = None,
) -> None:
    """Measure and print the tables, also those of earlier measurements after an error."""
    sizes = numbers(jobs or ("5,10" if quick else "100,300,1000"))
    shapes, found = chosen(shape, SHAPES), Found()
    try:
        for name in shapes:
            for size in sizes if name == shapes[0] else sizes[-1:]:
                found.measure(SHAPES[name], size)
        for peer in PEERS if peers else ():
            found.measure(peer, sizes[-1])
    finally:
        found.show()
        if json:
            json.write_bytes(found.json())
    if found.failed:
        raise Exit(1)


if __name__ == "__main__":
    play(main)
