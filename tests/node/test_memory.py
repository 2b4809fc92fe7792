"""A container that needs more memory than its limit: the kernel kills it, and its successor gets more."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from elasticjob.api.resources import Bytes
from elasticjob.api.rpc.environment import MASTER_PORT
from elasticjob.api.sizes.role import Role
from elasticjob.api.v1alpha1.scaleplan import PlanPhase
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import EVENT
from elasticjob.sizing.demand import Demand
from elasticjob.sizing.facts import Pace
from elasticjob.sizing.rules.memory import propose
from lab.build.sizing import NOW, asked
from lab.clusters.installed.installation import Installation
from lab.clusters.installed.kubectl import CommandFailed
from lab.clusters.installed.stage import TRAINER, restricted
from lab.clusters.installed.timeline import Row
from lab.jobs.job import Job, submitted
from lab.jobs.site import Site
from lab.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.timeout(1800)]

EATS: Final = "food = bytearray(b'x') * ({} << 20); print(len(food), flush=True)"


@dataclass(frozen=True)
class Meal:
    """A command that needs more than `limit`, and less than `doubled`."""

    who: str
    strategy: str
    command: tuple[str, ...]
    limit: str
    doubled: str
    agent: bool = False


MEALS: Final = (
    Meal("a program", "Local", ("python3", "-c", EATS.format(60)), "48Mi", "96Mi"),
    Meal(
        "a worker under the agent",
        "AllreduceStrategy",
        ("elasticjob", "run", "--no-python", "python3", "-c", EATS.format(200)),
        "160Mi",
        "320Mi",
        agent=True,
    ),
)
"""The kernel kills the worker alone where cgroups are of version 1, and the whole container on version 2."""


@pytest.mark.parametrize("meal", MEALS, ids=[meal.who for meal in MEALS])
async def test_a_container_out_of_memory_comes_back_with_twice_as_much(
    node: Installation, site: Site, meal: Meal
) -> None:
    with node.timed(f"OOM-kill of {meal.who}", f"it needs more than {meal.limit}"):
        job = await submitted(site, hungry(meal))
        await site.until(job.has_ended("Complete"))
    message = f"digits-worker-0 was OOMKilled at {meal.limit}: worker gets {meal.doubled}"
    assert [plan.spec.reason for plan in site.plans().values()] == [message]
    assert job.pods()["worker-0-1"].spec.containers[0].resources.limits == {"memory": meal.doubled}
    assert job.status.restarts == 1
    events = await site.client.list(EVENT, site.namespace)
    (relaunch,) = (each.message for each in events if each.reason == "NodeRelaunched")
    begins = f"digits-worker-0-1 replaces digits-worker-0: OOMKilled at {meal.limit}"
    by_agent = f"{begins}: worker 0 was out of memory and killed by the kernel: its pod used "
    assert relaunch.startswith(by_agent if meal.agent and cgroup_v1() else begins)


HOLDS: Final = """
import os, time
print("holds", os.getpid(), flush=True)
kept = bytearray(b"x") * (200 << 20)
with open("/tmp/read", "wb") as file:
    file.write(kept[: 60 << 20])
while not os.path.exists("/tmp/done"):
    with open("/tmp/read", "rb") as file:
        while file.read(1 << 20):
            pass
    time.sleep(2)
"""
"""A worker with memory of its own, and with page cache that it uses."""
HOLDING: Final = Meal(
    "", "AllreduceStrategy", ("elasticjob", "run", "--no-python", "python3", "-c", HOLDS), "1Gi", "", True
)
WORKER: Final = "digits-worker-0"
SLACK: Final = 32 << 20
"""Bytes: the kubelet's numbers are some seconds old, and there are programs that the test starts there."""
ASKS: Final = """
import json
from elasticjob.trainer.usage.memory import cgroup
found = cgroup()
name = "memory.current" if found.most.name == "memory.max" else "memory.usage_in_bytes"
charged = int(found.most.with_name(name).read_text())
names = dict(limit=found.limit(), charged=charged, used=found.working_set(), most=found.peak())
print(json.dumps(dict(names, kills=found.kills())))
"""
"""Run in a container: what its cgroup says."""
READS: Final = """
block = b"x" * (1 << 20)
with open("/tmp/long", "wb+") as file:
    for _ in range({}):
        file.write(block)
    file.seek(0)
    while file.read(1 << 20):
        pass
"""
"""Run in a container: a file goes through the page cache."""


@dataclass(frozen=True)
class Reading:
    """The bytes of a container's memory, as its cgroup, its agent and the kubelet tell them."""

    cgroup: dict[str, int | None]
    agent: dict[str, int | None]
    kubelet: int | None

    @property
    def agrees(self) -> bool:
        """Whether the three tell the same."""
        told = (self.cgroup["used"], self.agent.get("memory"), self.kubelet)
        known = [each for each in told if each is not None]
        return len(known) == len(told) and max(known) - min(known) < SLACK

    @property
    def text(self) -> str:
        """The numbers in words."""
        told = {**self.cgroup, "agent": self.agent.get("memory"), "peak": self.agent.get("peak")}
        told["kubelet"] = self.kubelet
        kills = told.pop("kills")
        inactive = (self.cgroup["charged"] or 0) - (self.cgroup["used"] or 0)
        sizes = {**told, "inactive_file": inactive}
        words = (f"{name} {'-' if size is None else f'{size >> 20}Mi'}" for name, size in sizes.items())
        return ", ".join((*words, f"{kills} kills"))


@dataclass(frozen=True)
class Play:
    """A job of one worker that holds its memory, and what is told of it."""

    node: Installation
    site: Site
    job: Job

    async def run(self, program: str) -> str:
        """Run a program in the worker's container."""
        words = ("exec", WORKER, "--", "python3", "-c", program)
        return await self.node.kubectl("-n", self.site.namespace, *words)

    def note(self, event: str, did: str, since: float | None = None) -> None:
        took = time.time() - since if since else 0.0
        self.node.rows.append(Row(0.0, event, did, took))

    async def plan(self, name: str, memory: str, end: PlanPhase = PlanPhase.SUCCEEDED) -> None:
        """Have a plan give workers so much memory."""
        asked = {"worker": {"resource": {"memory": memory}}}
        await self.site.plan(name, end, replicaResourceSpecs=asked)

    async def let_go(self) -> None:
        """Have the worker end, so that the job is complete."""
        await self.run("open('/tmp/done', 'w')")
        await self.site.until(self.job.has_ended("Complete"))

    async def has_limit(self, memory: str) -> bool:
        """Whether the cgroup of the worker's container has a limit."""
        found = await self.reading()
        return found is not None and found.cgroup["limit"] == Bytes.parse(memory).value

    async def identity(self) -> tuple[str, int, int | None, list[str]]:
        """Return what changes when anything begins anew: the pod, its container, the node, the worker."""
        pod = self.site.pods()[WORKER]
        log = await self.node.kubectl("-n", self.site.namespace, "logs", WORKER)
        began = [line for line in log.splitlines() if "holds " in line]
        restarts = sum(each.restart_count for each in pod.status.container_statuses)
        return pod.metadata.uid, restarts, self.job.status.restarts, began

    async def holds(self) -> Reading:
        """Wait until the worker has what it holds, and all tell the same of it."""
        found: Reading | None = None

        async def agree() -> bool:
            nonlocal found
            found = await self.reading()
            return found is not None and (found.agent.get("memory") or 0) > 230 << 20 and found.agrees

        try:
            await until(agree, "agent, kubelet and cgroup agree")
        except AssertionError as error:
            error.add_note(str(found))
            raise
        assert found is not None
        return found

    async def read(self) -> Reading:
        """Return the numbers of the worker's memory."""
        found = await self.reading()
        assert found is not None
        return found

    async def reading(self) -> Reading | None:
        """Return the numbers of the worker's memory, None before there are any."""
        pods = self.site.pods()
        machine = pods[WORKER].spec.node_name if WORKER in pods else ""
        usage = await self.usage() if machine else None
        if usage is None:
            return None
        summary = await self.raw(f"/api/v1/nodes/{machine}/proxy/stats/summary")
        by_kubelet = (
            container.get("memory", {}).get("workingSetBytes")
            for each in summary["pods"]
            if (each["podRef"]["namespace"], each["podRef"]["name"]) == (self.site.namespace, WORKER)
            for container in each.get("containers", ())
            if container["name"] == "main"
        )
        return Reading(json.loads(await self.run(ASKS)), usage, next(by_kubelet, None))

    async def usage(self) -> dict[str, Any] | None:
        """Return what the master has of the job's only node, None before its first report."""
        master = next((name for name in self.job.pods() if name.startswith("master-")), None)
        try:
            pods = f"/api/v1/namespaces/{self.site.namespace}/pods"
            status = await self.raw(f"{pods}/digits-{master}:{MASTER_PORT}/proxy/status")
        except CommandFailed:  # it only starts
            return None
        usages: list[dict[str, Any]] = [each["usage"] for each in status["nodes"] if each["usage"]]
        return usages[0] if usages else None

    async def raw(self, path: str) -> dict[str, Any]:
        """GET a path of the API server."""
        return dict(json.loads(await self.node.kubectl("get", "--raw", path)))


async def test_an_agent_reports_the_working_set_of_its_container(node: Installation, site: Site) -> None:
    """What the kubelet counts: with agent, warm process and page cache; and the most of it."""
    play = Play(node, site, await submitted(site, hungry(HOLDING)))
    found = await play.holds()
    used, peak, by_kernel = (found.agent.get(name) for name in ("memory", "peak", "kernel_peak"))
    assert used is not None
    assert peak is not None
    assert peak >= used
    assert by_kernel is None if cgroup_v1() else by_kernel is None or by_kernel >= peak
    play.note("an agent reports its memory", found.text)
    await play.let_go()


async def test_memory_is_taken_in_place_and_never_what_is_in_use(node: Installation, site: Site) -> None:
    """A shrink to what the optimizer would give is carried out, one below that by nobody."""
    job = await submitted(site, hungry(HOLDING, scalePlanDeadlineSeconds=45))
    play = Play(node, site, job)
    before = await play.holds()
    born = await play.identity()
    wanted = enough(before.agent.get("peak") or 0)
    play.note("memory of 1Gi", before.text)

    began = time.time()
    await play.plan("unused", wanted)
    await until(lambda: play.has_limit(wanted), f"the kernel knows {wanted}")
    play.note(f"a plan takes all but {wanted}", (await play.read()).text, began)

    began = time.time()
    size = int(Bytes.parse(wanted).value) >> 20
    await play.run(READS.format(size))
    full = await play.read()
    play.note(f"{size}Mi of files are read", full.text, began)
    assert (full.cgroup["charged"] or 0) + SLACK > Bytes.parse(wanted).value, "page cache fills the rest"
    assert full.cgroup["kills"] == 0
    assert await play.identity() == born

    began = time.time()
    await play.plan("in-use", "150Mi", PlanPhase.FAILED)
    less = await play.read()
    play.note("a plan asks for 150Mi", less.text, began)
    assert less.cgroup["limit"] == Bytes.parse(wanted).value
    assert less.cgroup["kills"] == 0
    assert await play.identity() == born
    why = f"{WORKER}: the kubelet has not resized it: cannot decrease memory limits: "
    (failed,) = (each for each in site.plans()["in-use"].status.conditions if each.type == "Failed")
    assert (failed.status, failed.reason, why in failed.message) == ("True", "Resizing", True), failed
    await site.until(lambda: why in job.condition("Running")[2])
    assert (job.status.phase, job.status.reason) == ("Running", "Resizing")
    play.note("the job says so", job.condition("Running")[2])

    await play.plan("again", wanted)
    await site.until(lambda: not job.status.reason)
    assert await play.identity() == born
    await play.let_go()
    assert await play.identity() == born


def enough(peak: int) -> str:
    """Return the memory that an optimizer leaves to a worker of 1Gi whose peak is long ago."""
    worker, demand = Role(count=1, resource={"memory": "1Gi"}), Demand(peak=peak, risen=NOW - Pace().shrink)
    change = propose(asked({"worker": worker}, demand={"worker": demand}))
    return str(change.groups["worker"].resource["memory"])


def cgroup_v1() -> bool:
    """Whether the kernel kills a worker alone, so that its agent can say why it ended."""
    return Path("/sys/fs/cgroup/memory").is_dir()


def hungry(meal: Meal, **policy: Any) -> Manifest:
    """Return a job of one pod that needs more memory than it has."""
    container: Manifest = {
        "image": TRAINER,
        "command": list(meal.command),
        "resources": {"limits": {"memory": meal.limit}},
    }
    worker = {"replicas": 1, "restartCount": 2, "template": {"spec": restricted(container)}}
    spec = {"distributionStrategy": meal.strategy, "replicaSpecs": {"worker": worker}}
    return {**spec, "runPolicy": policy}
