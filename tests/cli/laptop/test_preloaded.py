"""Containers of a supervisor that has imported torch: agents find a warm process, other programs do not."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from elasticjob.cli.laptop import preloaded
from elasticjob.devcluster.node.container.processes import End, Nursery, Order
from elasticjob.devcluster.nodes import container_environment
from elasticjob.trainer.agent.processes import warm

SCRIPT = """
import json, os, pathlib, torch
command = pathlib.Path("/proc/self/cmdline").read_bytes().decode()
print(json.dumps({"command": command, "threads": torch.get_num_threads(), "mine": os.environ.get("MINE")}))
print(undefined)
"""
ENVIRONMENT = container_environment(os.environ) | {"PYTHONUNBUFFERED": "1", "MINE": "yes"}


async def run(nursery: Nursery, folder: Path, *argv: str, env: Mapping[str, str]) -> tuple[End, str]:
    """Return how a container ended, and its log."""
    log = folder / "log"
    order = Order(argv=argv, env={**env, "HOME": str(folder)}, cwd=str(folder), log=str(log))
    end = await (await nursery.start(order)).ended
    return end, log.read_text()


@pytest.mark.story
async def test_workers_are_forked_from_the_supervisor_and_other_programs_start_as_ever(
    tmp_path: Path,
) -> None:
    """A script that fails shows its own frames alone, none of the supervisor's."""
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ("elasticjob", "run", "--max-restarts", "0", str(tmp_path / "train.py"))
    async with Nursery(preloaded.COMMAND, container_environment(os.environ)) as nursery:
        end, log = await run(nursery, tmp_path, *words, env=ENVIRONMENT | {"OMP_NUM_THREADS": "3"})
        shown = "print(open('/proc/self/cmdline').read().split(chr(0))[0])"
        other, said = await run(nursery, tmp_path, "python3", "-c", shown, env=ENVIRONMENT)
    (line,) = (line for line in log.splitlines() if " F {" in line)
    found = json.loads(line.partition(" F ")[2])
    assert (preloaded.__name__ in found["command"], found["threads"], found["mine"]) == (True, 3, "yes"), log
    assert end.code != 0
    assert "NameError: name 'undefined' is not defined" in log
    assert log.count('File "') == log.count('train.py", line') > 0
    assert "Aside" not in log
    assert (other, said.split()[-1]) == (End(0), "python3")


async def test_an_agent_whose_torch_would_be_another_imports_its_own() -> None:
    given = warm.import_variables(ENVIRONMENT) | {preloaded.THREADS: ""}
    env = ENVIRONMENT | {"PYTHONHASHSEED": "1"}
    before = dict(env)
    preloaded.beside_agents(given, ["elasticjob", "run", "train.py"], env)
    assert env == before
