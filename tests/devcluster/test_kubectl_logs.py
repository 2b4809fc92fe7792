"""`kubectl logs`, the real one, through the API server to the kubelet of a dev cluster."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.kit.devcluster.live import Live, kubectl

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAIR = [
    {"name": "a", "image": "busybox", "command": ["sh", "-c", "echo from a"]},
    {"name": "b", "image": "busybox", "command": ["sh", "-c", "echo from b"]},
]


async def logs(cluster: Live, *arguments: str) -> tuple[int, str]:
    return await kubectl(cluster.cluster, "-n", cluster.namespace, "logs", *arguments)


async def test_what_is_asked_for_is_printed(cluster: Live) -> None:
    await cluster.start("p", "sh", "-c", "echo one; echo two; printf three", labels={"app": "x"})
    await cluster.start("pair", containers=PAIR)
    await cluster.finished("p")
    await cluster.finished("pair")
    asked = {
        ("p",): "one\ntwo\nthree",
        ("p", "--tail=2"): "two\nthree",
        ("p", "-c", "main", "--since=1h", "--limit-bytes=5"): "one\nt",
        ("-l", "app=x", "--prefix", "--tail=-1"): "[pod/p/main] one\n[pod/p/main] two\n[pod/p/main] three",
        ("p", "-f"): "one\ntwo\nthree",
        ("pair", "-c", "b"): "from b\n",
        ("pair",): 'Defaulted container "a" out of: a, b\nfrom a\n',
    }
    for arguments, expected in asked.items():
        assert await logs(cluster, *arguments) == (0, expected), arguments
    _, both = await logs(cluster, "pair", "--all-containers")
    assert sorted(both.splitlines()) == ["from a", "from b"]
    _, stamped = await logs(cluster, "p", "--timestamps", "--tail=1")
    assert stamped[:4].isdecimal()
    assert stamped.endswith("Z three")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none",), 'error: error from server (NotFound): pods "none" not found'),
        (("p", "-c", "other"), "error: container other is not valid for pod p"),
        (("p", "--previous"), 'previous terminated container "main" in pod "p" not found'),
        (("homeless",), "pod homeless does not have a host assigned"),
    ],
)
async def test_what_is_not_there_is_told(cluster: Live, arguments: tuple[str, ...], message: str) -> None:
    await cluster.start("p", "true")
    await cluster.start("homeless", "true", nodeSelector={"no": "where"})
    await cluster.finished("p")
    code, output = await logs(cluster, *arguments)
    assert code == 1
    assert message in output


async def test_a_reader_that_goes_away_disturbs_nobody(
    cluster: Live, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"echo begun; read x < {gate}; seq 1 200000"
    await cluster.start("p", "sh", "-c", script)
    await cluster.logged("p", "begun")
    config = str(cluster.cluster.kubeconfig)
    reader = await asyncio.create_subprocess_exec(
        *("kubectl", "--kubeconfig", config, "-n", cluster.namespace, "logs", "-f", "p"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert reader.stdout is not None
    assert await reader.stdout.readline() == b"begun\n"
    await asyncio.to_thread(gate.write_text, "\n")
    await reader.stdout.readline()
    reader.kill()
    await reader.communicate()  # wait() alone never returns: a full pipe is not read to its end
    await cluster.finished("p")
    assert (await cluster.logs("p", tail=1)) == "200000\n"
    assert not [record for record in caplog.records if record.exc_info]
