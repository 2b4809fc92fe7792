"""A PostgreSQL server of the tests: one for each process of them, on loopback, gone with it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from elasticjob.cli.laptop.ports import free_port
from lab.processes import Command, Process
from lab.programs import HOST

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


class Postgres(Process):
    """A server that may be stopped and started again, with the data in `folder`; its URL has no database."""

    END = signal.SIGINT
    """With the connections of its clients: after SIGTERM it would wait for them."""

    def __init__(self, folder: Path) -> None:
        here, port = programs(), str(free_port())
        environ, user = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}, tuple[str, ...]()
        if os.getuid() == 0:
            user = ("setpriv", "--pdeathsig", "KILL", "--reuid", USER, "--clear-groups")
            os.chown(folder, pwd.getpwnam(USER).pw_uid, -1)
        run = partial(subprocess.run, cwd=folder, capture_output=True, env=environ)
        data, trust = ("-D", str(folder / "data")), ("-U", "brain", "-A", "trust")
        run((*user, here / "initdb", *data, *trust, "--no-sync", "-E", "UTF8"), check=True)
        settings = [part for one in (*QUICK, f"unix_socket_directories={folder}") for part in ("-c", one)]
        at = ("-h", HOST, "-p", port)
        command: Command = (*user, here / "postgres", *data, *at, *settings)
        url = f"postgresql://brain@{HOST}:{port}"
        super().__init__("postgres", command, folder, environ, url, cwd=folder)
        self.ready = lambda: not run((here / "pg_isready", *at)).returncode
