"""`make laws`: each law of each loop, played. A cell is held, broken, or not promised.

    python -m tests.trainer.loops --only jax,store --law once

Exits with 1 if a promised cell is broken.
"""

from __future__ import annotations

import sys
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path

from lab.processes import end_on_sigterm
from tests.trainer.loops.laws import CHECKS
from tests.trainer.loops.loops import LAWS, LOOPS, Loop


def cell(loop: Loop, law: str, folder: Path) -> str | None:
    """Return why a law is broken; None if it holds."""
    try:
        CHECKS[law](loop, folder)
    except Exception as error:  # one cell costs no other
        return f"{type(error).__name__}: {error}"
    return None


def main() -> int:
    """Play the table; return the exit code."""
    parser = ArgumentParser(prog="python -m tests.trainer.loops", description=(__doc__ or "").splitlines()[0])
    names = [loop.name for loop in LOOPS]
    parser.add_argument("--only", default=",".join(names), help=f"of {', '.join(names)}")
    parser.add_argument("--law", default=",".join(LAWS), help=f"of {', '.join(LAWS)}")
    parser.add_argument("--keep", type=Path, help="folder for what the runs leave")
    options = parser.parse_args()
    only, laws = options.only.split(","), options.law.split(",")
    if unknown := (set(only) - {*names}) | (set(laws) - {*LAWS}):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    end_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="laws-") as folder:
        try:
            return table(only, laws, options.keep or Path(folder))
        except KeyboardInterrupt:
            return 130


def table(only: list[str], laws: list[str], place: Path) -> int:
    """Play cells, a line each; return the exit code."""
    broken = 0
    for loop in (each for each in LOOPS if each.name in only):
        for law in laws:
            if why := loop.not_promised.get(law):
                print(f"{loop.name:12} {law:12} not promised        {why}", flush=True)
                continue
            began = time.monotonic()
            said = cell(loop, law, place / f"{loop.name}-{law}")
            broken += said is not None
            seconds = time.monotonic() - began
            print(
                f"{loop.name:12} {law:12} {'broken' if said else 'held':7} {seconds:6.1f} s  {said or ''}",
                flush=True,
            )
    print(f"{broken} cells broken")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
