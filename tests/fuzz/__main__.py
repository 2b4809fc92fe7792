"""`python -m tests.fuzz`: random requests to every listener of ours. Ends with 1 if one brings a fault.

A fault is a response from 500 on, a traceback in the log, a broken rule of the master's state, or a file
descriptor that stays open. It is repeated by its number:
`python -m tests.fuzz --listener master --only 4711 --seed 1`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from tests.fuzz.listeners import LISTENERS
from tests.fuzz.play import play


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000, help="how many to each listener")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--listener", choices=[listener.name for listener in LISTENERS])
    parser.add_argument("--only", type=int, help="the number of the one request to send")
    asked = parser.parse_args()
    numbers = range(asked.requests) if asked.only is None else range(asked.only, asked.only + 1)
    faults = 0
    for listener in LISTENERS:
        if asked.listener in (None, listener.name):
            found = asyncio.run(play(listener, numbers, asked.seed))
            faults += len(found.wrong)
            print(found, *found.wrong[:20], sep="\n  ", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
