"""`make bench-shared`: ours and Kubeflow Trainer in a cluster that Kueue shares out, head to head.

For each system a control plane of its own (etcd, kube-apiserver, kube-controller-manager, kube-scheduler), 12
machines with 8 GPUs that kwok plays, and the real Kueue 0.19.2 with its webhooks.

- *ours*: the operator, and an ElasticJob with a master.
- *Kubeflow Trainer*: 2.3.0 with JobSet 0.12.0 as released, and a TrainJob of the runtime torch-distributed.

The same scenarios, queues and requests; no container exists, nothing trains: measured is what controllers do.
"All run" counts once it has lasted for a second. Writes are those of all programs but the benchmark itself,
counted in the API server's audit log, without leases. A system that refuses, or does not get there, is told
with its own words below the table.

    python -m benchmarks.shared [--quick] [--rounds 5] [--only delete,drain] [--system ours|trainer|both]
                               [--json FILE]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.shared.scenarios import QUEUED, SCENARIOS, chosen, noted, played, queued, started
from benchmarks.shared.scene import scene
from benchmarks.shared.sheet import Runs, tell
from benchmarks.shared.systems import SYSTEMS, System
from elasticjob.controllers.logs import configure
from lab.processes import end_on_sigterm

WARMING: Final = 99
"""The number of a round that is not measured: the first job of a cluster finds cold caches."""
QUICK: Final = 20
"""Jobs through the queue where only tried is whether it works."""


async def measure(system: System, args: Namespace, found: dict[str, dict[str, Runs]]) -> None:
    """All scenarios with one system; what is found is added as it is found."""
    with tempfile.TemporaryDirectory(prefix="bench-shared-") as folder:
        async with scene(system, Path(folder)) as on:
            await played(started(on, WARMING))
            for word in chosen(args.only):
                title, scenario = SCENARIOS[word]
                runs = found.setdefault(title, {}).setdefault(system.name, Runs())
                rounds = 1 if word == "queue" else args.rounds
                if word == "queue":
                    scenario = partial(queued, jobs=args.jobs)
                for round_ in range(rounds):
                    await noted(scenario(on, round_), title, runs)


def main() -> None:
    """Measure and print the table, also that of what was measured before an error."""
    args = _arguments()
    end_on_sigterm()
    configure(quiet=True)
    systems = [system for word, system in SYSTEMS.items() if args.system in (word, "both")]
    found: dict[str, dict[str, Runs]] = {}
    began = time.monotonic()
    try:
        for system in systems:
            asyncio.run(measure(system, args, found))
    finally:
        tell(found, [system.name for system in systems], "benchmarks.shared", began, args.json)


def _arguments() -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks.shared", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round, 20 jobs: whether it works")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each scenario but the queue (5)")
    parser.add_argument("--jobs", type=int, default=QUEUED, help=f"jobs through the queue ({QUEUED})")
    parser.add_argument("--only", default="", help=f"some of {','.join(SCENARIOS)}")
    parser.add_argument("--system", choices=[*SYSTEMS, "both"], default="both", help="both by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples there, too")
    args = parser.parse_args()
    try:
        chosen(args.only)
    except ValueError as error:
        parser.error(str(error))
    if args.quick:
        args.rounds, args.jobs = 1, QUICK
    return args


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # all that was started has been ended by now
        sys.exit(130)
