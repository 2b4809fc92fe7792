"""`python -m lab.fuzz`: random requests to every listener of ours. Ends with 1 if one brings a fault.

A fault is a response from 500 on, a traceback in the log, a broken rule of the master's state, a file
descriptor that stays open, or a client of the store that is no longer served. It is repeated by its number:
`python -m lab.fuzz --listener master --only 4711 --seed 1`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from functools import partial

from lab.fuzz import store
from lab.fuzz.listeners import LISTENERS, Listener
from lab.fuzz.play import Found, play


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000, help="how many to each listener")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--listener", choices=[*(listener.name for listener in LISTENERS), store.NAME])
    parser.add_argument("--only", type=int, help="the number of the one request to send")
    asked = parser.parse_args()
    numbers = range(asked.requests) if asked.only is None else range(asked.only, asked.only + 1)
    faults = 0
    plays: dict[str, Callable[[], Found | store.Found]] = {
        listener.name: partial(_played, listener, numbers, asked.seed) for listener in LISTENERS
    }
    plays[store.NAME] = partial(store.play, numbers, asked.seed)
    for name, play_it in plays.items():
        if asked.listener in (None, name):
            found = play_it()
            faults += len(found.wrong)
            print(found, *found.wrong[:20], sep="\n  ", flush=True)
    return 1 if faults else 0


def _played(listener: Listener, numbers: range, seed: str) -> Found:
    return asyncio.run(play(listener, numbers, seed))


if __name__ == "__main__":
    sys.exit(main())
