"""What the agent says while nothing happens: what it waits for, how long, and which worker makes no steps.

A condition that lasts is said once it has lasted `after` seconds, and again every AGAIN seconds. These are
sentences only; no decision follows from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from elasticjob.api.rpc.nodes import Doing, WorkerState
from elasticjob.trainer.agent.group import Group

AGAIN: Final = 30.0  # seconds
JOINED: Final = 1.0  # a node that has not been in any world waits for others: it has joined, and goes on
WAITS: Final = 4.0  # for a master, which responds at least every 2.5 s, or for other nodes
SHORT: Final = 1.0  # too short to say what a worker does
STILL: Final = 10.0  # without a step
NEWCOMER: Final = "joined "
"""How the sentence of a node begins that is about to enter its first world: no warning."""
FIRST: Final = 30.0  # the same before the first step of a round, which may compile


@dataclass(frozen=True)
class Condition:
    """Something that lasts since `since`; `key` tells it from others."""

    key: str
    since: float
    after: float
    sentence: str


@dataclass(frozen=True)
class Master:
    """The master as this node sees it: when it last responded, and what went wrong since."""

    address: str
    heard: float
    trouble: str
    patience: float


class Notices:
    """Remembers what was said."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def due(self, conditions: Iterator[Condition], now: float) -> list[str]:
        """Return the sentences to say now."""
        present = {each.key: each for each in conditions}
        self._said = {key: at for key, at in self._said.items() if key in present}
        due = [
            each
            for each in present.values()
            if now - each.since >= each.after and now - self._said.get(each.key, -AGAIN) >= AGAIN
        ]
        self._said |= {each.key: now for each in due}
        return [each.sentence for each in due]


def waits(group: Group, master: Master, joined: float | None, now: float) -> Iterator[Condition]:
    """Yield what this node waits for: an answer of the master, or other nodes since `joined`."""
    silent = now - master.heard
    if silent >= WAITS:
        goes_on = "the workers train on" if group.training else "the workers wait"
        yield Condition(
            "master",
            master.heard,
            WAITS,
            f"the master at {master.address} has not answered for {silent:.0f} s"
            f"{f' ({master.trouble})' if master.trouble else ''}; {goes_on}; "
            f"this node gives up in {max(0.0, master.patience - silent):.0f} s",
        )
    elif joined is not None and not group.training:
        new, waited = not group.round, now - joined
        reason = (group.orders.reason if group.orders else "") or "the other nodes have not joined"
        begins = (
            f"{NEWCOMER}{master.address}; "
            if new and waited < AGAIN
            else f"waiting for {waited:.0f} s at the master at {master.address}: "
        )
        yield Condition("nodes", joined, JOINED if new else WAITS, f"{begins}{reason}")


def stalls(group: Group, states: Iterable[WorkerState], now: float) -> Iterator[Condition]:
    """Yield the workers that are stopped (SIGSTOP), and those that make no steps, with what they do.

    These are facts of one node: whether a worker hangs is the master's verdict.
    """
    for state in states:
        rank, known = (
            rank_of(group, state.local_rank),
            f"; its last step was {state.step}" if state.step else "",
        )
        key = f"{state.local_rank} {group.round} {state.step}"
        if state.stopped:
            sentence = f"rank {rank} is stopped (SIGSTOP) for {state.stopped:.0f} s{known}"
            yield Condition(f"stopped {key}", now - state.stopped, STILL, sentence)
        elif state.doing in IN_A_STEP:
            still = state.since if state.idle is None else state.idle
            after = max(STILL, 10 * state.usual) if state.usual else FIRST
            does = f": it {does_now(state)} for {state.since:.0f} s" if state.since >= SHORT else ""
            sentence = f"rank {rank} has made no step for {still:.0f} s{does}{known}"
            yield Condition(f"still {key}", now - still, after, sentence)


IN_A_STEP: Final = frozenset({Doing.COMPUTING, Doing.READING, Doing.REDUCING})
DOES: Final = {
    Doing.COMPUTING: "computes",
    Doing.READING: "waits for its records",
    Doing.REDUCING: "waits for the others",
}


def does_now(state: WorkerState) -> str:
    """Return what a worker does in its step, in words."""
    inside = state.collective
    return f"waits for the others in {inside.name} of {inside.group}" if inside else DOES[state.doing]


def rank_of(group: Group, slot: int) -> str:
    """Return a worker's rank in its present world, "-" outside of one."""
    if group.world is None or slot not in group.seats:
        return "-"
    return str(group.world.first_rank(group.terms.node) + group.seats.index(slot))
