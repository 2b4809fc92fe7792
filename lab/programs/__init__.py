"""Our programs: each with its command, environment and readiness."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from elasticjob.cli.laptop.ports import free_port
from lab.processes import Process

HOST: Final = "127.0.0.1"


def elasticjob(name: str, folder: Path, *flags: object, url: str, **settings: str) -> Process:
    """One of our programs, with a log in `folder`; `settings` are added to our environment."""
    command = [sys.executable, "-m", "elasticjob.cli", name, *map(str, flags)]
    return Process(name, command, folder, {**os.environ, "PYTHONUNBUFFERED": "1", **settings}, url, "/readyz")


def operator(kubeconfig: Path, folder: Path, *flags: str, **settings: str) -> Process:
    """The operator, which installs its kinds; its URL has its probes and metrics."""
    probes = f"{HOST}:{free_port()}"
    usual = ("--kubeconfig", kubeconfig, "--probes", probes, "--install", "--webhook-port", 0)
    return elasticjob("operator", folder, *usual, *flags, url=f"http://{probes}", **settings)


def brain(
    kubeconfig: Path | None,
    folder: Path,
    key: Path,
    *flags: str,
    port: int = 0,
    database: str = "",
    probes: str = "",
    **settings: str,
) -> Process:
    """Brain, which takes tokens signed with `key`; without a kubeconfig it follows no cluster."""
    port = port or free_port()
    where = ("--kubeconfig", kubeconfig) if kubeconfig else ("--no-cluster",)
    stored = database or f"sqlite:///{folder / 'brain.db'}"
    usual = ("--database", stored, "--port", port, "--probes", probes, "--key-file", key)
    quick = {"ELASTICJOB_BRAIN_EVERY": "0.3", "ELASTICJOB_BRAIN_PACE": "0.02"} if kubeconfig else {}
    url = f"http://{HOST}:{port}"
    found = elasticjob("brain", folder, *where, *usual, *flags, url=url, **{**quick, **settings})
    found.ready = "/v1/jobs"
    return found


def di_server(kubeconfig: Path, folder: Path, *flags: str, port: int = 0) -> Process:
    """di-server, which is ready once its caches are in step."""
    port = port or free_port()
    url = f"http://{HOST}:{port}"
    return elasticjob(
        "di-server", folder, "--kubeconfig", kubeconfig, "--port", port, "--url", url, *flags, url=url
    )
