"""`make soak`: random faults between the operator and a real API server, 200 jobs coming and going.

    python -m lab.chaos.soak --minutes 10 --jobs 200 --seed 7

The operator runs as a process and reaches the server through a fault proxy, which cuts, stalls, delays,
answers 410, 429, 5xx and pages of HTML in the server's place, loses writes and answers, and is partitioned;
the API server itself is killed and started again. Users apply, scale, suspend, finish, delete jobs meanwhile,
and a pretended kubelet runs their pods. When the weather clears it is measured how long it takes until every
job is as its spec says; then all jobs are deleted, and nothing may be left: no object on the server, no task,
connection or file in the operator, which must be the same process and no larger than it was in the middle.

Exits with 1 if any of this was not so. Figures, a table and `soak.svg` say how it was.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lab.chaos.soak.gauges import growth, line, svg
from lab.chaos.soak.run import Options, Outcome, soak
from lab.clusters.plane.controlplane import APISERVER, ControlPlane

CONVERGED_WITHIN = 5.0
GROWN_BY = 0.1
"""The share by which memory may be larger in the last third than in the middle one."""


def main() -> int:
    """Run from the command line."""
    parser = ArgumentParser(prog="python -m lab.chaos.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--plot", type=Path, default=Path("soak.svg"), help="where the plot is written")
    options = parser.parse_args()
    console = Console()
    console = console if console.is_terminal else Console(width=130)
    logging.basicConfig(level=logging.ERROR)  # what befalls the spectators is no news
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    console.print(
        f"soak: --minutes {options.minutes:g} --jobs {options.jobs} --seed {options.seed}; load {load}",
        highlight=False,
    )
    try:
        outcome = on_a_real_server(options, console)
    except KeyboardInterrupt:
        console.print("stopped; nothing is left running")
        return 130
    report(outcome, options, console)
    return 1 if outcome.wrong else 0


def on_a_real_server(options: Namespace, console: Console) -> Outcome:
    """Soak an operator at a control plane of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elasticjob-soak-")))
        # programs end with the thread that started them: one thread, to the end, does all that
        hand = stack.enter_context(ThreadPoolExecutor(1, "control-plane"))
        plane = ControlPlane(folder / "plane")
        stack.callback(lambda: hand.submit(plane.stop).result())
        hand.submit(plane.start).result()

        def die_and_come_back() -> None:
            plane.kill(APISERVER)
            plane.start(APISERVER)

        async def crash() -> None:
            crashing = asyncio.get_running_loop().run_in_executor(hand, die_and_come_back)
            try:
                await asyncio.shield(crashing)
            finally:  # a storm that ends meanwhile waits for it: fine weather begins with the server back
                await crashing

        wanted = Options(options.minutes, options.jobs, options.seed)

        def say(text: str) -> None:
            console.print(text, style="dim", highlight=False)

        outcome = asyncio.run(soak(plane.config(), folder, wanted, crash, say))
        judge(outcome)
        if outcome.wrong:
            kept = Path("soak-operator.log")
            kept.write_bytes((folder / "operator.log").read_bytes())
            console.print(f"the operator's log is kept in {kept.resolve()}", soft_wrap=True)
    return outcome


def judge(outcome: Outcome) -> None:
    """Add what was too slow or too large to what is wrong."""
    if outcome.converged_in > CONVERGED_WITHIN:
        outcome.wrong.append(f"it took {outcome.converged_in:.1f} s until all was as specified")
    middle, last = growth([one for one in outcome.samples if outcome.began <= one.at <= outcome.ended])
    if last > middle * (1 + GROWN_BY):
        outcome.wrong.append(f"memory grew from {middle:.0f} to {last:.0f} MiB in the last third")


def report(outcome: Outcome, options: Namespace, console: Console) -> None:
    """Print all figures, and write the plot."""
    console.print(figures(outcome))
    console.print(f"memory  {line([sample.mib for sample in outcome.samples])}", highlight=False)
    console.print(f"wrong   {line([float(sample.wrong) for sample in outcome.samples])}", highlight=False)
    title = f"soak, {options.minutes:g} minutes, {options.jobs} jobs, seed {options.seed}"
    options.plot.write_text(svg(outcome.samples, title, outcome.ended))
    for each in outcome.wrong:
        console.print(f"✗ {each}", style="red", highlight=False)
    if not outcome.wrong:
        console.print("nothing leaked, all as specified", style="bold green")


def figures(outcome: Outcome) -> Table:
    """Return what was measured as a table."""
    shown = Table(box=None, header_style="dim", show_header=False)
    before, after = outcome.empty
    middle, last = growth([one for one in outcome.samples if outcome.began <= one.at <= outcome.ended])
    sample = {name.removesuffix("_total"): f"{value:.0f}" for name, value in outcome.metrics.items()}
    for name, value in (
        ("all jobs running, first time", f"{outcome.filled_in:.1f} s"),
        ("episodes of bad weather", _listed(outcome.episodes)),
        ("what befell requests", _listed(outcome.faults)),
        ("what users did", _listed(outcome.deeds)),
        ("after the last fault: jobs as specified", f"{outcome.converged_in:.2f} s"),
        ("  … and leftovers collected (controller-manager)", f"{outcome.collected_in:.2f} s"),
        ("all jobs deleted, nothing left", f"{outcome.emptied_in:.1f} s"),
        (
            "resident memory: empty, middle, last third, empty",
            f"{before.mib:.0f}, {middle:.0f}, {last:.0f}, {after.mib:.0f} MiB",
        ),
        ("tasks, empty before and after", f"{before.tasks}, {after.tasks}"),
        ("connections to the server", f"{before.connections}, {after.connections}"),
        ("connections of the server to webhooks", f"{before.inbound}, {after.inbound}"),
        ("open files", f"{before.files}, {after.files}"),
        ("threads", f"{before.threads}, {after.threads}"),
        (
            "runs: errors, retries",
            f"{sample.get('controller_runtime_reconcile_errors')}, {sample.get('workqueue_retries')}",
        ),
        ("requests to the server", sample.get("rest_client_requests", "?")),
        ("watches opened again", sample.get("elasticjob_kube_watch_reconnects", "?")),
        ("gates that timed out", sample.get("elasticjob_kube_gate_timeouts", "?")),
    ):
        shown.add_row(name, value)
    return shown


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counted.most_common())


if __name__ == "__main__":
    sys.exit(main())
