"""A parameter server of the store: `python -m elasticjob.trainer.store.serve [--port PORT] [FOLDER]`.

Its place, its master and its address come from the pod's environment. Checkpoints are kept in FOLDER, which
all servers share, or at a URL that fsspec knows. It ends when the job does, and by SIGTERM.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable

from elasticjob.api.logs import configure
from elasticjob.api.rpc.parameters import Kept, Positions
from elasticjob.trainer.checkpoint import newest
from elasticjob.trainer.checkpoint.storage import Trouble
from elasticjob.trainer.servers.link import end_by_sigterm, way_of
from elasticjob.trainer.servers.serving import Serving
from elasticjob.trainer.store.saved import Files
from elasticjob.trainer.store.server import Copy, Server
from elasticjob.trainer.store.wire import Written

log = logging.getLogger("elasticjob.store")


class ServerCheckpoints:
    """The checkpoints of a server."""

    def __init__(self, server: Server, files: Files, pause: Callable[[float], None] = time.sleep) -> None:
        self._server, self._files, self._pause = server, files, pause
        self._number = 0
        self._copies: dict[int, Copy] = {}
        self._written: dict[int, tuple[str, Written]] = {}

    def newest(self) -> Kept | None:
        """Return the newest checkpoint; while storage cannot be read, wait, up to a bound."""

        def wait(trouble: Trouble, seconds: float) -> None:
            log.warning("checkpoints cannot be read, next look in %.0f s: %s", seconds, trouble)
            self._pause(seconds)

        return newest.patiently(self._files.newest, newest.patience(os.environ), wait)

    def copy(self, number: int) -> None:
        """Keep the values of now."""
        self._number, self._copies = number, {number: self._server.copy()}

    def write(self, number: int, positions: Positions, place: int, servers: int) -> None:
        """Write the copy; return when the checkpoint is committed: all servers have written theirs then."""
        if number not in self._written:
            copy = self._copies[number]
            files = self._files.write(number, copy.partitions, positions)
            self._written = {number: (copy.committer, Written(number, files))}
            self._copies.pop(number)
        self._server.commit(*self._written[number], lambda: self._number == number)

    def keep(self, number: int) -> None:
        """Delete older ones."""
        self._files.keep(number)


def main(arguments: list[str] | None = None) -> None:
    """Serve until the job ends."""
    parser = argparse.ArgumentParser(prog="python -m elasticjob.trainer.store.serve", description=__doc__)
    parser.add_argument(
        "folder", nargs="?", help="checkpoints, shared by all servers, or a URL of fsspec; none without"
    )
    parser.add_argument("--port", type=int, default=0, help="where to listen (any free port)")
    given = parser.parse_args(arguments)
    configure(os.environ)
    end_by_sigterm(sys.exit)
    way = way_of(os.environ)
    patience = newest.patience(os.environ)
    files = Files(given.folder, patience=patience) if given.folder else None
    host = os.environ.get("POD_IP", "127.0.0.1")
    with Server(host, given.port, token=way.token(), files=files) as server:
        checkpoints = ServerCheckpoints(server, files) if files else None
        with Serving(server.address, server, checkpoints=checkpoints, copies=True, way=way) as serving:
            serving.wait()


if __name__ == "__main__":
    main()
