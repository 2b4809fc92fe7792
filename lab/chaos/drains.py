"""`make drains`: machines of a training are drained at random; a spare takes the place of a lost node.

Each drain cordons a machine that has a pod of the job (workers, or its master), at random with or without
time for a stand-in to start, evicts its pods one by one as the job's budget allows, and uncordons it. Then
- no step is lost: each round begins with the step after the last one;
- no restart is counted, and as many workers train as before.

Then, with `spares: 1`, agents are killed: the time from the kill to the next step with all workers is shown.

    python -m lab.chaos.drains --drains 100 --losses 5 --seed 7

Pods run the code of this checkout. Exits with 1 if any of this was not so.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.cli.demo.run import following
from elasticjob.cli.laptop.laptop import Laptop, operator_of
from elasticjob.cli.story.example import FILE, Example, load
from elasticjob.cli.story.processes import main_of, of_pod
from elasticjob.cli.story.seen import Seen
from elasticjob.cli.story.steps import lost
from elasticjob.cli.story.watched import JobView
from elasticjob.devcluster import DevCluster
from elasticjob.devcluster.node.heartbeat import VirtualNode, machine_capacity
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import NotFound
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NODE, POD, Pod

MACHINES = ("m1", "m2", "m3", "m4")
WORKERS = 2
PATIENCE = 90.0
"""Seconds within which each drain, and each recovery, is over."""
STAND_IN = (0.0, 6.0)
"""Seconds between the cordon and the first eviction."""
RANK_ZERO = 0.5
"""How often the machine of rank 0 is chosen."""


@dataclass(frozen=True)
class Drained:
    """One drain: the machine, the pods that left, and how long it took until all workers trained again."""

    machine: str
    pods: tuple[str, ...]
    seconds: float


def example(name: str, record: Path, *, spares: int = 0) -> Example:
    """Return the job: as many workers as it may have, on machines of which each has room for one."""
    made = load().rename(name).recording(record).training(1_000_000)
    job: Manifest = deepcopy(made.job)
    job["spec"]["envs"]["PYTHONPATH"] = {"value": str(FILE.parents[2])}
    worker = job["spec"]["replicaSpecs"]["worker"]
    worker |= {"replicas": WORKERS, "minReplicas": 1, "maxReplicas": WORKERS, "spares": spares}
    worker["template"]["spec"]["terminationGracePeriodSeconds"] = 20
    return replace(made, job=job)


@asynccontextmanager
async def machines(state: Path) -> AsyncIterator[Laptop]:
    """Start a cluster of several machines with its operator."""
    nodes = [VirtualNode(name, machine_capacity()) for name in MACHINES]
    async with (
        DevCluster(state, nodes=nodes) as cluster,
        Client(cluster.config()) as client,
        operator_of(cluster.kubeconfig, state) as operator,
    ):
        yield Laptop(cluster.kubeconfig, client, state, operator)


async def until(watched: JobView, true: Callable[[Seen], bool]) -> None:
    """Wait until `true` is true of the job. TimeoutError after PATIENCE."""
    async with asyncio.timeout(PATIENCE):
        while not true(watched.seen):
            await watched.change()


async def drain(here: Laptop, watched: JobView, chance: random.Random) -> Drained:
    """Drain a random machine of the job, as `kubectl drain` does, and wait until all is as before."""
    key, began = watched.key, time.monotonic()
    running = [pod for pod in await pods(here, watched) if pod.status.phase == "Running"]
    first = min((pod for pod in running if "-worker-" in pod.metadata.name), key=age)  # it has rank 0
    others = sorted({pod.spec.node_name for pod in running})
    machine = first.spec.node_name if chance.random() < RANK_ZERO else chance.choice(others)
    await here.client.merge_patch(NODE, machine, {"spec": {"unschedulable": True}})
    await asyncio.sleep(chance.uniform(*STAND_IN))
    leaving = [pod for pod in await pods(here, watched) if pod.spec.node_name == machine]
    for pod in leaving:
        await evict(here, watched, pod)
    uids = {pod.metadata.uid for pod in leaving}
    await until(watched, lambda seen: not any(pod.uid in uids for pod in seen.pods))
    await here.client.merge_patch(NODE, machine, {"spec": {"unschedulable": None}})
    settled = {f"{key.name}-worker-{index}" for index in range(WORKERS)}
    await until(watched, lambda seen: {f"{key.name}-{pod.place}" for pod in seen.workers} == settled)
    after = watched.seen.step
    await until(watched, lambda seen: seen.world == WORKERS and seen.step > after + 5)
    return Drained(machine, tuple(pod.metadata.name for pod in leaving), time.monotonic() - began)


async def pods(here: Laptop, watched: JobView) -> list[Pod]:
    """Return the pods of the job that have not ended."""
    found = await here.client.list(POD, watched.key.namespace)
    prefix = f"{watched.key.name}-"
    ended = ("Succeeded", "Failed")
    return [p for p in found if p.metadata.name.startswith(prefix) and p.status.phase not in ended]


def age(pod: Pod) -> tuple[float, str]:
    """Sort key of pods: the oldest first."""
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created else 0.0, pod.metadata.name


async def evict(here: Laptop, watched: JobView, pod: Pod) -> None:
    """Evict a pod once the job's budget allows it; devcluster keeps no budgets itself."""
    name, namespace = pod.metadata.name, watched.key.namespace
    async with asyncio.timeout(PATIENCE):
        while "-worker-" in name and not await may_leave(here, watched):  # noqa: ASYNC110  # the server is asked
            await asyncio.sleep(0.2)
    about = {"name": name, "namespace": namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
    try:
        await here.client.post(POD, name, "eviction", body, namespace)
    except NotFound:  # it has left by itself
        return


async def may_leave(here: Laptop, watched: JobView) -> bool:
    """Return whether more workers are ready than the budget keeps, as the disruption controller counts."""
    resource = await here.client.get(JOBRESOURCE, watched.key.name, watched.key.namespace)
    ready = [pod for pod in await pods(here, watched) if "-worker-" in pod.metadata.name and is_ready(pod)]
    least = resource.status.min_available
    return least is not None and len(ready) > least


def is_ready(pod: Pod) -> bool:
    """Return whether a pod is ready and stays."""
    ready = any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
    return ready and pod.metadata.deletion_timestamp is None


async def lose(here: Laptop, watched: JobView, chance: random.Random) -> float:
    """Kill an agent with its worker; return the seconds until all workers train again."""
    await until(watched, lambda seen: len(seen.workers) == WORKERS + 1 and seen.world == WORKERS)
    await asyncio.sleep(8)  # the node that was made again is warm
    oldest = sorted((pod for pod in await pods(here, watched) if "-worker-" in pod.metadata.name), key=age)
    member = chance.choice(oldest[:WORKERS]).metadata.name  # the youngest is the spare
    before, killed = watched.seen.round, time.time()
    found = main_of(of_pod(member, watched.seen.uid))
    assert found is not None
    os.kill(found.pid, signal.SIGKILL)
    await until(watched, lambda seen: seen.round > before and seen.world == WORKERS)
    at = next(step.at for step in watched.steps if step.round > before and step.world == WORKERS)
    return at - killed


async def run(options: Namespace) -> int:
    """Drain, then lose; return the exit code."""
    chance = random.Random(options.seed)
    state = Path(tempfile.mkdtemp(prefix="elasticjob-drains-"))
    try:
        async with machines(state) as here:
            failed = await drains(here, options.drains, chance) if options.drains else False
            failed |= await losses(here, options.losses, chance) if options.losses else False
            if failed and options.keep:
                shutil.copy(here.operator.log, options.keep)
            return int(failed)
    finally:
        shutil.rmtree(state, ignore_errors=True)


async def drains(here: Laptop, many: int, chance: random.Random) -> bool:
    """Drain `many` machines of one job; return whether a step was lost or a restart counted."""
    record = here.state / "drains.jsonl"
    job = example("drains", record)
    async with following(here.client, job.key, record) as watched:
        await job.apply(here.client, "drains")
        await until(watched, lambda seen: seen.world == WORKERS and seen.step > 5)
        for number in range(many):
            done = await drain(here, watched, chance)
            status = (await here.client.get(ELASTICJOB, job.key.name, job.key.namespace)).status
            print(
                f"{number + 1}: {done.machine} ({', '.join(done.pods)}) {done.seconds:.1f} s, "
                f"step {watched.seen.step}, {lost(watched.steps)} lost, {status.restarts} restarts",
                flush=True,
            )
        missing, rounds = lost(watched.steps), watched.seen.round
        print(
            f"{many} drains: {missing} lost steps of {watched.seen.step}, "
            f"{status.restarts} restarts, {rounds} worlds"
        )
        await here.client.delete(ELASTICJOB, job.key.name, job.key.namespace)
        await until(watched, lambda seen: not seen.pods)
        return bool(missing or status.restarts)


async def losses(here: Laptop, many: int, chance: random.Random) -> bool:
    """Kill `many` agents of a job with a spare; return whether a spare was slower than a second."""
    record = here.state / "losses.jsonl"
    job = example("losses", record, spares=1)
    async with following(here.client, job.key, record) as watched:
        await job.apply(here.client, "losses")
        found = [await lose(here, watched, chance) for _ in range(many)]
        told = ", ".join(f"{seconds:.2f}" for seconds in found)
        print(
            f"{many} losses with a spare: {told} s to the next step, median {statistics.median(found):.2f} s"
        )
        await here.client.delete(ELASTICJOB, job.key.name, job.key.namespace)
        await until(watched, lambda seen: not seen.pods)
        return statistics.median(found) > 1.0


def main() -> int:
    """Run from the command line."""
    parser = ArgumentParser(prog="python -m lab.chaos.drains", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--drains", type=int, default=100)
    parser.add_argument("--losses", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--keep", type=Path, help="where the operator's log goes after a failure")
    options = parser.parse_args()
    print(f"drains: {options.drains} drains, {options.losses} losses, --seed {options.seed}")
    return asyncio.run(run(options))


if __name__ == "__main__":
    sys.exit(main())
