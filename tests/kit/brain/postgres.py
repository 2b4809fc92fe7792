"""A PostgreSQL server of the tests: one for each process of them, on loopback, gone with it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from elasticjob.cli.laptop.ports import free_port
from tests.kit.waiting import PATIENCE

USER = "nobody"
"""Whom the server runs as, where the tests run as root: it refuses that."""
QUICK = ("fsync=off", "full_page_writes=off", "max_connections=40")


def programs() -> Path:
    """Return the folder of the newest PostgreSQL; skips where there is none, but fails in CI."""
    if on_path := shutil.which("initdb"):
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda each: float(each.parts[4]))
    return found[-1].parent if found else lacking("postgresql")


def lacking(package: str) -> NoReturn:
    """Skip a test for which a package of Debian is missing; fail in CI."""
    why = f"install Debian's package {package}"
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Run a server whose data are in `folder`; yields its URL, without the name of a database."""
    here, port, data = programs(), free_port(), folder / "data"
    prefix: tuple[str | Path, ...] = ("setpriv", "--pdeathsig", "KILL")
    if os.getuid() == 0:
        prefix = (*prefix, "--reuid", USER, "--clear-groups")
        os.chown(folder, pwd.getpwnam(USER).pw_uid, -1)
    env = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
    settings = [part for each in (*QUICK, f"unix_socket_directories={folder}") for part in ("-c", each)]
    made: tuple[str | Path, ...] = (here / "initdb", "-D", data, "-U", "brain", "--no-sync")
    made = (*made, "-A", "trust", "-E", "UTF8")
    subprocess.run((*prefix, *made), check=True, cwd=folder, capture_output=True, env=env)
    with (folder / "log").open("wb") as log:
        served: tuple[str | Path, ...] = (here / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port))
        server = subprocess.Popen((*prefix, *served, *settings), cwd=folder, env=env, stdout=log, stderr=log)
    try:
        _wait((here / "pg_isready", "-h", "127.0.0.1", "-p", str(port)), server)
        yield f"postgresql://brain@127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGINT)  # after SIGTERM it would wait for its clients
        server.wait(PATIENCE)


def _wait(asked: tuple[str | Path, ...], server: subprocess.Popen[bytes]) -> None:
    """Return once the server answers."""
    until = time.monotonic() + PATIENCE
    while subprocess.run(asked, capture_output=True).returncode:
        assert server.poll() is None, "PostgreSQL has ended: see its log"
        assert time.monotonic() < until, "PostgreSQL does not answer"
        time.sleep(0.02)
