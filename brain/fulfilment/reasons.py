"""The sentences of a plan, with names and figures."""

from __future__ import annotations

from typing import Final

from elasticjob.brain.fulfilment.draft import Draft, Entry
from elasticjob.brain.fulfilment.state import CPU, MEMORY, PODS, Amounts

GIB: Final = 1 << 30


def quantity(name: str, amount: int) -> str:
    """Return an amount in words: `2.5 cpu`, `8 GiB of memory`, `2 nvidia.com/gpu`."""
    if name == CPU:
        return f"{amount / 1000:g} cpu"
    if name == MEMORY:
        return f"{amount / GIB:.4g} GiB of memory"
    return f"{amount} {name}"


def amounts(amount: Amounts) -> str:
    """Return what one instance requests, without its pod slot."""
    return ", ".join(quantity(name, amount[name]) for name in sorted(amount) if name != PODS) or "nothing"


def instances(number: int) -> str:
    return f"{number} instance" if number == 1 else f"{number} instances"


def minimum(who: Entry, missing: int) -> str:
    """Why a step is taken: a minimum that has no place."""
    if who.job is None:
        return f"for the pending pod {who.key} of priority {who.priority}, which fits no machine"
    return f"for {who.key}, which has no place for {missing} of its minimum of {who.least}"


def limit(draft: Draft, resource: int) -> str:
    """Why a step is taken: a resource that is above its limit."""
    name, rooms = draft.rooms.resources[resource], draft.rooms
    used, most = quantity(name, rooms.used[resource]), quantity(name, draft.limits[resource])
    return f"because {used} would be used, with a limit of {most} of {quantity(name, rooms.total[resource])}"


def poorer(rich: Entry, poor: Entry) -> str:
    """Why a step is taken: a job that is less fulfilled."""
    return f"for {poor.key}, which had a score of {poor.score:.2f}, while its own was {rich.score:.2f}"


def out_of_range(who: Entry, before: int) -> str:
    """Why a size was outside its range."""
    steps = f" in steps of {who.step}" if who.step > 1 else ""
    return f"must have {who.least} to {who.most} instances{steps}, not {before}"


def describe_delta(draft: Draft, who: Entry) -> str:
    """Return the sentence of a delta."""
    parts = [who.ranged] if who.ranged else []
    causes = {take.cause.of: take.cause for take in reversed(who.takes)}
    for cause in reversed(causes.values()):
        number = sum(len(take.machines) for take in who.takes if take.cause.of == cause.of)
        parts.append(f"gives up {instances(number)} {cause.sentence}")
    if who.withdrawn:
        parts.append(f"withdraws {instances(who.withdrawn)} that fit no machine")
    if who.grown:
        parts.append(f"grows by {instances(who.grown)}, least fulfilled first, to a score of {who.score:.2f}")
    return f"{who.key} {'; '.join(parts)}"


def waits(draft: Draft, who: Entry) -> str:
    """Return the sentence of a job that waits for its minimum."""
    each = amounts(who.job.amount) if who.job else ""
    machines = len(draft.rooms.names) if who.permitted is None else len(who.permitted)
    return (
        f"{who.key} has no place for {who.least - who.bound} of its minimum of {who.least} ({each} each): "
        f"its {machines} permitted machines, with all that jobs of priority {who.priority} or lower hold "
        f"above their minimum, have room for {draft.places.get(who.key, 0)}"
    )
