"""Each record counts once in each epoch: the lineage of the state that survives, by what workers wrote.

The lineage has, of each step, the attempt of the newest life and round that did it. A line is a dict with
`begins`, `done`, or `records` of a `step`, or, of records on lease, a `record` of a `shard`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Protocol

from lab.story import Truth

Line = dict[str, Any]


def read(folder: Path) -> list[Line]:
    """Return what the processes of a training wrote to a folder, each in a file of its own."""
    files = sorted(folder.glob("*.jsonl"), key=lambda file: file.stat().st_mtime_ns)
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def life_of(line: Line) -> int:
    """Return the number of the life that wrote a line."""
    return int(line.get("life", 1))


def lineage(lines: Iterable[Line]) -> dict[int, tuple[int, int]]:
    """Return the life and round of each step of the state that survives.

    A life that begins at a step makes all later ones anew, which may be fewer after other arguments.
    """
    newest: dict[int, tuple[int, int]] = {}
    for number, life in groupby(sorted(lines, key=life_of), key=life_of):
        all_ = [*life]
        if begun := [line["begins"] for line in all_ if "begins" in line]:
            newest = {step: by for step, by in newest.items() if step <= min(begun)}
        for line in all_:
            if "done" in line:
                newest[line["done"]] = max(newest.get(line["done"], (0, 0)), (number, line["round"]))
    return newest


def missing(lines: Sequence[Line], steps: int) -> list[str]:
    """Return a sentence if steps are missing in the lineage."""
    gone = sorted(set(range(1, steps + 1)) - lineage(lines).keys())
    return [f"steps {gone[:5]} were never done ({len(gone)} in all)"] if gone else []


def records(lines: Sequence[Line], sizes: set[int], lost: int = 0) -> list[str]:
    """Return a sentence for each epoch whose records did not come once each, but for `lost` of lost workers.

    A worker without records of its own may be given another's in the same step, which do not count.
    """
    newest = lineage(lines)
    steps: dict[tuple[int, int], set[int]] = defaultdict(set)
    for line in lines:
        if "records" in line and newest.get(line["step"]) == (life_of(line), line["round"]):
            steps[line["epoch"], line["step"]].update(line["records"])
    taken: dict[int, Counter[int]] = defaultdict(Counter)
    for (epoch, _), once_each in steps.items():
        taken[epoch].update(once_each)
    return all_once(taken, sizes, lost)


def all_once(taken: Mapping[int, Counter[int]], sizes: set[int], lost: int = 0) -> list[str]:
    """Return a sentence for each epoch, of one of `sizes`, whose records did not come once each.

    None is needed if no record came twice, and no more than `lost` are missing in all.
    """
    twice = {epoch: sum(count > 1 for count in times.values()) for epoch, times in taken.items()}
    never = {
        epoch: min(len(set(range(size)) - times.keys()) for size in sizes if size > max(times))
        for epoch, times in taken.items()
    }
    if not any(twice.values()) and sum(never.values()) <= lost:
        return []
    return [
        f"epoch {epoch}: {twice[epoch]} records came twice, {never[epoch]} never"
        for epoch in sorted(taken)
        if twice[epoch] or never[epoch]
    ]


def leased(lines: Iterable[Line], size: int, lost: int) -> list[str]:
    """Return a sentence for each epoch whose records did not come once each: those of the largest leases.

    Up to `lost` records may be missing: a worker had read them, and was lost.
    """
    newest: dict[tuple[int, int], int] = {}
    on_lease = [line for line in lines if "record" in line]
    for line in on_lease:
        shard = (line["epoch"], line["shard"])
        newest[shard] = max(newest.get(shard, 0), line["lease"])
    taken: dict[int, Counter[int]] = defaultdict(Counter)
    for line in on_lease:
        if line["lease"] == newest[line["epoch"], line["shard"]]:
            taken[line["epoch"]][line["record"]] += 1
    return all_once(taken, {size}, lost)


class Written(Protocol):
    """A training whose workers wrote `lines`, of so many steps and records an epoch."""

    lines: list[Line]
    steps: int
    size: int


class Counted(Protocol):
    """A training that counts each of its records."""

    counts: Mapping[int, int]


def _lineage(scene: Written) -> list[str]:
    return [*missing(scene.lines, scene.steps), *records(scene.lines, {scene.size})]


def _counts(scene: Counted) -> list[str]:
    wrong = {count: many for count, many in scene.counts.items() if count != 1}
    return [f"{many} records are counted {count} times" for count, many in wrong.items()]


TRUTHS: Final = (Truth("records", _lineage), Truth("counts", _counts))
