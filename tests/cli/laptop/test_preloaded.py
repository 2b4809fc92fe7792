"""Containers of a supervisor that has imported torch: agents find a warm process, other programs do not."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from elasticjob.cli.laptop import preloaded
from elasticjob.devcluster.node.container.processes import End, Nursery, Order
from elasticjob.devcluster.nodes import container_environment
from elasticjob.trainer.agent.processes import warm

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = """
import json, os, pathlib, sys, torch
command = pathlib.Path("/proc/self/cmdline").read_bytes().decode()
print(json.dumps({"command": command, "threads": torch.get_num_threads(), "mine": os.environ.get("MINE")}))
sys.argv[1:] and print(undefined)
"""
ENVIRONMENT = container_environment(os.environ) | {"PYTHONUNBUFFERED": "1", "MINE": "yes"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nursery() -> AsyncIterator[Nursery]:
    async with Nursery(preloaded.COMMAND, container_environment(os.environ)) as running:
        yield running


async def run(
    nursery: Nursery, folder: Path, *argv: str, env: Mapping[str, str] = ENVIRONMENT
) -> tuple[End, str]:
    """Return how a container ended, and its log."""
    log = folder / "log"
    order = Order(argv=argv, env={**env, "HOME": str(folder)}, cwd=str(folder), log=str(log))
    end = await (await nursery.start(order)).ended
    return end, log.read_text()


def script(folder: Path) -> str:
    path = folder / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def printed(log: str) -> dict[str, Any]:
    """Return what the script printed."""
    (line,) = (line for line in log.splitlines() if " F {" in line)
    found: dict[str, Any] = json.loads(line.partition(" F ")[2])
    return found


async def test_workers_are_forked_from_the_supervisor(nursery: Nursery, tmp_path: Path) -> None:
    env = ENVIRONMENT | {"OMP_NUM_THREADS": "3"}
    end, log = await run(nursery, tmp_path, "elasticjob", "run", script(tmp_path), env=env)
    assert end == End(0), log
    found = printed(log)
    assert (preloaded.__name__ in found["command"], found["threads"], found["mine"]) == (True, 3, "yes"), log


async def test_a_script_that_fails_shows_its_own_frames_alone(nursery: Nursery, tmp_path: Path) -> None:
    flags = ("--max-restarts", "0")
    end, log = await run(nursery, tmp_path, "elasticjob", "run", *flags, script(tmp_path), "fail")
    assert end.code != 0
    assert "NameError: name 'undefined' is not defined" in log
    assert log.count('File "') == log.count('train.py", line') > 0
    assert "Aside" not in log


async def test_other_programs_start_as_ever(nursery: Nursery, tmp_path: Path) -> None:
    shown = "print(open('/proc/self/cmdline').read().split(chr(0))[0])"
    end, log = await run(nursery, tmp_path, "python3", "-c", shown)
    assert (end, log.split()[-1]) == (End(0), "python3")


async def test_an_agent_whose_torch_would_be_another_imports_its_own() -> None:
    given = warm.decided(ENVIRONMENT) | {preloaded.THREADS: ""}
    env = ENVIRONMENT | {"PYTHONHASHSEED": "1"}
    before = dict(env)
    preloaded.beside_agents(given, ["elasticjob", "run", "train.py"], env)
    assert env == before
