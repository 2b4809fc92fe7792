"""`make bench-shared TRAINING=1`: the same, where jobs really train: steps lost, and seconds without one.

A whole node of this machine, as root (hack/node): kubelet, containers, and the real Kueue 0.19.2. One system
after the other, with the same image, volume, requests and queues. All train the digits of
examples/digits/train.py with gloo, on one to three workers, and save each 50 steps.

- *ours*: an ElasticJob that runs this script, which uses `Elastic`.
- *ours, plain script*: an ElasticJob that runs an ordinary script, lab/scripts/digits_steps.py.
- *Kubeflow Trainer*: 2.3.0 with JobSet 0.12.0 as released, and a TrainJob of the runtime torch-distributed
  that runs torchrun with the same script.

A gap is the time between two steps that anybody made, from the trouble on until the job trains again. Steps
trained again are those since the last save, where a system goes back to it.

    python -m benchmarks.shared.training [--rounds 2] [--only delete,kill] [--system ours,plain,trainer]
                                        [--json FILE]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from benchmarks.shared.scenarios import chosen, noted
from benchmarks.shared.sheet import Runs, tell
from benchmarks.shared.systems import System
from benchmarks.shared.training.jobs import columns
from benchmarks.shared.training.scenarios import SCENARIOS
from benchmarks.shared.training.scene import node, scene
from elasticjob.controllers.logs import configure
from lab.clusters import binaries
from lab.clusters.node.host import Unfit
from lab.clusters.node.node import Node, Refused
from lab.processes import end_on_sigterm

SETS = ("control-plane", "node", "kueue", "peers-of-queue")


async def measure(system: System, on: Node, args: Namespace, found: dict[str, dict[str, Runs]]) -> None:
    """All scenarios with one system; what is found is added as it is found."""
    with tempfile.TemporaryDirectory(prefix="bench-shared-") as folder:
        async with scene(system, on, Path(folder)) as playing:
            for word in args.only:
                title, scenario = SCENARIOS[word]
                runs = found.setdefault(title, {}).setdefault(system.name, Runs())
                for round_ in range(args.rounds):
                    await noted(scenario(playing, round_), title, runs)


def main() -> None:
    """Measure and print the table, also that of what was measured before an error."""
    args = _arguments()
    end_on_sigterm()
    configure(quiet=True)
    binaries.require(*SETS)
    found: dict[str, dict[str, Runs]] = {}
    names: list[str] = []
    began = time.monotonic()
    try:
        with node() as on:
            for word, system in columns(on.volumes).items():
                if word in args.system:
                    names.append(system.name)
                    asyncio.run(measure(system, on, args, found))
    finally:
        tell(found, names, "benchmarks.shared.training", began, args.json)


def _arguments() -> Namespace:
    systems = [*columns(Path())]
    parser = ArgumentParser(
        prog="python -m benchmarks.shared.training", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=1, help="runs of each scenario (1)")
    parser.add_argument("--only", default="", help=f"some of {','.join(SCENARIOS)}")
    parser.add_argument("--system", default="", help=f"some of {','.join(systems)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples there, too")
    args = parser.parse_args()
    try:
        args.only, args.system = chosen(args.only, SCENARIOS), chosen(args.system, systems)
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
