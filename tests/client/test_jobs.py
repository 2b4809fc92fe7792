"""The client and its commands on a cluster: a function and a script run under the agent."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from typer.testing import Result

from elasticjob.api.v1alpha1.elasticjob import Phase
from elasticjob.cli.errors import Exit
from elasticjob.cli.laptop.laptop import operator_of
from elasticjob.client import AlreadyThere, Client, JobFailed, NotFound, Refused, SyncClient, TimedOut
from elasticjob.kube.objects.views import CONFIG_MAP
from lab.clusters.namespaces import new_namespace
from lab.clusters.whole import WholeClusters
from lab.waiting import PATIENCE, until
from tests.kit.commands import invoke

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEAM = "team"
LIGHT: Final = {"PET_START_METHOD": "spawn"}
"""The environment of agents that import no torch, which these scripts do without."""
ENV: Final = [word for name, value in LIGHT.items() for word in ("--env", f"{name}={value}")]
HELD: Final = """\
import argparse, pathlib, time
parser = argparse.ArgumentParser()
parser.add_argument("--gate", type=pathlib.Path)
gate = parser.parse_args().gate
print("the script waits", flush=True)
while not gate.exists():
    time.sleep(0.05)
print("the script is done", flush=True)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubeconfig(
    whole_cluster: WholeClusters, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Path]:
    folder = tmp_path_factory.mktemp("cluster")
    async with whole_cluster(folder) as cluster, operator_of(cluster.kubeconfig, folder):
        async with Client(kubeconfig=cluster.kubeconfig) as client:
            await new_namespace(client.kube, TEAM)
        yield cluster.kubeconfig


@pytest_asyncio.fixture(loop_scope="module")
async def client(kubeconfig: Path) -> AsyncIterator[Client]:
    async with Client(TEAM, kubeconfig=kubeconfig) as found:
        yield found


def note(path: str, words: list[str]) -> None:
    import os
    from pathlib import Path

    rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
    Path(path).write_text(f"rank {rank} of {world}: {' '.join(words)}")


async def elasticjob(kubeconfig: Path, *words: str | Path) -> Result:
    """Run a command in a thread: a loop runs in this one."""
    place = ("--kubeconfig", kubeconfig, "-n", TEAM)
    return await asyncio.to_thread(invoke, words[0], *place, *words[1:])


async def test_a_function_trains_and_its_code_is_deleted_with_the_job(client: Client, tmp_path: Path) -> None:
    record = tmp_path / "record"
    arguments = {"path": str(record), "words": ["two", "words"]}
    job = await client.submit(function=note, arguments=arguments, cpu="100m", memory="400Mi", env=LIGHT)
    name = job.metadata.name
    assert name.startswith("note-")
    done = await client.wait(name, timeout=PATIENCE)
    assert done is not None
    assert done.status.phase is Phase.SUCCEEDED
    assert record.read_text() == "rank 0 of 1: two words"
    assert any("ended with code 0" in line.text for line in await client.logs(name))
    told = (await client.describe(name)).text
    assert "Phase:      Succeeded" in told
    assert any(event.reason == "Finished" for event in await client.events(name))
    assert [each.metadata.name for each in await client.list()] == [name]
    with pytest.raises(JobFailed, match="will not be running: Succeeded"):
        await client.wait(name, "running")
    with pytest.raises(Refused, match="does not start again"):
        await client.scale(name, 2)

    await client.delete(name)
    assert await client.wait(name, "deleted", timeout=PATIENCE) is None

    async def is_gone() -> bool:
        return await client.kube.find(CONFIG_MAP, f"{name}-code", TEAM) is None

    await until(is_gone, "the code is deleted with its job")


async def test_a_followed_script_is_looked_at_by_each_command_meanwhile(
    kubeconfig: Path, client: Client, tmp_path: Path
) -> None:
    script, gate = tmp_path / "train.py", tmp_path / "gate"
    script.write_text(HELD)
    options = ("--name", "held", "--follow", "--cpu", "100m", "--memory", "400Mi", "--workers", "1:2", *ENV)
    following = asyncio.create_task(elasticjob(kubeconfig, "submit", script, *options, "--", "--gate", gate))

    async def waits() -> bool:
        try:
            return any("the script waits" in line.text for line in await client.logs("held"))
        except NotFound:
            return False

    try:
        await until(waits, "the script waits at its gate")
        run = [
            (("list",), Exit.DONE, "held"),
            (("list", "-o", "wide"), Exit.DONE, "AllreduceStrategy"),
            (("get", "held", "-o", "name"), Exit.DONE, "elasticjob.elastic.iml.github.io/held"),
            (("describe", "held"), Exit.DONE, "held-worker-0  Running"),
            (("top", "--once"), Exit.DONE, "held"),
            (("explain", "held"), Exit.DONE, "its minimum"),
            (("wait", "held", "--for", "running"), Exit.DONE, "held: running"),
            (("wait", "held", "--for", "phase=Suspended", "--timeout", "0s"), Exit.TIMED_OUT, "within 0 s"),
            (("scale", "held", "7"), Exit.REFUSED, "maxReplicas"),
            (("scale", "held", "ps=2"), Exit.REFUSED, "no role ps"),
            (("get", "absent"), Exit.NOT_FOUND, "does not exist"),
            (("submit", str(script), "--name", "held"), Exit.REFUSED, "elasticjob delete held"),
            (("submit", str(tmp_path / "absent.py")), Exit.USAGE, "there is no file"),
            (("scale", "held", "1", "--reason", "it is small", "--wait"), Exit.DONE, "scaled to worker 1"),
        ]
        for words, code, said in run:
            found = await elasticjob(kubeconfig, *words)
            assert (found.exit_code, said in found.output) == (code, True), (words, found.output)
        as_json = await elasticjob(kubeconfig, "get", "held", "-o", "json")
        assert json.loads(as_json.stdout)["spec"]["replicaSpecs"]["worker"]["maxReplicas"] == 2
        assert any(plan.spec.reason == "it is small" for plan in (await client.describe("held")).plans)
    finally:
        gate.touch()
    followed = await following
    assert followed.exit_code == Exit.DONE, followed.output
    assert "the script is done" in followed.stdout
    assert [word for word in ("Running", "Succeeded") if word not in followed.stderr] == []
    deleted = await elasticjob(kubeconfig, "delete", "held", "--yes", "--wait")
    assert deleted.output == "held is deleted\n"


async def test_objects_of_a_dry_run_are_those_that_submit_makes(
    kubeconfig: Path, client: Client, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('ä')\n")
    flags = "--workers 1:4 --suspend --env A=b --checkpoint claim:/c -- --x 1"
    words: list[str | Path] = [script, *shlex.split(flags)]
    printed = await elasticjob(kubeconfig, "submit", "--dry-run", "-o", "yaml", "--name", "dry", *words)
    assert printed.exit_code == Exit.DONE, printed.output
    await asyncio.to_thread(
        partial(subprocess.run, check=True),
        ["kubectl", "--kubeconfig", str(kubeconfig), "apply", "-f", "-"],
        input=printed.stdout.encode(),
    )
    assert (await elasticjob(kubeconfig, "submit", "--name", "wet", *words)).exit_code == Exit.DONE

    async def spec(name: str) -> Any:
        return json.loads(json.dumps((await client.manifest(name))["spec"]).replace(name, "it"))

    assert await spec("dry") == await spec("wet")
    dry, wet = [await client.kube.get(CONFIG_MAP, f"{name}-code", TEAM) for name in ("dry", "wet")]
    assert (dry.data, dry.immutable) == (wet.data, wet.immutable) == ({"train.py": "print('ä')\n"}, True)
    assert [owner.name for owner in wet.metadata.owner_references] == ["wet"]


async def test_suspended_jobs_are_resumed_and_refused_ones_leave_nothing(
    kubeconfig: Path, client: Client
) -> None:
    def nothing() -> None: ...

    await client.submit(function=nothing, name="later", suspend=True)
    await client.wait("later", "suspended", timeout=PATIENCE)
    with pytest.raises(TimedOut, match=r"team/later: not running within 0.01 s"):
        await client.wait("later", "running", timeout=0.01)
    with pytest.raises(AlreadyThere, match="later exists"):
        await client.submit(function=nothing, name="later")
    with pytest.raises(NotFound, match="namespace absent does not exist; create it"):
        await client.submit(function=nothing, namespace="absent")
    with pytest.raises(Refused) as raised:
        await client.submit(function=nothing, name="refused", labels={"no/such/label": ""})
    assert "metadata.labels" in str(raised.value)
    assert await client.kube.find(CONFIG_MAP, "refused-code", TEAM) is None
    assert (await client.resume("later")).spec.suspend is False
    assert (await client.suspend("later")).spec.suspend is True

    def in_a_thread() -> str:  # as in a notebook, whose loop runs meanwhile
        with SyncClient(TEAM, kubeconfig=kubeconfig) as plain:
            plain.delete("later")
            with pytest.raises(NotFound, match="elasticjob list"):
                plain.get("absent")
            plain.wait("later", "deleted", timeout=PATIENCE)
            return ", ".join(job.metadata.name for job in plain.list(labels="none=such"))

    assert await asyncio.to_thread(in_a_thread) == ""


async def test_submit_says_what_the_cluster_lacks_and_creates_the_job(
    client: Client, kubeconfig: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("print()")
    asked = ("--queue", "fast", "--gang", "none", "--checkpoint", "results:/results", "--suspend")
    done = await elasticjob(kubeconfig, "submit", script, "--name", "early", *asked)
    assert done.exit_code == Exit.DONE
    assert [line.partition(" is not in")[0] for line in done.stderr.splitlines()] == [
        "warning: PersistentVolumeClaim results",
        "warning: LocalQueue fast",
    ]
    await client.delete("early")
