"""`elasticjob dashboard`: what it refuses before it serves anything."""

from __future__ import annotations

import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from typer.testing import CliRunner

from elasticjob.cli.main import application


def test_a_way_to_masters_that_is_unknown_is_said_in_one_line() -> None:
    words = ["dashboard", "--masters", "telepathy"]
    found = CliRunner().invoke(application(words), words)
    assert (found.exit_code, found.stdout) == (2, "")
    said = "--masters telepathy is unknown; give one of auto, proxy, direct, none"
    assert said in found.stderr.splitlines()[-1]


def test_a_kubeconfig_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "elasticjob.cli", "dashboard", "--kubeconfig", "nowhere"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (4, "")
    assert "nowhere" in found.stderr.splitlines()[-1]
    assert "Traceback" not in found.stderr


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    clusters, users = "[{name: c, cluster: {server: 'http://127.0.0.1:%d'}}]", "[{name: u, user: {}}]"
    contexts = "[{name: c, context: {cluster: c, user: u}}]"
    with ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        config = tmp_path / "kubeconfig"
        config.write_text(
            f"current-context: c\nclusters: {clusters % server.server_port}\nusers: {users}\n"
            f"contexts: {contexts}\n"
        )
        flags = ["--kubeconfig", str(config), "-n", "team", "--port", str(server.server_port)]
        command = [sys.executable, "-m", "elasticjob.cli", "dashboard", *flags]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        server.shutdown()
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1].startswith("error: cannot listen at 127.0.0.1:")
    assert "Traceback" not in found.stderr


class Nothing(BaseHTTPRequestHandler):
    """Answers nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""
