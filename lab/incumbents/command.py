"""The command line of suites beside incumbents.

Prints each difference, and a table; ends with 1 when one is left that neither a mask nor a row of the docs
explains.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Final

from lab.incumbents.compare import differences, explanation, missing_rows
from lab.incumbents.oracle import INCUMBENT, OURS, Explained, Oracle, Play, Seen
from lab.processes import end_on_sigterm

LIMIT: Final = 45 * 60.0
"""Seconds for everything."""

Played = tuple[str, Seen, float]
"""A story, what was seen, and the seconds that it took."""
Earlier = dict[str, dict[str, Seen]]
"""The facts of an earlier run, by oracle and story."""


def main(oracles: Sequence[Oracle]) -> int:
    """Do what the command line says with these oracles; return the exit code."""
    by_name = {each.name: each for each in oracles}
    parser = command_line(by_name)
    args = parser.parse_args()
    raw: Earlier = {} if args.again is None else json.loads(args.again.read_text())

    def stories_of(oracle: Oracle) -> list[str]:
        stories = oracle.quick if args.quick else oracle.stories
        return [each for each in stories if args.again is None or each in raw.get(oracle.name, ())]

    known = {by_name[name]: stories_of(by_name[name]) for name in args.oracle or by_name}
    names = [name for each in args.only.split(",") if (name := each.strip())]
    every = [story for stories in known.values() for story in stories]
    if unknown := [name for name in names if not any(name in story for story in every)]:
        parser.error(f"--only {','.join(unknown)} is in no name of: {'; '.join(every) or 'no story'}")
    if not every:
        parser.error(f"there is nothing to play: {', '.join(by_name)} have no such stories")
    chosen = {
        oracle: [story for story in stories if not names or any(name in story for name in names)]
        for oracle, stories in known.items()
    }
    if args.list:
        print(*(f"{oracle.name}: {story}" for oracle, some in chosen.items() for story in some), sep="\n")
        return 0
    end_on_sigterm()
    left = asyncio.run(compared(chosen, raw, args))
    return 1 if left else 0


def command_line(oracles: Collection[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="stories whose names have one of these in it: a,b")
    parser.add_argument("--oracle", action="append", choices=oracles, help="the incumbent; default: each")
    parser.add_argument("--list", action="store_true", help="the names of the stories")
    parser.add_argument("--quick", action="store_true", help="those that `make stories` plays")
    parser.add_argument("--raw", type=Path, help="write all that was seen to this file")
    parser.add_argument("--again", type=Path, help="compare what an earlier run wrote to this file")
    parser.add_argument("--at-once", type=at_least_one, help="stories that are played side by side")
    return parser


def at_least_one(word: str) -> int:
    if (number := int(word)) < 1:
        raise argparse.ArgumentTypeError(f"{word} is less than 1")
    return number


async def compared(chosen: dict[Oracle, list[str]], raw: Earlier, args: argparse.Namespace) -> int:
    """Play the stories, or read an earlier run; print what differs, and return how much of it is left."""
    left = 0
    async with asyncio.timeout(LIMIT):
        for oracle, stories in chosen.items():
            if not stories:
                continue
            known, report = raw.setdefault(oracle.name, {}), Report(oracle, stories)
            source = played(oracle, stories, args.at_once) if args.again is None else earlier(known, stories)
            async for story, seen, seconds in source:
                known[story] = seen
                if args.raw:
                    args.raw.write_text(json.dumps(raw, indent=1))
                report.add(story, seen, seconds)
            left += report.end()
    return left


class Report:
    """Prints the differences of an oracle's stories as they end, and a table."""

    def __init__(self, oracle: Oracle, stories: Sequence[str]) -> None:
        self.oracle, self.stories = oracle, stories
        self.began, self.left = time.monotonic(), 0
        self.rows: dict[str, str] = {}
        self.used = Counter[Explained]()

    def add(self, story: str, seen: Seen, seconds: float) -> None:
        """Print what no row explains, and note the rest."""
        found = [(each, explanation(self.oracle, each)) for each in differences(self.oracle, story, seen)]
        self.used.update(row for _, row in found if row is not None)
        unexplained = [each for each, row in found if row is None]
        if unexplained:
            print(f"{story}:", *(each.text for each in unexplained), sep="\n", flush=True)
        self.left += len(unexplained)
        facts = len({key for facts in seen.values() for key in facts})
        cells = f"{facts:>8}{len(found) - len(unexplained):>11}{len(unexplained):>6}"
        self.rows[story] = f"{story:58}{seconds:>7.0f} s{cells}"

    def end(self) -> int:
        """Print the table, and what explains; return how many differences and gaps are left."""
        name = self.oracle.name
        print(f"{name + ': story':58}{'took':>9}{'facts':>8}{'explained':>11}{'left':>6}")
        print(*(self.rows[story] for story in self.stories if story in self.rows), sep="\n")
        for row, count in Counter(each.row for each in self.used.elements()).most_common():
            print(f"explained: {count:4} by {row}")
        gaps = [*self.oracle.gaps(), *missing_rows(self.oracle)]
        for gap in gaps:
            print(f"not explained: {gap}")
        if len(self.rows) == len(self.oracle.stories):
            for each in self.oracle.explained:
                if each not in self.used:
                    print(f"explained, and not seen: {each.stories} / {each.keys}")
        took, left = time.monotonic() - self.began, self.left + len(gaps)
        print(f"{name}: {len(self.rows)} stories, {took:.0f} s, {left} differences left", flush=True)
        return left


async def earlier(seen: dict[str, Seen], stories: Sequence[str]) -> AsyncIterator[Played]:
    for story in stories:
        yield story, seen[story], 0.0


async def played(oracle: Oracle, stories: Sequence[str], at_once: int | None) -> AsyncIterator[Played]:
    """Play the stories side by side on one stage; yield each when it is over."""
    room = asyncio.Semaphore(at_once or oracle.at_once)
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
