"""A container that needs more memory than its limit: the kernel kills it, and its successor gets more."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from elasticjob import __version__
from elasticjob.api.resources import Bytes
from elasticjob.api.rpc.environment import MASTER_PORT
from elasticjob.api.sizes.role import Role
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.sizing.demand import Demand
from elasticjob.sizing.facts import Pace
from elasticjob.sizing.rules.memory import propose
from lab.build.sizing import NOW, asked
from lab.clusters.installed.kubectl import CommandFailed
from lab.clusters.installed.site import READY, Site
from lab.clusters.installed.stage import restricted
from lab.clusters.installed.timeline import Row
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
    site: Site, home: str, meal: Meal
) -> None:
    began = time.time()
    await site.kubectl.apply(hungry(home, meal))
    await site.kubectl("-n", home, "wait", "--for=condition=Complete", "elasticjob/hungry", READY)
    took = time.time() - began
    site.rows.append(Row(0.0, f"OOM-kill of {meal.who}", f"it needs more than {meal.limit}", took))
    plans = await listed(site, home, "scaleplans")
    pods = {pod["metadata"]["name"]: pod for pod in await listed(site, home, "pods")}
    message = f"hungry-worker-0 was OOMKilled at {meal.limit}: worker gets {meal.doubled}"
    assert [plan["spec"]["reason"] for plan in plans] == [message]
    limits = pods["hungry-worker-0-1"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"memory": meal.doubled}
    job = json.loads(await site.kubectl("-n", home, "get", "elasticjob", "hungry", "-o", "json"))
    assert job["status"]["restarts"] == 1
    events = await listed(site, home, "events")
    (relaunch,) = (each["message"] for each in events if each["reason"] == "NodeRelaunched")
    begins = f"hungry-worker-0-1 replaces hungry-worker-0: OOMKilled at {meal.limit}"
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
POD: Final = "hungry-worker-0"
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


async def test_an_agent_reports_the_working_set_of_its_container(site: Site, home: str) -> None:
    """What the kubelet counts: with agent, warm process and page cache; and the most of it."""
    await site.kubectl.apply(hungry(home, HOLDING))
    found = await holding(site, home)
    used, peak, by_kernel = (found.agent.get(name) for name in ("memory", "peak", "kernel_peak"))
    assert used is not None
    assert peak is not None
    assert peak >= used
    assert by_kernel is None if cgroup_v1() else by_kernel is None or by_kernel >= peak
    site.rows.append(Row(0.0, "an agent reports its memory", found.text, 0.0))
    await let_go(site, home)


async def test_memory_is_taken_in_place_and_never_what_is_in_use(site: Site, home: str) -> None:
    """A shrink to what the optimizer would give is carried out, one below that by nobody."""
    await site.kubectl.apply(hungry(home, HOLDING, scalePlanDeadlineSeconds=45))
    before = await holding(site, home)
    born = await identity(site, home)
    peak = before.agent.get("peak") or 0
    wanted = enough(peak)
    site.rows.append(Row(0.0, "memory of 1Gi", before.text, 0.0))

    began = time.time()
    await site.kubectl.apply(plan(home, "unused", wanted))
    await until(lambda: has_limit(site, home, wanted), f"the kernel knows {wanted}")
    await until(lambda: ended(site, home, "unused", "Succeeded"), "the plan has succeeded")
    after = await reading(site, home)
    assert after is not None
    site.rows.append(Row(0.0, f"a plan takes all but {wanted}", after.text, time.time() - began))

    began = time.time()
    size = int(Bytes.parse(wanted).value) >> 20
    await site.kubectl("-n", home, "exec", POD, "--", "python3", "-c", READS.format(size))
    full = await reading(site, home)
    assert full is not None
    site.rows.append(Row(0.0, f"{size}Mi of files are read", full.text, time.time() - began))
    assert (full.cgroup["charged"] or 0) + SLACK > Bytes.parse(wanted).value, "page cache fills the rest"
    assert full.cgroup["kills"] == 0
    assert await identity(site, home) == born

    began = time.time()
    await site.kubectl.apply(plan(home, "in-use", "150Mi"))
    await until(lambda: ended(site, home, "in-use", "Failed"), "the plan has failed")
    less = await reading(site, home)
    assert less is not None
    site.rows.append(Row(0.0, "a plan asks for 150Mi", less.text, time.time() - began))
    assert less.cgroup["limit"] == Bytes.parse(wanted).value
    assert less.cgroup["kills"] == 0
    assert await identity(site, home) == born
    why = f"{POD}: the kubelet has not resized it: cannot decrease memory limits: "
    failed = await condition(site, home, "scaleplan", "in-use", "Failed")
    assert (failed["status"], failed["reason"], why in failed["message"]) == ("True", "Resizing", True), (
        failed
    )
    running = await condition(site, home, "elasticjob", "hungry", "Running")
    assert running["message"].startswith(f"1 of 1 nodes run; {why}")
    status = (await one(site, home, "elasticjob", "hungry"))["status"]
    assert (status["phase"], status["reason"]) == ("Running", "Resizing")
    site.rows.append(Row(0.0, "the job says so", running["message"], 0.0))

    await site.kubectl.apply(plan(home, "again", wanted))
    await until(lambda: ended(site, home, "again", "Succeeded"), "the plan has succeeded")
    assert "reason" not in (await one(site, home, "elasticjob", "hungry"))["status"]
    assert await identity(site, home) == born
    await let_go(site, home)
    assert await identity(site, home) == born


async def let_go(site: Site, namespace: str) -> None:
    """Have the worker end, so that the job is complete."""
    await site.kubectl("-n", namespace, "exec", POD, "--", "python3", "-c", "open('/tmp/done', 'w')")
    await site.kubectl("-n", namespace, "wait", "--for=condition=Complete", "elasticjob/hungry", READY)


def enough(peak: int) -> str:
    """Return the memory that an optimizer leaves to a worker of 1Gi whose peak is long ago."""
    worker, demand = Role(count=1, resource={"memory": "1Gi"}), Demand(peak=peak, risen=NOW - Pace().shrink)
    change = propose(asked({"worker": worker}, demand={"worker": demand}))
    return str(change.groups["worker"].resource["memory"])


def plan(namespace: str, name: str, memory: str) -> Manifest:
    """Return a ScalePlan that gives workers so much memory."""
    workers = {"worker": {"resource": {"memory": memory}}}
    spec = {"ownerJob": "hungry", "manualScaling": True, "replicaResourceSpecs": workers, "reason": name}
    about = {"name": name, "namespace": namespace}
    return {"apiVersion": SCALEPLAN.api_version, "kind": SCALEPLAN.name, "metadata": about, "spec": spec}


async def ended(site: Site, namespace: str, name: str, phase: str) -> bool:
    """Whether a ScalePlan has ended. Raises AssertionError if it ended otherwise."""
    status = (await one(site, namespace, "scaleplan", name)).get("status", {})
    assert status.get("phase") in (None, "Pending", "Scaling", phase), status
    return bool(status.get("phase") == phase)


async def has_limit(site: Site, namespace: str, memory: str) -> bool:
    """Whether the cgroup of the worker's container has a limit."""
    found = await reading(site, namespace)
    return found is not None and found.cgroup["limit"] == Bytes.parse(memory).value


async def identity(site: Site, namespace: str) -> tuple[str, int, int, list[str]]:
    """Return what changes when anything begins anew: the pod, its container, the node, the worker."""
    pod = await one(site, namespace, "pod", POD)
    job = await one(site, namespace, "elasticjob", "hungry")
    log = await site.kubectl("-n", namespace, "logs", POD)
    began = [line for line in log.splitlines() if "holds " in line]
    restarts = sum(each["restartCount"] for each in pod["status"]["containerStatuses"])
    return pod["metadata"]["uid"], restarts, job["status"].get("restarts", 0), began


async def holding(site: Site, namespace: str) -> Reading:
    """Wait until the worker has what it holds, and all tell the same of it."""
    found: Reading | None = None

    async def agree() -> bool:
        nonlocal found
        found = await reading(site, namespace)
        return found is not None and (found.agent.get("memory") or 0) > 230 << 20 and found.agrees

    try:
        await until(agree, "agent, kubelet and cgroup agree")
    except AssertionError as error:
        error.add_note(str(found))
        raise
    assert found is not None
    return found


async def reading(site: Site, namespace: str) -> Reading | None:
    """Return the numbers of the worker's memory, None before there are any."""
    pods = {each["metadata"]["name"]: each for each in await listed(site, namespace, "pods")}
    node = pods.get(POD, {}).get("spec", {}).get("nodeName", "")
    usage = await usage_of(site, namespace, pods) if node else None
    if usage is None:
        return None
    summary = json.loads(await site.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/stats/summary"))
    by_kubelet = (
        container.get("memory", {}).get("workingSetBytes")
        for each in summary["pods"]
        if (each["podRef"]["namespace"], each["podRef"]["name"]) == (namespace, POD)
        for container in each.get("containers", ())
        if container["name"] == "main"
    )
    told = json.loads(await site.kubectl("-n", namespace, "exec", POD, "--", "python3", "-c", ASKS))
    return Reading(told, usage, next(by_kubelet, None))


async def condition(site: Site, namespace: str, kind: str, name: str, type_: str) -> dict[str, Any]:
    """Return a condition of an object."""
    found: list[dict[str, Any]] = (await one(site, namespace, kind, name))["status"]["conditions"]
    return next(each for each in found if each["type"] == type_)


async def one(site: Site, namespace: str, kind: str, name: str) -> dict[str, Any]:
    """Return an object."""
    found: dict[str, Any] = json.loads(await site.kubectl("-n", namespace, "get", kind, name, "-o", "json"))
    return found


async def usage_of(site: Site, namespace: str, pods: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the master has of the job's only node, None before its first report."""
    master = next((name for name in pods if name.startswith("hungry-master-")), None)
    try:
        path = f"/api/v1/namespaces/{namespace}/pods/{master}:{MASTER_PORT}/proxy/status"
        status = json.loads(await site.kubectl("get", "--raw", path))
    except CommandFailed:  # it only starts
        return None
    usages: list[dict[str, Any]] = [each["usage"] for each in status["nodes"] if each["usage"]]
    return usages[0] if usages else None


def cgroup_v1() -> bool:
    """Whether the kernel kills a worker alone, so that its agent can say why it ended."""
    return Path("/sys/fs/cgroup/memory").is_dir()


def hungry(namespace: str, meal: Meal, **policy: Any) -> Manifest:
    """Return a job of one pod that needs more memory than it has."""
    container: Manifest = {
        "image": f"elasticjob/trainer:{__version__}",
        "command": list(meal.command),
        "resources": {"limits": {"memory": meal.limit}},
    }
    worker = {"replicas": 1, "restartCount": 2, "template": {"spec": restricted(container)}}
    return {
        "apiVersion": ELASTICJOB.api_version,
        "kind": ELASTICJOB.name,
        "metadata": {"name": "hungry", "namespace": namespace},
        "spec": {
            "distributionStrategy": meal.strategy,
            "replicaSpecs": {"worker": worker},
            "runPolicy": policy,
        },
    }


async def listed(site: Site, namespace: str, kind: str) -> list[dict[str, Any]]:
    """Return the objects of a kind."""
    found: list[dict[str, Any]] = json.loads(await site.kubectl("-n", namespace, "get", kind, "-o", "json"))[
        "items"
    ]
    return found
