"""`elasticjob dashboard`: what it refuses before it serves anything."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.kit.commands import invoke
from tests.kit.kube.kubeconfigs import write


def test_a_way_to_masters_that_is_unknown_is_said_in_one_line() -> None:
    found = invoke("dashboard", "--masters", "telepathy")
    assert (found.exit_code, found.stdout) == (2, "")
    said = "--masters telepathy is unknown; give one of auto, proxy, direct, none"
    assert said in found.stderr.splitlines()[-1]


def test_a_kubeconfig_that_is_not_there_is_said_in_one_line() -> None:
    found = invoke("dashboard", "--kubeconfig", "nowhere")
    assert (found.exit_code, found.stdout) == (4, "")
    assert "nowhere" in found.stderr.splitlines()[-1]
    assert "Traceback" not in found.stderr


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = write(tmp_path / "kubeconfig", {}, {"server": f"http://127.0.0.1:{port}"})
        found = invoke("dashboard", "--kubeconfig", config, "-n", "team", "--port", port)
    assert found.exit_code == 1
    [said] = found.stderr.splitlines()
    assert said.startswith("error: cannot listen at 127.0.0.1:")
