"""Stories of jobs in queues, in virtual time: `python -m lab.virtual --seed 7 --count 100`.

It prints what broke, each kind of it once with its seeds and one diary, and ends with 1 if anything did.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Sequence

from lab.virtual.loop import run
from lab.virtual.story import tell

NAMES = re.compile(r"seed \d+|elasticjob-\S+|\b[a-z]+\d+\b|[\d.]+")
"""What differs between two stories that break alike."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.virtual", description="Play stories of queues.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=10, help="how many seeds")
    chosen = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    broken = dict[str, list[tuple[int, str]]]()
    for seed in range(chosen.seed, chosen.seed + chosen.count):
        try:
            run(tell(seed))
        except Exception as error:
            message = f"{error}" if isinstance(error, AssertionError) else f"seed {seed}: {error!r}"
            broken.setdefault(NAMES.sub("#", message.partition("\n")[0]), []).append((seed, message))
    logging.disable(logging.NOTSET)
    for stories in sorted(broken.values(), key=len, reverse=True):
        print(f"seeds {', '.join(str(seed) for seed, _ in stories)}:\n{stories[0][1]}\n")
    print(f"{sum(map(len, broken.values()))} of {chosen.count} stories broke")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
