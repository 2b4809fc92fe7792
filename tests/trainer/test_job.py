"""Short jobs, in one file since they share a process that has imported torch; longer ones are stories."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from elasticjob.api.logs import read
from lab.jobs.training.harness import HELD, scenario
from lab.jobs.training.warm import Warm
from lab.paths import TRAINED
from lab.truths.counted import BATCH, SIZE, check
from lab.truths.model import trained_alone


async def test_killed_workers_are_replaced_and_nothing_is_lost(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        agents = [await job.agent(index, "counted.py", HELD) for index in (0, 1)]
        for rank in (1, 0):  # without rank 0 the next oldest has the state
            at = job.last()["step"]
            await job.until(job.trains_with(2, after=at + 10))
            last = next(step for step in reversed(job.steps()) if (step["world"], step["rank"]) == (2, rank))
            os.kill(last["pid"], signal.SIGKILL)
            await job.until(job.trains_in_a_round_after(last["round"]))
        job.let_end()
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        check(job, slots=2)
        assert job.last()["world"] == 2
        assert len(job.seen) == 4, "who survived goes on in its process"


async def test_elastic_script_under_another_launcher_says_what_to_do(tmp_path: Path, warm: Warm) -> None:
    launched = {"WORLD_SIZE": "2", "RANK": "0", "COUNTED": str(tmp_path)}
    code, output = await warm.output(TRAINED / "counted.py", 1, **launched)
    assert "start it with `elasticjob run`" in output
    assert code == 1


async def test_script_trains_alone_without_an_agent(tmp_path: Path, warm: Warm) -> None:
    _, output = await warm.output(TRAINED / "counted.py", 2, COUNTED=str(tmp_path))
    result = json.loads(output.splitlines()[-1])
    assert result["parameters"] == pytest.approx(trained_alone(SIZE, BATCH, 2)[0], abs=1e-6)


async def test_script_that_fails_at_once_is_given_up_with_its_last_line(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        agent = await job.agent(0, "failing.py")
        assert await job.ends(agent) == 1
        words = agent.last_words()
        assert words["reason"] == "CannotStart"
        assert "ValueError: no such file: data.csv" in words["message"]
        assert "twice without any progress" in words["message"]
        traceback = [line.text for line in job.lines if "File " in line.text]
        assert traceback
        assert all("failing.py" in line for line in traceback), "frames of ours in the user's traceback"
        logged = filter(None, (read(line.text) for line in job.lines))
        causes = [entry.message for entry in logged if "data.csv" in entry.message]
        assert len(causes) == 2, "each of two failures is told once"
        assert all(line.startswith("rank 0: ") for line in causes)


async def test_exit_code_of_the_script_is_the_agents_in_a_cold_start_too(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        agent = await job.agent(0, "failing.py", "exit", flags=("--start-method", "spawn"))
        assert await job.ends(agent) == 3
        assert agent.last_words()["exitCode"] == 3


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_run_that_is_interrupted_says_so_by_its_exit_code(
    tmp_path: Path, warm: Warm, number: signal.Signals, code: int
) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        wait = "import signal; print('up', flush=True); signal.pause()"
        agent = await job.agent(0, sys.executable, "-c", wait, flags=("--no-python",))
        await job.until(lambda: any(line.text.split()[-1:] == ["up"] for line in job.lines))
        agent.kill(number)
        assert await job.ends(agent) == code
        assert agent.last_words()["reason"] == "Left"


async def test_any_program_runs_with_torchruns_environment(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        shown = "import os; print({k: v for k, v in os.environ.items() if 'RANK' in k or 'WORLD' in k})"
        flags = ("--no-python", "--nproc-per-node", "2", "--role", "trainer")
        agent = await job.agent(0, sys.executable, "-c", shown, flags=flags)
        assert await job.ends(agent) == 0
        lines = sorted(line.text for line in job.lines if line.text.startswith("[trainer"))
        for local, line in enumerate(lines):
            assert line.startswith(f"[trainer{local}]:")
            for name, value in (("RANK", local), ("LOCAL_RANK", local), ("WORLD_SIZE", 2), ("GROUP_RANK", 0)):
                assert f"'{name}': '{value}'" in line
        assert len(lines) == 2


async def test_output_goes_where_torchruns_flags_say(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        where = tmp_path / "logs"
        flags = "--no-python --nproc-per-node 3 --redirects 0:3 --tee 1:1 --local-ranks-filter 0,1"
        template = "--log-line-prefix-template=${rank}-${local_rank} "
        given = (*flags.split(), template, f"--log-dir={where}")
        agent = await job.agent(0, "/bin/sh", "-c", "echo out; echo err >&2", flags=given)
        assert await job.ends(agent) == 0
        shown = sorted(line.text for line in job.lines if line.text.endswith((" out", " err")))
        assert shown == ["1-1 err", "1-1 out"]
        files = {
            file.relative_to(where / "job").as_posix(): file.read_text() for file in where.rglob("*.log")
        }
        assert files == {"0/stdout.log": "out\n", "0/stderr.log": "err\n", "1/stdout.log": "out\n"}
