"""Starts a node of Ray on this machine: its raylet, and on the first one the head and the script that trains.

    python -m benchmarks.training.peers.ray RANK PORT WORKERS FOLDER SCRIPT ARGUMENT ...

Workers of a node are the raylet's; what they tell goes to this process's output, not to that of the script.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from lab.processes import listens

STORE: Final = 100_000_000
"""Bytes of shared memory for objects: there are none to speak of, and without it Ray takes a third of all."""


def main() -> None:
    """Run until the raylet ends, or the script."""
    rank, port, workers, folder, *script = sys.argv[1:]
    os.environ |= {"BENCH_TOLD": f"/proc/{os.getpid()}/fd/1", "BENCH_FOLDER": folder}
    raylet = subprocess.Popen(started(int(rank), port, workers, folder), stdout=sys.stderr)
    while rank == "0" and not listens(int(port)) and raylet.poll() is None:
        time.sleep(0.05)
    if rank != "0" or raylet.poll() is not None:
        sys.exit(raylet.wait())
    os.environ["RAY_ADDRESS"] = f"127.0.0.1:{port}"
    sys.exit(subprocess.call([sys.executable, *script], stdout=sys.stderr))


def started(rank: int, port: str, workers: str, folder: str) -> list[str]:
    """Return Ray's command for a node with so many workers."""
    words = [str(Path(sys.prefix, "bin", "ray")), "start", "--block", "--disable-usage-stats"]
    words += ["--node-ip-address=127.0.0.1", f"--num-cpus={workers}", f"--object-store-memory={STORE}"]
    words += ["--min-worker-port=0", "--max-worker-port=0"]  # any: the port of the job may be in Ray's range
    if rank > 0:
        return [*words, f"--address=127.0.0.1:{port}"]
    return [*words, "--head", f"--port={port}", f"--temp-dir={folder}"]


if __name__ == "__main__":
    main()
