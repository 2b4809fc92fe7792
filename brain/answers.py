"""From a master's question to an answer, which is kept: the shell around the rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from elasticjob.api.rpc.brain import AskSizes, Sizes, TellStatistics
from elasticjob.api.rpc.message import Empty
from elasticjob.api.sizes.facts import Mode, Placement, Stage
from elasticjob.brain.store import Record, Store
from elasticjob.sizing.algorithm import Algorithm, Decider
from elasticjob.sizing.decide import Decision, decide
from elasticjob.sizing.facts import Event, Facts

RUNNING = "Brain writes the plans of running jobs itself"
TRIES = 3


class Answers:
    """Answers masters. With `plans` it leaves running jobs to plans.py, which writes ScalePlans."""

    def __init__(self, store: Store, algorithms: Sequence[Algorithm], *, plans: bool = False) -> None:
        self._store, self._algorithms, self._plans = store, algorithms, plans

    async def answer(self, asked: AskSizes | TellStatistics, now: datetime) -> Sizes | Empty:
        """Return the answer to a master, and keep what it tells."""
        job = asked.job
        await self._store.tell(job, asked.records, now)
        if isinstance(asked, TellStatistics):
            return Empty()
        if self._plans and asked.stage is not Stage.CREATE:
            return Sizes(reason=RUNNING)
        event = Event.TROUBLE if asked.stage is Stage.RUNNING else Event.START
        for _ in range(TRIES):
            history = await self._store.history(job.uid, now, asked.stage)
            facts = history.facts(
                job.but(mode=Mode.CLUSTER), await self._fit(asked.placed), now, settled=asked.settled
            )
            decision = decide(facts, event, Decider.BRAIN, self._algorithms)
            kept = kept_of(decision, event, facts)
            if not decision.change or await self._store.keep(job.uid, kept, history.decisions):
                return Sizes.of(decision.change)
        return Sizes(reason="the sizes of this job are being decided elsewhere: ask again")

    async def _fit(self, placed: Placement) -> Placement:
        """Desired sizes; where no free capacity is known, a node gets no more than the largest machine."""
        if placed.machine is not None or (largest := await self._store.largest_machine()) is None:
            return placed
        return placed.but(machine=largest.manifest())


def kept_of(decision: Decision, event: Event, facts: Facts, plan: str = "") -> Record:
    """Return a decision as it is kept, with the numbers that a person needs to follow it."""
    change = decision.change
    sizes: dict[str, Any] = msgspec.to_builtins(Sizes.of(change))
    inputs = {**_inputs(facts), "without a proposal": list(decision.without)}
    return Record(facts.now, event.value, change.algorithm, change.reason, inputs, sizes, plan)


def _inputs(facts: Facts) -> dict[str, Any]:
    last = facts.samples[-1] if facts.samples else None
    return {
        "samples": len(facts.samples),
        "jobs like it": [past.name for past in facts.past],
        "killed": [[node.name, node.bytes] for node in facts.killed],
        "counts": dict(facts.placed.sizes),
        "resources": {role: dict(given) for role, given in facts.placed.resources.items()},
        "workers": last.workers if last else None,
        "steps": last.steps if last else None,
        "uses": [[use.name, round(use.cpu, 3), use.memory] for use in last.nodes[:64]] if last else [],
        "settled": facts.settled,
    }
