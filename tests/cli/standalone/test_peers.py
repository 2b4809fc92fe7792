"""A standalone run of several nodes: processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from elasticjob.api.resources import Resources
from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.sizes.facts import Mode
from elasticjob.api.sizes.role import Role
from elasticjob.cli.standalone.hosted import HostedJob
from elasticjob.cli.standalone.hosting import new_job
from elasticjob.cli.standalone.peers import DEVICES, Beside, Machine, machine
from lab.waiting import PATIENCE


@pytest.mark.parametrize(
    ("here", "low", "high", "most"),
    [
        (Machine(8), 1, 4, 4),
        (Machine(2), 1, 4, 2),
        (Machine(8, workers=4), 1, 4, 2),
        (Machine(2), 3, 4, 3),
        (Machine(64, ("0", "1")), 1, 4, 2),
        (Machine(64, ("0", "1", "2", "3"), workers=2), 1, 4, 2),
    ],
)
def test_a_machine_has_room_for_a_core_or_a_device_for_each_worker(
    here: Machine, low: int, high: int, most: int
) -> None:
    assert here.most(low, high) == most


def test_each_node_sees_devices_of_its_own(tmp_path: Path) -> None:
    here = machine(2, {DEVICES: "4,5,6,7"})
    assert [here.environment(node) for node in (0, 1)] == [{DEVICES: "4,5"}, {DEVICES: "6,7"}]
    assert here.environment(2) == {}
    (tmp_path / "0000:01:00.0").mkdir()
    assert machine(1, {}, tmp_path).devices == ("0",)
    assert machine(1, {DEVICES: ""}, tmp_path).devices == ()
    assert machine(1, {}, tmp_path / "absent").environment(0) == {}


@pytest.mark.parametrize(("low", "high", "count"), [(1, 4, None), (2, 2, 2)])
def test_the_number_of_nodes_is_learnt_within_a_range(low: int, high: int, count: int | None) -> None:
    sizes = new_job(HostedJob(low, high, beside=True)).spec.sizes
    assert (sizes.mode, sizes.roles) == (Mode.SINGLE_JOB, {"worker": Role(count=count, least=low, most=high)})
    assert new_job(HostedJob(low, high)).spec.sizes.mode is Mode.MANUAL


class Others:
    def __init__(self) -> None:
        self.changes: list[Change] = []

    async def apply(self, key: str, change: Change) -> None:
        self.changes.append(change)


async def test_this_process_is_one_of_the_nodes() -> None:
    others, moved = Others(), {"local-worker-0": Resources.parse({"memory": "1Gi"})}
    await Beside(others).apply("k1", Change({"worker": Group(3)}, moved, "why"))
    await Beside(others).apply("k2", Change({"worker": Group(resource=moved["local-worker-0"])}))
    assert others.changes == [Change({"worker": Group(2)}, reason="why"), Change({"worker": Group()})]


def test_a_standalone_run_of_two_nodes_starts_the_other_one(tmp_path: Path) -> None:
    """The nodes end together, and none is left behind."""
    program = "echo rank $RANK of $WORLD_SIZE; test $RANK = 1 && exec sleep 0.3"
    arguments = ["run", "--standalone", "--nnodes", "2", "--no-python", "sh", "-c", f"{program}; true"]
    command = [sys.executable, "-m", "elasticjob.cli", *arguments]
    own = os.environ | {"TMPDIR": str(tmp_path)}
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=own, check=False)
    assert found.returncode == 0, found.stderr
    assert sorted(line for line in found.stdout.splitlines() if "rank" in line) == [
        "rank 0 of 2",
        "rank 1 of 2",
    ]
    started = psutil.process_iter(["environ"])
    assert not [each for each in started if (each.info["environ"] or {}).get("TMPDIR") == str(tmp_path)]
    assert not list(tmp_path.glob("elasticjob-*"))
