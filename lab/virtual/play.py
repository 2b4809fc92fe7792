"""Many stories of jobs in queues, in virtual time: each kind of break once, with its seeds and one diary."""

from __future__ import annotations

import logging
import re

from lab.virtual.loop import run
from lab.virtual.story import tell

NAMES = re.compile(r"seed \d+|elasticjob-\S+|\b[a-z]+\d+\b|[\d.]+")
"""What differs between two stories that break alike."""


def play(first: int, count: int) -> int:
    """Play the stories of seeds, print each break at once, and return how many there were."""
    logging.disable(logging.WARNING)  # errors of the operator are breaks
    broken, played = dict[str, list[int]](), 0
    try:
        for seed in range(first, first + count):
            try:
                run(tell(seed))
            except Exception as error:
                message = f"{error}" if isinstance(error, AssertionError) else f"seed {seed}: {error!r}"
                seeds = broken.setdefault(NAMES.sub("#", message.partition("\n")[0]), [])
                seeds.append(seed)
                print(message if len(seeds) == 1 else f"seed {seed}: as seed {seeds[0]}")
                print(f"  again: python -m lab queues --seed {seed} --count 1", flush=True)
            played += 1
    finally:
        logging.disable(logging.NOTSET)
        for seeds in sorted(broken.values(), key=len, reverse=True):
            print(f"alike: seeds {', '.join(map(str, seeds))}")
        many = sum(map(len, broken.values()))
        print(f"{many} of {played} stories broke", flush=True)
    return many
