"""The state that comes back is never older than the newest one that was saved."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Final

from lab.jobs.bare import Blow
from lab.story import Truth
from lab.truths.records import Line


def newest_save(lines: Sequence[Line], hits: Sequence[Blow], nodes: int) -> list[str]:
    """No life begins before the newest checkpoint at a kill, nor, while memory is there, before that copy."""
    wrong, begun = list[str](), [line for line in lines if "begins" in line]
    for blow, until in pairwise([*hits, Blow(inf, "", 0, 0)]):
        for line in begun:
            if line["at"] > blow.at and line["begins"] < blow.committed:
                wrong.append(f"step {blow.committed} was committed, and a life began at {line['begins']}")
            in_memory = blow.victim == "worker" and blow.at < line["at"] < until.at
            if in_memory and line["begins"] < blow.in_memory:
                wrong.append(f"step {blow.in_memory} was in memory, and a life began at {line['begins']}")
    ends = sum("parameters" in line for line in lines)
    return [*wrong, f"{ends} workers ended with parameters"] if ends != nodes else wrong


TRUTHS: Final = (Truth("newest-save", lambda scene: newest_save(scene.lines, scene.hits, len(scene.nodes))),)
