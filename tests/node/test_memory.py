"""A container that needs more memory than its limit: the kernel kills it, and its successor gets more."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from elasticjob import __version__
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.node.site import READY, Site
from tests.kit.node.stage import RESTRICTED, UNPRIVILEGED
from tests.kit.node.timeline import Row

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
    by_agent = f"{begins}: worker 0 was out of memory and killed by the kernel: its workers used "
    assert relaunch.startswith(by_agent if meal.agent and cgroup_v1() else begins)


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
