"""Agents of one machine that run a module of a benchmark as nodes of one worker."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

MARK = '"told"'


def played(nodes: int, module: str, *arguments: str, patience: float = 900.0) -> dict[str, Any]:
    """Run a module on so many nodes; return what rank 0 has told, as JSON with the key `told`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "elasticjob.cli", "run", "--nnodes", str(nodes), "--nproc-per-node", "1"]
    command += ["--rdzv-endpoint", f"127.0.0.1:{port}", "-m", module, "--worker", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    agents = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(nodes)
    ]
    try:
        printed = [line for each in agents for line in each.communicate(timeout=patience)[0].splitlines()]
    finally:
        for each in agents:
            each.kill()
    told = next(line for line in printed if MARK in line)
    found: dict[str, Any] = json.loads(told[told.index("{") :])["told"]
    return found
