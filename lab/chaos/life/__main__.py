"""`make life`: a soak of ordinary life. Twelve kinds of trainings under trouble that is no kill.

Nodes are stopped for seconds, storage times out, fills up, is read-only, slow, or missing on one node,
records come slowly, clocks jump, checkpoints are damaged and arguments changed between two lives of a job, a
worker is lost within the last steps, nodes are told to leave in the middle of saves and evaluations. A case
is a training in one to three lives with one to three troubles. It ends

- equal: parameters, averages, schedulers and counters are, bit for bit, the undisturbed training's; or, after
  other arguments, each record came once in each epoch;
- refused: with an exit code and a sentence that names what was wrong and a next step; or
- WRONG: anything else, also a step lost in silence, or a process or block of memory left behind.

    python -m lab.chaos.life --minutes 5 --seed 3 --only digits,stream
    python -m lab.chaos.life --seed 3 --case 17 --keep /tmp/case

Exits with 1 if a case was WRONG.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from rich.console import Console

from lab.chaos.life import trainings
from lab.chaos.life.cases import Case, drawn
from lab.chaos.life.oracle import Outcome
from lab.chaos.life.play import Player
from lab.chaos.life.report import Tried, repeat, tables
from lab.jobs.training.warm import Warm, warm_process
from lab.programs.programs import end_on_sigterm

INSTALLED = "lab.chaos.life.installed"


def cases(options: Namespace) -> Iterator[Case]:
    """Yield the cases that are wanted, in their order."""
    until = time.monotonic() + 60 * options.minutes
    for number in [options.case] if options.case is not None else count(options.start):
        if options.case is None and time.monotonic() > until:
            return
        case = drawn(options.seed, number)
        if options.case is not None or case.training.name in options.only:
            yield case


async def soak(options: Namespace, warm: Warm, console: Console) -> list[Tried]:
    """Play cases, several at once; return what came of them."""
    player, tried, all_ = Player(warm, options.seed, options.keep), list[Tried](), cases(options)

    async def play() -> None:
        for case in all_:
            tried.append(await player.play(case))
            console.print(tried[-1].line(options.seed), markup=False, highlight=False, soft_wrap=True)

    async with asyncio.TaskGroup() as group:
        for _ in range(options.at_once):
            group.create_task(play())
    return tried


def main() -> int:
    """Run it; return the exit code."""
    names = ",".join(trainings.NAMED)
    parser = ArgumentParser(prog="python -m lab.chaos.life", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30, help="no case begins later")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--only", default=names, help=f"of {names}")
    parser.add_argument("--from", dest="start", type=int, default=0, metavar="CASE", help="the first case")
    parser.add_argument("--case", type=int, help="this one alone")
    parser.add_argument("--at-once", type=int, default=2, help="cases")
    parser.add_argument(
        "--keep", type=Path, help="folder for the logs of masters, and of cases that are WRONG"
    )
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - trainings.NAMED.keys():
        parser.error(f"--only {','.join(sorted(unknown))}: give some of {names}")
    end_on_sigterm()
    if options.keep is None:
        logging.disable()  # of the masters in this process
    else:
        options.keep.mkdir(parents=True, exist_ok=True)
        form = "%(asctime)s %(levelname)s %(message)s"
        logging.basicConfig(filename=options.keep / "masters.log", level=logging.INFO, format=form)
    console = Console()
    console.print(f"life: --seed {options.seed} --minutes {options.minutes:g}", highlight=False)
    chosen = {drawn(options.seed, options.case).training.name} if options.case is not None else options.only
    imports = {module for name in chosen for module in trainings.NAMED[name].imports}
    with warm_process(INSTALLED, *sorted(imports)) as line:
        tried = asyncio.run(soak(options, Warm(line), console))
    for table in tables(tried):
        console.print(table)
    wrong = sorted(
        (each for each in tried if each.outcome == Outcome.WRONG), key=lambda each: each.case.number
    )
    for each in wrong:
        console.print(repeat(options.seed, each.case), highlight=False, soft_wrap=True)
    console.print(f"{len(tried)} cases, {len(wrong)} WRONG, seed {options.seed}", highlight=False)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
