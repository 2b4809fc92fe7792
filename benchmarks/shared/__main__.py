"""`make bench-shared`: ours and Kubeflow Trainer in a cluster that Kueue shares out, head to head.

For each system a control plane of its own (etcd, kube-apiserver, kube-controller-manager, kube-scheduler), 12
machines with 8 GPUs that kwok plays, and the real Kueue 0.19.2 with its webhooks.

- *ours*: the operator, and an ElasticJob with a master.
- *Kubeflow Trainer*: 2.3.0 with JobSet 0.12.0 as released, and a TrainJob of the runtime torch-distributed.

The same scenarios, queues and requests; no container exists, nothing trains: measured is what controllers do.
"All run" counts once it has lasted for a second. Writes are those of all programs but the benchmark itself,
counted in the API server's audit log, without leases. A system that refuses, or does not get there, is told
with its own words below the table.

With `--training` (`make bench-shared TRAINING=1`) jobs really train: steps lost, and seconds without one. A
whole node of this machine, as root (hack/node): kubelet, containers, Kueue, one system after the other, with
the same image and volume. All train the digits of examples/digits/train.py with gloo, on one to three
workers, and save each 50 steps.

- *ours*: an ElasticJob that runs this script, which uses `Elastic`.
- *ours, plain script* (`plain`): an ElasticJob that runs an ordinary script, lab/scripts/digits_steps.py.
- *Kubeflow Trainer*: a TrainJob that runs torchrun with the same script.

A gap is the time between two steps that anybody made, from the trouble on until the job trains again. Steps
trained again are those since the last save, where a system goes back to it.

    python -m benchmarks.shared [--training] [--quick] [--rounds 5] [--only delete,drain]
                               [--system ours,plain,trainer] [--json FILE]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.shared.scenarios import QUEUED, SCENARIOS, chosen, noted, played, queued, started
from benchmarks.shared.scene import scene
from benchmarks.shared.sheet import Runs, tell
from benchmarks.shared.systems import SYSTEMS, System
from benchmarks.shared.training import scenarios as training
from benchmarks.shared.training.jobs import columns
from benchmarks.shared.training.scene import node, training_scene
from elasticjob.controllers.logs import configure
from lab.clusters import binaries
from lab.clusters.node.host import Unfit
from lab.clusters.node.node import Refused
from lab.processes import end_on_sigterm

WARMING: Final = 99
"""The number of a round that is not measured: the first job of a cluster finds cold caches."""
QUICK: Final = 20
"""Jobs through the queue where only tried is whether it works."""
SETS: Final = ("control-plane", "node", "kueue", "peers-of-queue")
Opening = Callable[[System, Path], AbstractAsyncContextManager[Any]]


async def measure(
    system: System, opening: Opening, args: Namespace, found: dict[str, dict[str, Runs]]
) -> None:
    """All scenarios with one system; what is found is added as it is found."""
    with tempfile.TemporaryDirectory(prefix="bench-shared-") as folder:
        async with opening(system, Path(folder)) as on:
            if not args.training:
                await played(started(on, WARMING))
            for word in args.only:
                title, scenario = args.scenarios[word]
                runs = found.setdefault(title, {}).setdefault(system.name, Runs())
                for round_ in range(1 if word == "queue" else args.rounds):
                    await noted(scenario(on, round_), title, runs)


def main() -> None:
    """Measure and print the table, also that of what was measured before an error."""
    args = _arguments()
    end_on_sigterm()
    configure(quiet=True)
    found: dict[str, dict[str, Runs]] = {}
    names: list[str] = []
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            systems: Mapping[str, System] = SYSTEMS
            opening: Opening = scene
            if args.training:
                binaries.require(*SETS)
                on = stack.enter_context(node())
                systems, opening = columns(on.volumes), partial(training_scene, on)
            for system in (systems[word] for word in args.system):
                names.append(system.name)
                asyncio.run(measure(system, opening, args, found))
    finally:
        tell(found, names, "benchmarks.shared", began, args.json)


def _arguments() -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks.shared", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--training", action="store_true", help="jobs really train, on a node, as root")
    parser.add_argument("--quick", action="store_true", help="one round, 20 jobs: whether it works")
    parser.add_argument("--rounds", type=int, help="runs of each scenario but the queue (5; training: 1)")
    parser.add_argument("--jobs", type=int, default=QUEUED, help=f"jobs through the queue ({QUEUED})")
    words = ",".join(dict.fromkeys([*SCENARIOS, *training.SCENARIOS]))
    parser.add_argument("--only", default="", help=f"some of {words}; all by default")
    systems = columns(Path())
    parser.add_argument("--system", default="", help=f"some of {','.join(systems)}; all by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples there, too")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.jobs = 1, QUICK
    args.rounds = args.rounds or (1 if args.training else 5)
    queue = (SCENARIOS["queue"][0], partial(queued, jobs=args.jobs))
    args.scenarios = training.SCENARIOS if args.training else {**SCENARIOS, "queue": queue}
    try:
        args.only = chosen(args.only, args.scenarios)
        args.system = chosen(args.system, systems if args.training else SYSTEMS)
    except ValueError as error:
        parser.error(str(error))
    return args


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # all that was started has been ended by now
        sys.exit(130)
    except (Unfit, Refused, binaries.Missing) as error:
        sys.exit(f"error: {error}")
