"""`python -m lab.incumbents`: the same stories with an incumbent of Kubernetes and with ours, side by side.

Prints each difference, and a table; ends with 1 when one is left that no row of the docs explains.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from lab.explained import Explained
from lab.incumbents.compare import differences, explanation, missing_rows
from lab.incumbents.oracle import INCUMBENT, OURS, Oracle, Play, Seen
from lab.incumbents.oracles import ORACLES

LIMIT: Final = 45 * 60.0
"""Seconds for everything."""

Played = tuple[str, Seen, float]
"""A story, what was seen, and the seconds that it took."""


def main() -> int:
    args = arguments()
    names = [each.strip() for each in args.only.split(",")]
    chosen = {
        oracle: [story for story in oracle.stories if any(name in story for name in names)]
        for oracle in (ORACLES[name] for name in args.oracle or ORACLES)
    }
    if args.list:
        print(*(f"{oracle.name}: {story}" for oracle, some in chosen.items() for story in some), sep="\n")
        return 0
    raw: dict[str, dict[str, Seen]] = {} if args.again is None else json.loads(args.again.read_text())
    left = asyncio.run(compared(chosen, raw, args.again is not None, args.raw))
    return 1 if left else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.incumbents", description=__doc__)
    parser.add_argument("--only", default="", help="stories whose names have one of these in it: a,b")
    parser.add_argument("--oracle", action="append", choices=[*ORACLES], help="the incumbent; default: each")
    parser.add_argument("--list", action="store_true", help="the names of the stories")
    parser.add_argument("--raw", type=Path, help="write all that was seen to this file")
    parser.add_argument("--again", type=Path, help="compare what an earlier run wrote to this file")
    return parser.parse_args()


async def compared(
    chosen: dict[Oracle, list[str]], raw: dict[str, dict[str, Seen]], again: bool, kept: Path | None
) -> int:
    """Play the stories, or read them in `raw`, print what differs, and return how many are left."""
    left = 0
    async with asyncio.timeout(LIMIT):
        for oracle, stories in chosen.items():
            seen = raw.setdefault(oracle.name, {})
            if not stories:
                continue
            told = earlier(seen, stories) if again else played(oracle, stories)
            left += await table(oracle, stories, told, seen, (kept, raw) if kept else None)
    return left


async def table(
    oracle: Oracle,
    stories: Sequence[str],
    told: AsyncIterator[Played],
    seen: dict[str, Seen],
    kept: tuple[Path, object] | None,
) -> int:
    """Print the differences of an oracle and its table; return how many no row explains."""
    began, rows, used, left = time.monotonic(), [], Counter[Explained](), 0
    async for story, both, seconds in told:
        seen[story] = both
        if kept:
            kept[0].write_text(json.dumps(kept[1], indent=1))
        found = [(each, explanation(oracle, each)) for each in differences(oracle, story, both)]
        used.update(row for _, row in found if row is not None)
        unexplained = [each for each, row in found if row is None]
        if unexplained:
            print(f"{story}:", *(each.text for each in unexplained), sep="\n", flush=True)
        left += len(unexplained)
        facts = len({*both[INCUMBENT], *both[OURS]})
        cells = f"{facts:>8}{len(found) - len(unexplained):>11}{len(unexplained):>6}"
        rows.append((stories.index(story), f"{story:58}{seconds:>7.0f} s{cells}"))
    print(f"{oracle.name + ': story':58}{'took':>9}{'facts':>8}{'explained':>11}{'left':>6}")
    print(*(text for _, text in sorted(rows)), sep="\n")
    for row, count in Counter(each.row for each in used.elements()).most_common():
        print(f"explained: {count:4} by {row}")
    known = [*oracle.gaps(), *missing_rows(oracle)]
    print(*(f"not explained: {each}" for each in known), sep="\n", end="\n" if known else "")
    if len(rows) == len(oracle.stories):
        for each in oracle.explained:
            if each not in used:
                print(f"explained, and not seen: {each.stories} / {each.keys}")
    took = time.monotonic() - began
    print(
        f"{oracle.name}: {len(rows)} stories, {took:.0f} s, {left + len(known)} differences left", flush=True
    )
    return left + len(known)


async def earlier(seen: dict[str, Seen], stories: Sequence[str]) -> AsyncIterator[Played]:
    for story in stories:
        if story in seen:
            yield story, seen[story], 0.0


async def played(oracle: Oracle, stories: Sequence[str]) -> AsyncIterator[Played]:
    """Play the stories side by side on one stage; yield each when it is over."""
    room = asyncio.Semaphore(oracle.at_once)
    with tempfile.TemporaryDirectory(prefix="incumbents-") as folder:
        async with oracle.stage(Path(folder), stories) as play, asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(play, story, room)) for story in stories]
            for task in asyncio.as_completed(tasks):
                yield await task


async def one(play: Play, story: str, room: asyncio.Semaphore) -> Played:
    """Play a story; what breaks it is a difference of its own, and costs no other story."""
    async with room:
        began = time.monotonic()
        try:
            seen = await play(story)
        except Exception as error:  # reported as a difference
            seen = {INCUMBENT: {}, OURS: {"broken": f"{type(error).__name__}: {error}"}}
        return story, seen, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
