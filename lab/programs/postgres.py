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
from lab.waiting import PATIENCE

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


class Postgres:
    """A server that may be stopped and started again, with the data in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"postgresql://brain@127.0.0.1:{self.port}"
        """Without the name of a database."""
        self._here, self._folder = programs(), folder
        self._prefix: tuple[str | Path, ...] = ("setpriv", "--pdeathsig", "KILL")
        if os.getuid() == 0:
            self._prefix = (*self._prefix, "--reuid", USER, "--clear-groups")
            os.chown(folder, pwd.getpwnam(USER).pw_uid, -1)
        self._env = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
        made: tuple[str | Path, ...] = (self._here / "initdb", "-D", folder / "data", "-U", "brain")
        made = (*self._prefix, *made, "--no-sync", "-A", "trust", "-E", "UTF8")
        subprocess.run(made, check=True, cwd=folder, capture_output=True, env=self._env)

    def start(self) -> None:
        """Return once it answers."""
        each = (*QUICK, f"unix_socket_directories={self._folder}")
        settings = [part for one in each for part in ("-c", one)]
        at = ("-D", self._folder / "data", "-h", "127.0.0.1", "-p", str(self.port))
        command = (*self._prefix, self._here / "postgres", *at, *settings)
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(command, cwd=self._folder, env=self._env, stdout=log, stderr=log)
        _wait((self._here / "pg_isready", "-h", "127.0.0.1", "-p", str(self.port)), self._server)

    def stop(self) -> None:
        """End it, with the connections of its clients."""
        self._server.send_signal(signal.SIGINT)  # after SIGTERM it would wait for them
        self._server.wait(PATIENCE)


@contextmanager
def running(folder: Path) -> Iterator[Postgres]:
    """Run a server whose data are in `folder`."""
    server = Postgres(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _wait(asked: tuple[str | Path, ...], server: subprocess.Popen[bytes]) -> None:
    """Return once the server answers."""
    until = time.monotonic() + PATIENCE
    while subprocess.run(asked, capture_output=True).returncode:
        assert server.poll() is None, "PostgreSQL has ended: see its log"
        assert time.monotonic() < until, "PostgreSQL does not answer"
        time.sleep(0.02)
