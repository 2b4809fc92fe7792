"""The program of a parameter server: `python -m elasticjob.trainer.tensorflow.serve [FOLDER]`.

FOLDER has the checkpoints; all servers and workers see it. Address, place and master come from the pod's
environment; the port is any, or ELASTICJOB_PORT.
"""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

from elasticjob.api.logs import configure
from elasticjob.api.rpc import environment as names
from elasticjob.trainer.servers.link import end_by_sigterm
from elasticjob.trainer.servers.serving import Serving
from elasticjob.trainer.tensorflow.server import Server

PORT = "ELASTICJOB_PORT"


def main(arguments: list[str] | None = None) -> None:
    """Serve until the job ends."""
    program = "python -m elasticjob.trainer.tensorflow.serve"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="checkpoints, shared by all; none without")
    folder = parser.parse_args(arguments).folder
    configure(os.environ)
    end_by_sigterm(os._exit)
    host, port = os.environ.get(names.POD_IP, "127.0.0.1"), os.environ.get(PORT, "0")
    server = Server(f"{host}:{port}", folder)
    with Serving(server.address, server, checkpoints=server if folder else None) as serving:
        logging.getLogger("elasticjob.tensorflow").info("serves at %s", server.address)
        serving.wait()
        os._exit(0)  # a server of TensorFlow cannot be stopped; its threads may wait for those that have gone


if __name__ == "__main__":
    main()
