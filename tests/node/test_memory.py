"""A container that needs more memory than its limit: the kernel kills it, and its successor gets more."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from elasticjob import __version__
from elasticjob.api.rpc.environment import MASTER_PORT
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.node.kubectl import CommandFailed
from tests.kit.node.site import READY, Site
from tests.kit.node.stage import RESTRICTED, UNPRIVILEGED
from tests.kit.node.timeline import Row
from tests.kit.waiting import until

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
import time
kept = bytearray(b"x") * (200 << 20)
with open("/tmp/read", "wb") as file:
    file.write(kept[: 60 << 20])
while True:
    with open("/tmp/read", "rb") as file:
        while file.read(1 << 20):
            pass
    time.sleep(5)
"""
"""A worker with memory of its own, and with page cache that it uses."""
SLACK: Final = 32 << 20
"""Bytes: the kubelet's numbers are some seconds old, and there are programs that the test starts there."""
ASKS: Final = (
    "import json; from elasticjob.trainer.agent.seeing.memory import cgroup; found = cgroup(); "
    "print(json.dumps([found.working_set(), found.peak()]))"
)


async def test_an_agent_reports_the_working_set_of_its_container(site: Site, home: str) -> None:
    """What the kubelet counts: with agent, warm process and page cache; and the most of it."""
    meal = Meal(
        "", "AllreduceStrategy", ("elasticjob", "run", "--no-python", "python3", "-c", HOLDS), "1Gi", ""
    )
    job = hungry(home, meal)
    await site.kubectl.apply(job)
    pod, node = "hungry-worker-0", ""
    numbers: dict[str, list[int | None]] = {}

    async def agree() -> bool:
        nonlocal node
        pods = {each["metadata"]["name"]: each for each in await listed(site, home, "pods")}
        node = pods.get(pod, {}).get("spec", {}).get("nodeName", "")
        usage = await usage_of(site, home, pods) if node else None
        if usage is None or usage["memory"] < 230 << 20:
            return False
        summary = json.loads(await site.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/stats/summary"))
        by_kubelet = next(
            (
                container["memory"]["workingSetBytes"]
                for each in summary["pods"]
                if (each["podRef"]["namespace"], each["podRef"]["name"]) == (home, pod)
                for container in each.get("containers", ())
                if container["name"] == "main" and "workingSetBytes" in container.get("memory", {})
            ),
            None,
        )
        asked = await site.kubectl("-n", home, "exec", pod, "--", "python3", "-c", ASKS)
        by_cgroup, by_kernel = json.loads(asked)
        numbers.update(agent=[usage["memory"], usage["peak"], usage["kernel_peak"]])
        numbers.update(kubelet=[by_kubelet], cgroup=[by_cgroup, by_kernel])
        return by_kubelet is not None and all(
            abs(usage["memory"] - each) < SLACK for each in (by_kubelet, by_cgroup)
        )

    try:
        await until(agree, "agent, kubelet and cgroup agree")
    except AssertionError as error:
        error.add_note(str(numbers))
        raise
    used, peak, by_kernel = numbers["agent"]
    assert used is not None
    assert peak is not None
    assert peak >= used
    assert by_kernel is None if cgroup_v1() else by_kernel is None or by_kernel >= peak
    site.rows.append(Row(0.0, "an agent reports its memory", f"as the kubelet does: {used >> 20}Mi", 0.0))
    await site.kubectl("-n", home, "delete", "elasticjob", "hungry")


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


def hungry(namespace: str, meal: Meal) -> Manifest:
    """Return a job of one pod that needs more memory than it has."""
    container: Manifest = {
        "name": "main",
        "image": f"elasticjob/trainer:{__version__}",
        "command": list(meal.command),
        "resources": {"limits": {"memory": meal.limit}},
        "securityContext": UNPRIVILEGED,
    }
    worker = {
        "replicas": 1,
        "restartCount": 2,
        "template": {"spec": {"containers": [container], "securityContext": RESTRICTED}},
    }
    return {
        "apiVersion": ELASTICJOB.api_version,
        "kind": ELASTICJOB.name,
        "metadata": {"name": "hungry", "namespace": namespace},
        "spec": {"distributionStrategy": meal.strategy, "replicaSpecs": {"worker": worker}},
    }


async def listed(site: Site, namespace: str, kind: str) -> list[dict[str, Any]]:
    """Return the objects of a kind."""
    found: list[dict[str, Any]] = json.loads(await site.kubectl("-n", namespace, "get", kind, "-o", "json"))[
        "items"
    ]
    return found
