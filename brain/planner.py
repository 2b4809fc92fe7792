"""From what is asked and kept to a decision that is kept, too: the shell around the processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from elasticjob.api.resources import NOTHING, Resources
from elasticjob.api.rpc.brain import (
    AskFirst,
    AskRecovery,
    AskSizes,
    JobFacts,
    Placement,
    Size,
    Sizes,
    TellStatistics,
)
from elasticjob.api.rpc.message import Empty
from elasticjob.brain.algorithms.algorithm import Algorithm
from elasticjob.brain.history import Event, History, Killed, Limits, Role, Stage
from elasticjob.brain.processor import Decision, decide
from elasticjob.brain.store import Kept, Store

RUNNING = "Brain writes the plans of running jobs itself"
TRIES = 3
Question = AskSizes | AskRecovery | AskFirst


class Planner:
    """Answers masters. With `plans` it leaves running jobs to the reconciler, which writes ScalePlans."""

    def __init__(self, store: Store, algorithms: Sequence[Algorithm], *, plans: bool = False) -> None:
        self._store, self._algorithms, self._plans = store, algorithms, plans

    async def answer(self, asked: Question | TellStatistics, now: datetime) -> Sizes | Empty:
        """Return the answer to a master, and keep what it tells."""
        job = asked.job
        await self._store.tell(job, () if isinstance(asked, AskFirst) else asked.records, now)
        if isinstance(asked, TellStatistics):
            return Empty()
        if isinstance(asked, AskSizes) and self._plans and asked.stage is not Stage.CREATE:
            return Sizes(reason=RUNNING)
        for _ in range(TRIES):
            history = await self._store.history(job.uid, now, _stage(asked))
            history = _asked(history, asked, now)
            limits = limits_of(job, _placed(asked))
            if limits.machine is None:
                limits = replace(limits, machine=await self._store.largest_machine())
            decision = decide(_event(asked), history, limits, now, self._algorithms)
            if not decision or await self._store.keep(job.uid, kept_of(decision, now), history.decisions):
                return sizes_of(decision)
        return Sizes(reason="the sizes of this job are being decided elsewhere: ask again")


def _event(asked: Question) -> Event:
    match asked:
        case AskRecovery():
            return Event.OOM
        case AskSizes(stage=Stage.RUNNING):
            return Event.TROUBLE
        case _:
            return Event.START


def _stage(asked: Question) -> Stage:
    match asked:
        case AskSizes(stage=stage):
            return stage
        case AskRecovery(records=records) if records:
            return Stage.RUNNING
        case _:
            return Stage.CREATE


def _placed(asked: Question) -> Placement:
    return Placement() if isinstance(asked, AskFirst) else asked.placed


def _asked(history: History, asked: Question, now: datetime) -> History:
    """The history with what the master says of the present."""
    if isinstance(asked, AskFirst):
        return replace(history, past=(), samples=(), killed=())
    history = with_placed(history, asked.placed)
    if isinstance(asked, AskSizes):
        return replace(history, settled=asked.settled)
    return replace(history, killed=(*history.killed, *(_killed(history, name, now) for name in asked.nodes)))


def _killed(history: History, name: str, now: datetime) -> Killed:
    """What is known of a node that was killed just now."""
    uses = [use for sample in history.samples for use in sample.nodes if use.name == name]
    role = uses[-1].role if uses else next((role for role in history.counts if f"-{role}-" in name), "worker")
    given = history.nodes.get(name, history.resources.get(role, NOTHING)).get("memory")
    return Killed(name, role, now, int(given.value) if given else (uses[-1].bytes if uses else 0))


def with_placed(history: History, placed: Placement) -> History:
    """Return the history with what the job's roles and nodes should have."""
    return replace(
        history, counts=dict(placed.sizes), resources=_parsed(placed.resources), nodes=_parsed(placed.nodes)
    )


def limits_of(job: JobFacts, placed: Placement) -> Limits:
    """Return the bounds of a decision."""
    roles = {
        name: Role(each.least, each.most, each.unit, each.auto, each.count, Resources.parse(each.resource))
        for name, each in job.roles.items()
    }
    machine = Resources.parse(placed.machine) if placed.machine else None
    return Limits(roles, Resources.parse(job.limits), machine, placed.room)


def sizes_of(decision: Decision) -> Sizes:
    """Return a decision as a master is told it."""
    groups = {
        role: Size(count=group.count, resource=group.resource.manifest())
        for role, group in decision.groups.items()
    }
    nodes = {name: resource.manifest() for name, resource in decision.nodes.items()}
    return Sizes(groups=groups, nodes=nodes, reason=decision.reason[:1024], algorithm=decision.algorithm)


def kept_of(decision: Decision, now: datetime, plan: str = "") -> Kept:
    """Return a decision as it is kept."""
    sizes: Mapping[str, Any] = msgspec.to_builtins(sizes_of(decision))
    return Kept(now, decision.event.value, decision.algorithm, decision.reason, decision.inputs, sizes, plan)


def _parsed(found: Mapping[str, Mapping[str, str]]) -> Mapping[str, Resources]:
    return {name: Resources.parse(each) for name, each in found.items()}
