"""Many stories of jobs in queues, in virtual time: each kind of break once, with its seeds and one diary."""

from __future__ import annotations

import logging
import re

from lab.virtual.loop import run
from lab.virtual.story import tell

NAMES = re.compile(r"seed \d+|elasticjob-\S+|\b[a-z]+\d+\b|[\d.]+")
"""What differs between two stories that break alike."""


def play(first: int, count: int) -> int:
    """Play the stories of seeds, print what broke, and return how many did."""
    logging.disable(logging.CRITICAL)
    broken = dict[str, list[tuple[int, str]]]()
    for seed in range(first, first + count):
        try:
            run(tell(seed))
        except Exception as error:
            message = f"{error}" if isinstance(error, AssertionError) else f"seed {seed}: {error!r}"
            broken.setdefault(NAMES.sub("#", message.partition("\n")[0]), []).append((seed, message))
    logging.disable(logging.NOTSET)
    for stories in sorted(broken.values(), key=len, reverse=True):
        print(f"seeds {', '.join(str(seed) for seed, _ in stories)}:\n{stories[0][1]}\n")
    many = sum(map(len, broken.values()))
    print(f"{many} of {count} stories broke")
    return many
