"""`python -m lab.fuzz.hostile`: a hostile tenant against operator, Brain and di-server on a devcluster.

Ends with 1 if something is WRONG: a program of ours ends, an answer is 5xx, an admission takes over 10 s, an
error names no object or comes again and again, the neighbour's job changes or is not scaled within 30 s, or
memory or series grow. Actions are drawn by their number: `--seed 7 --actions 120-180` plays some again.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from lab.fuzz.hostile.play import Played, play


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", default=secrets.token_hex(3))
    parser.add_argument("--actions", default="0-", help="the numbers of the actions, as FIRST-LAST")
    parser.add_argument("--keep", type=Path, help="a folder for the logs")
    asked = parser.parse_args()
    first, _, last = asked.actions.partition("-")
    numbers = iter(range(int(first), int(last) + 1)) if last else itertools.count(int(first))
    began = time.monotonic()

    def tell(sentence: str) -> None:
        print(f"{time.monotonic() - began:6.1f} {printable(sentence)}", flush=True)

    tell(f"seed {asked.seed}")
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="elasticjob-hostile-"))
    folder.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=folder / "cluster.log", level=logging.WARNING)
    try:
        played = asyncio.run(_stoppable(play(folder, asked.seed, numbers, asked.minutes, tell)))
    except asyncio.CancelledError:
        return 143
    print(printable(told(played)))
    return 1 if played.wrong else 0


def printable(text: str) -> str:
    """Return text without what terminals take for more than letters."""
    return "".join(each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text)


async def _stoppable(playing: Coroutine[Any, Any, Played]) -> Played:
    """Play; SIGTERM ends it, and with it the cluster and our programs."""
    task = asyncio.ensure_future(playing)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def told(played: Played) -> str:
    """Return the tables at the end."""
    lines = [
        f"{sum(played.actions.values())} actions in {played.seconds:.0f} s of seed {played.seed}; "
        f"the slowest write took {played.slowest:.1f} s; {len(played.wrong)} WRONG",
        *(f"  {count:5} {action}" for action, count in played.actions.most_common()),
        "answers: " + ", ".join(f"{answer}: {count}" for answer, count in sorted(played.answers.items())),
        f"the neighbour: {len(played.scaled)} changes of size, "
        f"the slowest in {max(played.scaled, default=0):.1f} s; step {played.steps}; "
        f"{played.calls} calls of di-server",
    ]
    for name, use in played.before.items():
        if after := played.after.get(name):
            lines.append(
                f"{name}: {use.memory >> 20} -> {after.memory >> 20} MiB, "
                f"{use.series} -> {after.series} series"
            )
    lines += [f"errors in the logs, each about one object: {sum(played.kinds.values())}"]
    lines += [f"  {count:5} {kind}" for kind, count in played.kinds.most_common(30)]
    lines += [f"WRONG {count:3} times: {kind}" for kind, count in played.wrong_kinds.most_common()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
