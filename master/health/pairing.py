"""Which nodes run the payload together, and which of them are broken or slow. Pure.

1. Each node runs the payload alone first: who fails alone is at fault, and drags no other node down.
2. Turn 1: adjacent nodes in pairs. If a pair failed, or one was much slower than another: turn 2, the fastest
with the slowest. An odd node joins the last pair. Of three nodes that fail, each two are tried.
3. Fault: no success in any turn. Time: the shortest of the turns.
4. Slow: more than twice the median of three or more nodes, or twice the time that good nodes of the same
device took before; and slower by half a second at least, since short payloads vary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Final, NamedTuple

from elasticjob.master.state.check import Outcome

SLOW: Final = 2.0
MARGIN: Final = 0.5  # seconds
MOST_NAMED: Final = 4

Groups = tuple[tuple[str, ...], ...]


class PairResult(NamedTuple):
    """The result for one node; the sentence is empty for a good one."""

    fault: bool = False
    slow: bool = False
    sentence: str = ""


def pairs(names: Sequence[str]) -> Groups:
    """Return adjacent names in pairs; an odd one joins the last pair. One name alone is in no group."""
    groups = [tuple(names[at : at + 2]) for at in range(0, len(names) - 1, 2)]
    if groups and len(names) % 2:
        groups[-1] += (names[-1],)
    return tuple(groups)


def opposites(times: Mapping[str, float]) -> Groups:
    """Return the fastest with the slowest, inwards; an odd middle one joins the last pair."""
    ordered = sorted(times, key=lambda name: times[name])
    inwards: list[str] = []
    while len(ordered) > 1:
        inwards += [ordered.pop(0), ordered.pop()]
    return pairs([*inwards, *ordered])


def following(turns: Sequence[Mapping[str, Outcome]], times: Mapping[str, float]) -> Groups:
    """Return the groups after `turns`, none if these tell enough; `times` are the best ones of all nodes.

    Of three nodes that fail together, each two are tried until two succeed: the third is at fault.
    """
    if len(times) == 3 and min(times.values()) == float("inf"):
        couples = tuple(combinations(sorted(times), 2))
        return couples[len(turns) - 1 : len(turns)]
    return opposites(times) if len(turns) == 1 and needs_another_turn(turns[0]) else ()


def needs_another_turn(results: Mapping[str, Outcome]) -> bool:
    """Whether a first turn leaves open who is at fault, or who is slow."""
    if any(outcome.error for outcome in results.values()):
        return True
    times = [outcome.seconds for outcome in results.values()]
    return bool(times) and _much_more(max(times), min(times))


def best(alone: Mapping[str, Outcome], turns: Sequence[Mapping[str, Outcome]]) -> dict[str, float]:
    """Return the shortest time of each node together with others; infinite without any."""
    return {name: min(_good(name, turns), default=float("inf")) for name in alone}


def judge(
    alone: Mapping[str, Outcome],
    turns: Sequence[Mapping[str, Outcome]],
    references: Mapping[str, tuple[float | None, float | None]],
) -> dict[str, PairResult]:
    """Return the result of each node.

    `references` are the times, alone and together, that good nodes with the device of this one took before.
    """
    together = {name: time for name, time in best(alone, turns).items() if time < float("inf")}
    apart = {name: outcome.seconds for name, outcome in alone.items() if not outcome.error}
    judged: dict[str, PairResult] = {}
    for name, outcome in alone.items():
        mine = references.get(name, (None, None))
        slow = _slow(name, "alone", apart, mine[0]) or _slow(name, "with others", together, mine[1])
        if outcome.error:
            judged[name] = PairResult(fault=True, sentence=f"{name} fails alone: {outcome.error}")
        elif (tried := [turn[name] for turn in turns if name in turn]) and name not in together:
            judged[name] = PairResult(fault=True, sentence=f"{name} fails with others: {tried[-1].error}")
        else:
            judged[name] = PairResult(slow=bool(slow), sentence=slow)
    return judged


def medians(times: Mapping[str, float], devices: Mapping[str, str]) -> dict[str, float]:
    """Return the median time of each device."""
    by_device: dict[str, list[float]] = {}
    for name, time in times.items():
        by_device.setdefault(devices[name], []).append(time)
    return {device: median(values) for device, values in by_device.items()}


def _slow(name: str, how: str, times: Mapping[str, float], reference: float | None) -> str:
    """Return in a sentence that the node is slow, empty if it is not."""
    mine = times.get(name)
    if mine is None:
        return ""
    if len(times) > 2 and _much_more(mine, middle := median(times.values())):
        return f"{name} is slow {how}: {mine:.2f} s, the median of {len(times)} nodes is {middle:.2f} s"
    if reference is not None and _much_more(mine, reference):
        return f"{name} is slow {how}: {mine:.2f} s, good nodes before took {reference:.2f} s"
    return ""


def _much_more(time: float, usual: float) -> bool:
    return time > SLOW * usual and time > usual + MARGIN


def _good(name: str, turns: Sequence[Mapping[str, Outcome]]) -> list[float]:
    return [turn[name].seconds for turn in turns if name in turn and not turn[name].error]
