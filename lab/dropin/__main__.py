"""`python -m lab.dropin`: the same stories with python, torchrun and `elasticjob run`, side by side.

Prints each difference, and a table; ends with 1 when one is left that neither a mask nor a row of
docs/from-torchrun.md explains.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

from lab.dropin.compare import (
    EXPLAINED,
    Difference,
    differences,
    explanation,
    flags,
    missing_rows,
)
from lab.dropin.play import LAUNCHERS, Facts, play
from lab.dropin.stories import STORIES, Story
from lab.explained import Explained

Told = tuple[Story, dict[str, Facts], dict[str, float]]


def main() -> int:
    asked = arguments()
    named = [each.strip() for each in asked.only.split(",")]
    chosen = [
        each
        for each in STORIES
        if (not asked.quick or "quick" in each.words) and any(name in each.name for name in named)
    ]
    if asked.list:
        print(*(each.name for each in chosen), sep="\n")
        return 0
    import torch.distributed.run  # noqa: F401  # once: torchrun is forked from here (play.be_torchrun)

    began, rows, used, raw, left = time.monotonic(), [], Counter[Explained](), {}, 0
    with get_context("fork").Pool(asked.at_once) as pool:
        told = pool.imap_unordered(played, chosen) if asked.again is None else earlier(asked.again, chosen)
        for story, seen, seconds in told:
            found = list(differences(story, seen))
            raw[story.name] = seen
            if asked.raw:
                asked.raw.write_text(json.dumps(raw, indent=1))
            unexplained = report(story.name, found, used)
            left += unexplained
            rows.append((STORIES.index(story), line(story, seen, seconds, len(found), unexplained)))
    launches = sum(len(each.launchers) * each.nodes for each in chosen)
    print(f"{'story':34}{'python':>8}{'torchrun':>10}{'ours':>8}{'facts':>8}{'explained':>11}{'left':>6}")
    print(*(text for _, text in sorted(rows)), sep="\n")
    by_row = Counter(row.row for row in used.elements())
    print("explained:", *(f"{count:6} by {row}" for row, count in by_row.most_common()), sep="\n")
    known = [*flags(), *missing_rows()]
    print(*(f"not explained: {each}" for each in known), sep="\n")
    if len(chosen) == len(STORIES):
        unseen = [each for each in EXPLAINED if each not in used]
        print(*(f"explained, and not seen: {each.stories} / {each.keys}" for each in unseen), sep="\n")
    took = time.monotonic() - began
    print(f"{len(chosen)} stories, {launches} launches, {took:.0f} s, {left + len(known)} differences left")
    return 1 if left or known else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.dropin", description=__doc__)
    parser.add_argument("--only", default="", help="stories whose names have one of these in it: a,b")
    parser.add_argument("--list", action="store_true", help="the names of the stories")
    parser.add_argument("--quick", action="store_true", help="those that `make stories` plays")
    parser.add_argument("--raw", type=Path, help="write all that was seen to this file")
    parser.add_argument("--again", type=Path, help="compare what an earlier run wrote to this file")
    parser.add_argument("--at-once", type=int, default=2)
    return parser.parse_args()


def earlier(path: Path, chosen: list[Story]) -> Iterator[Told]:
    raw = json.loads(path.read_text())
    yield from ((each, raw[each.name], {}) for each in chosen if each.name in raw)


def played(story: Story) -> Told:
    seen, seconds = {}, {}
    for launcher in story.launchers:
        began = time.monotonic()
        seen[launcher] = play(story, launcher)
        seconds[launcher] = time.monotonic() - began
    return story, seen, seconds


def report(story: str, found: list[Difference], used: Counter[Explained]) -> int:
    """Print what is not explained; return how many those are."""
    rows = [(each, explanation(each)) for each in found]
    used.update(row for _, row in rows if row is not None)
    left = [each for each, row in rows if row is None]
    if left:
        print(f"{story}:", *(each.told() for each in left), sep="\n", flush=True)
    return len(left)


def line(story: Story, seen: dict[str, Facts], seconds: dict[str, float], found: int, left: int) -> str:
    took = [f"{seconds[name]:.1f} s" if name in seconds else "–" for name in LAUNCHERS]
    facts = len(seen["ours"])
    return f"{story.name:34}{took[0]:>8}{took[1]:>10}{took[2]:>8}{facts:>8}{found - left:>11}{left:>6}"


if __name__ == "__main__":
    sys.exit(main())
