"""`elasticjob devcluster`: for the length of a command, or until told to end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import psutil
import pytest
import yaml

from elasticjob.cli.commands.devcluster import Settings, devcluster, node_list, serve
from elasticjob.cli.errors import Failure
from elasticjob.cli.laptop.laptop import after_death
from elasticjob.devcluster import VirtualNode
from elasticjob.devcluster.quantity import parse_all
from lab.waiting import until

NODES = [VirtualNode("n", {"cpu": "2", "pods": "5"})]


def settings(
    *command: str, kubeconfig: Path | None = None, keep: bool = False, rbac: bool = False
) -> Settings:
    return Settings(command, kubeconfig, keep, NODES, 0, rbac=rbac)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
async def test_exit_code_of_the_command(script: str, code: int, tmp_path: Path) -> None:
    assert await serve(settings("sh", "-c", script), tmp_path) == code


async def test_the_command_finds_the_cluster(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert await serve(settings("kubectl", "get", "nodes", "-o", "name"), tmp_path) == 0
    assert capfd.readouterr().out == "node/n\n"


@pytest.mark.parametrize("rbac", [True, False])
async def test_roles_count_where_that_is_asked_for(
    rbac: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "alice", "resourceAttributes": {"verb": "create", "resource": "pods"}},
    }
    (tmp_path / "review.json").write_text(json.dumps(review))
    words = ("create", "-f", str(tmp_path / "review.json"), "-o", "jsonpath={.status.allowed}")
    assert await serve(settings("kubectl", *words, rbac=rbac), tmp_path / "state") == 0
    assert capfd.readouterr().out == ("false" if rbac else "true")


async def test_command_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot run 'no-such'"):
        await serve(settings("no-such"), tmp_path)


async def test_runs_until_told_and_says_how_to_use_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "elsewhere" / "config"
    running = asyncio.create_task(serve(settings(kubeconfig=target), tmp_path / "state"))
    output = ""

    def is_up() -> bool:
        nonlocal output
        output += capsys.readouterr().out
        return "Ctrl-C" in output

    await until(is_up)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert f"export KUBECONFIG={target}" in output
    assert yaml.safe_load(target.read_text())["current-context"] == "devcluster"


async def test_kubeconfig_of_another_cluster_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "config"
    target.write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(Failure, match="is the kubeconfig of another cluster"):
        await serve(settings("true", kubeconfig=target), tmp_path)
    assert target.read_text() == "apiVersion: v1\nkind: Config\n"


async def test_own_kubeconfig_is_written_again(tmp_path: Path) -> None:
    target = tmp_path / "config"
    for _ in range(2):
        assert await serve(settings("true", kubeconfig=target), tmp_path) == 0


def test_nodes_have_what_the_machine_has_and_what_was_said() -> None:
    first, second = node_list(2, ["nvidia.com/gpu=2", "cpu=64"])
    assert (first.name, second.name) == ("devcluster-0", "devcluster-1")
    assert (first.capacity["cpu"], first.capacity["nvidia.com/gpu"]) == ("64", "2")
    assert {"memory", "ephemeral-storage", "pods"} <= first.capacity.keys()
    assert parse_all(first.capacity)["ephemeral-storage"] > 2**30  # as real nodes have it


@pytest.mark.parametrize("text", ["cpu", "cpu=", "cpu=many", "=2"])
def test_malformed_capacity(text: str) -> None:
    with pytest.raises(Failure, match=f"--capacity {text}"):
        node_list(1, [text])


def test_a_used_port_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Failure, match=f"port {port} is in use; choose another --port"):
            devcluster(["true"], port=port)


@pytest.mark.parametrize(
    ("code", "seconds", "before", "deaths", "sentence"),
    [
        (1, 2.0, 0, 1, "the operator ended with exit code 1 and is started again in 1 s; its log ends: no"),
        (0, 2.0, 1, 2, "the operator ended with exit code 0 and is started again in 2 s; its log ends: no"),
        (-9, 2.0, 3, 4, "the operator was killed by signal 9 and is started again in 8 s; its log ends: no"),
        (
            1,
            2.0,
            5000,
            5001,
            "the operator ended with exit code 1 and is started again in 60 s; its log ends: no",
        ),
        (1, 600.0, 9, 1, "the operator ended with exit code 1 and is started again in 1 s; its log ends: no"),
    ],
)
def test_pause_grows_with_each_death(
    code: int, seconds: float, before: int, deaths: int, sentence: str
) -> None:
    restart = after_death(code, seconds, before, "no")
    assert (restart.deaths, restart.sentence) == (deaths, sentence)


def operators() -> set[int]:
    """Return the operators that this process has started, and that run."""
    return {child.pid for child in psutil.Process().children() if is_operator(child)}


def is_operator(child: psutil.Process) -> bool:
    try:
        return child.status() != psutil.STATUS_ZOMBIE and "operator" in child.cmdline()
    except psutil.NoSuchProcess:  # it ends at this moment
        return False


@pytest.mark.story  # two operators start, each imports all that it serves
async def test_operator_that_dies_is_started_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = asyncio.create_task(serve(Settings((), None, False, NODES, 0, operator=True), tmp_path))
    shown = ""

    def says(text: str) -> bool:
        nonlocal shown
        shown += "".join(capsys.readouterr())
        return text in shown or running.done()

    await until(lambda: says("Ctrl-C"))
    (first,) = operators()
    os.kill(first, signal.SIGKILL)
    await until(lambda: says("the operator was killed by signal 9 and is started again in 1 s"))
    await until(lambda: operators() - {first} or running.done())
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert not operators()
