"""A parameter server of the store: `python -m elasticjob.trainer.store.serve [--port PORT] [FOLDER]`.

Its place, its master and its address come from the pod's environment. Checkpoints are kept in FOLDER, which
all servers share. It ends when the job does, and by SIGTERM.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from elasticjob.api.rpc.parameters import Kept, Positions
from elasticjob.trainer.parameters import Serving, end_by_sigterm, way_of
from elasticjob.trainer.store.saved import Files
from elasticjob.trainer.store.server import Server
from elasticjob.trainer.store.wire import Partitions


class Checkpointed:
    """The checkpoints of a server."""

    def __init__(self, server: Server, files: Files) -> None:
        self._server, self._files = server, files
        self._copies: dict[int, Partitions] = {}

    def found(self) -> Kept | None:
        """Return the newest whole checkpoint."""
        return self._files.newest()

    def copy(self, number: int) -> None:
        """Keep the values of now."""
        self._copies = {number: self._server.copy()}

    def write(self, number: int, positions: Positions, place: int, servers: int) -> None:
        """Write the copy."""
        self._files.write(number, self._copies[number])
        if place == 0:
            self._files.write_positions(number, positions)
        self._copies.pop(number)

    def keep(self, number: int) -> None:
        """Delete older ones."""
        self._files.keep(number)


def main(arguments: list[str] | None = None) -> None:
    """Serve until the job ends."""
    parser = argparse.ArgumentParser(prog="python -m elasticjob.trainer.store.serve", description=__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, help="checkpoints, shared by all servers; none without"
    )
    parser.add_argument("--port", type=int, default=0, help="where to listen (any free port)")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    end_by_sigterm(sys.exit)
    way = way_of(os.environ)
    files = Files(given.folder) if given.folder else None
    host = os.environ.get("POD_IP", "127.0.0.1")
    with Server(host, given.port, token=way.token(), files=files) as server:
        checkpoints = Checkpointed(server, files) if files else None
        with Serving(server.address, server, checkpoints=checkpoints, copies=True, way=way) as serving:
            serving.wait()


if __name__ == "__main__":
    main()
