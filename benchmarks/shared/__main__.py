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

    python -m benchmarks.shared --only delete,drain --system ours
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Option

from benchmarks.commands import chosen, play
from benchmarks.shared.scenarios import QUEUED, SCENARIOS, Scenario, noted, played, queued, started
from benchmarks.shared.scene import scene
from benchmarks.shared.sheet import Runs, tell
from benchmarks.shared.systems import SYSTEMS, System
from benchmarks.shared.training import scenarios as training
from benchmarks.shared.training.jobs import columns
from benchmarks.shared.training.scene import node, training_scene
from lab.clusters import binaries
from lab.clusters.node.host import Unfit
from lab.clusters.node.node import Refused

WARMING: Final = 99
"""The number of a round that is not measured: the first job of a cluster finds cold caches."""
QUICK: Final = 20
"""Jobs through the queue where only tried is whether it works."""
SETS: Final = ("control-plane", "node", "kueue", "peers-of-queue")
WORDS: Final = ",".join(dict.fromkeys([*SCENARIOS, *training.SCENARIOS]))
Opening = Callable[[System, Path], AbstractAsyncContextManager[Any]]


async def measure(
    system: System,
    opening: Opening,
    scenarios: Mapping[str, tuple[str, Scenario]],
    rounds: int,
    found: dict[str, dict[str, Runs]],
) -> None:
    """All scenarios with one system; what is found is added as it is found."""
    with tempfile.TemporaryDirectory(prefix="bench-shared-") as folder:
        async with opening(system, Path(folder)) as on:
            if opening is scene:
                await played(started(on, WARMING))
            for word, (title, scenario) in scenarios.items():
                runs = found.setdefault(title, {}).setdefault(system.name, Runs())
                for round_ in range(1 if word == "queue" else rounds):
                    await noted(scenario(on, round_), title, runs)


def main(
    trains: Annotated[bool, Option("--training", help="jobs really train, on a node, as root")] = False,
    quick: Annotated[bool, Option("--quick", help="one round, 20 jobs: whether it works")] = False,
    rounds: Annotated[int, Option(min=0, help="runs of each scenario but the queue; 0: 5, training 1")] = 0,
    jobs: Annotated[int, Option(min=1, help="jobs through the queue")] = QUEUED,
    only: Annotated[str, Option(help=f"some of {WORDS}; all by default")] = "",
    system: Annotated[str, Option(help=f"some of {','.join(columns(Path()))}; all by default")] = "",
    json: Annotated[Path | None, Option(help="write all samples there, too")] = None,
) -> None:
    """Measure and print the table, also that of what was measured before an error."""
    queue = (SCENARIOS["queue"][0], partial(queued, jobs=QUICK if quick else jobs))
    known: Mapping[str, tuple[str, Any]] = training.SCENARIOS if trains else {**SCENARIOS, "queue": queue}
    scenarios = {word: known[word] for word in chosen(only, known)}
    names = chosen(system, columns(Path()) if trains else SYSTEMS)
    rounds = 1 if quick else rounds or (1 if trains else 5)
    found: dict[str, dict[str, Runs]] = {}
    systems: Mapping[str, System] = SYSTEMS
    opening: Opening = scene
    try:
        with ExitStack() as stack:
            if trains:
                binaries.require(*SETS)
                on = stack.enter_context(node())
                systems, opening = columns(on.volumes), partial(training_scene, on)
            for name in names:
                asyncio.run(measure(systems[name], opening, scenarios, rounds, found))
    except (Unfit, Refused) as error:
        sys.exit(f"error: {error}")
    finally:
        tell(found, [columns(Path())[name].name for name in names], json)


if __name__ == "__main__":
    play(main)
