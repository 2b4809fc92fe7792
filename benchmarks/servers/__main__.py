"""How long a TensorFlow job stands still in each change of its servers and workers, beside the targets.

    python -m benchmarks.servers --mb 10 100 400

A job whose model has so many megabytes, half of them the optimizer's, runs on a devcluster of this machine;
plans change it. A figure is the longest time without a step of any worker, from before to sixty steps after
it. Processes are forked from one that has imported TensorFlow, as warm processes of agents are.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.figures import machine
from lab.clusters.forked import stage_in
from lab.jobs.training.over_servers import counts, play

ROW: Final = 2 * 32 * 4
"""Bytes of a user: 32 floats, and the optimizer's."""
RECORDS: Final = 300_000
TARGETS: Final = {
    "servers 3 -> 4": 1.0,
    "servers 4 -> 2": 1.0,
    "migrate a server": 0.6,
    "workers 2 -> 4": 0.1,
    "checkpoint": 0.2,
    "SIGKILL of a server, back to the checkpoint": 2.0,
    "SIGKILL of a worker": 0.1,
    "workers -> 1": 0.1,
    "servers 2 -> 3, one worker": 1.0,
}
"""Seconds, at 100 MB on an idle machine with two cores."""


async def measured(megabytes: int) -> tuple[dict[str, float], list[int]]:
    """Return the standstills with a model of that size, and how often its records count."""
    with TemporaryDirectory() as name:
        async with stage_in(Path(name), "servers") as at:
            users = megabytes * 1_000_000 // ROW
            stood = await play(at.site, at.run, at.pids, records=RECORDS, users=users)
        return stood, await asyncio.to_thread(counts, at.run)


def main() -> None:
    """Print one table."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, nargs="+", default=[100], metavar="N", help="sizes of the model")
    sizes = parser.parse_args().mb
    found = {size: asyncio.run(measured(size)) for size in sizes}
    print(f"\nseconds without a step; {machine()}")
    print(f"{'change':45} {'target':>7}" + "".join(f"{size:>7} MB" for size in sizes))
    for change, target in TARGETS.items():
        print(f"{change:45} {target:7.1f}" + "".join(f"{found[size][0][change]:10.2f}" for size in sizes))
    for size in sizes:
        never, once, twice, most = found[size][1]
        print(f"{size} MB: {once} records once, {never} never, {twice} twice, at most {most} times")


if __name__ == "__main__":
    main()
