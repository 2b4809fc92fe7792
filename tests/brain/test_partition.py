"""Two Brains on one database, cut off from the API server in turn: each decision has one plan."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import pytest

from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.sizes.facts import Stage
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.brain import main
from elasticjob.brain.history import Sample
from elasticjob.brain.settings import Settings, Source
from elasticjob.brain.store import Record, Store, open_store
from elasticjob.controllers.install import install
from elasticjob.kube.client.client import Client
from elasticjob.kube.election.election import Election, Terms
from elasticjob.kube.errors import ApiError, LeadershipLost, Unreachable
from elasticjob.sizing.algorithm import Algorithm
from elasticjob.sizing.facts import Event, Facts
from lab.clusters.served import Served
from lab.running import beside
from lab.troubles.switch import Switch
from lab.waiting import until
from tests.kit.brain import running_job

NOBODY: Final = 9
"""A port on which nothing listens."""
TERMS: Final = Terms(timedelta(seconds=1.5), timedelta(seconds=1), timedelta(seconds=0.2))
PARTITIONS: Final = 3


def propose(facts: Facts) -> Change:
    """Two to seven workers in turn: never as many as there are, nor as the plan before says."""
    return Change({"worker": Group(2 + facts.decisions % 6)}, reason="as many as decisions")


RESTLESS: Final = Algorithm("restless", frozenset(Event), frozenset(Stage), propose, "worker")


@dataclass
class Replica:
    """One Brain, and its line to the API server. One that lost the lease has ended, and is started again."""

    name: str
    line: Switch
    port: int
    served: Served
    store: Store
    settings: Settings
    lost: int = 0
    decided: int = 0
    """How many decisions it kept."""
    last: bool = False
    """Whether its next decision is its last: it is cut off before it writes the plan of that one."""

    async def keep(self, uid: str, kept: Record, after: int) -> int | None:
        """Keep a decision, as the store does."""
        number = await Store.keep(self.store, uid, kept, after)
        if number is not None:
            self.decided += 1
            if self.last:
                self.cut()
        return number

    def cut(self) -> None:
        self.line.ports = [NOBODY]
        self.line.cut()

    def heal(self) -> None:
        self.last, self.line.ports = False, [self.port]

    async def run(self) -> None:
        """Run as a process that is started again would, until cancelled."""
        config = self.served.config()
        config = replace(config, server=self.served.url.replace(f":{self.port}", f":{self.line.port}"))
        while True:
            async with Client(config) as client, aiohttp.ClientSession() as session:
                election = Election(
                    "brain",
                    "default",
                    terms=TERMS,
                    identity=f"{self.name}-{self.lost}",
                    exit=lambda code: None,
                )
                operator = main.compose(
                    client, self.settings, self.store, session, signals=False, election=election
                )
                try:
                    await operator.run()
                except LeadershipLost:
                    self.lost += 1
                except (Unreachable, ApiError):  # it began while it was cut off
                    await asyncio.sleep(0.1)


@asynccontextmanager
async def replicas(
    served: Served, database: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[Replica]]:
    port = urlsplit(served.url).port or 0
    async with (
        Switch(port) as one,
        Switch(port) as two,
        open_store(database) as first,
        open_store(database) as second,
    ):
        found = [
            Replica(name, line, port, served, store, settings)
            for name, line, store in (("one", one, first), ("two", two, second))
        ]
        for each in found:
            monkeypatch.setattr(each.store, "keep", each.keep)
        async with beside(*(each.run() for each in found)):
            yield found


async def trains(store: Store, uid: str) -> None:
    """Have a job train with one worker, again and again."""
    while True:
        await store.add_samples(uid, [Sample(datetime.now(UTC), 1, 3.0, 30.0)])
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)  # SQLite is for one Brain
async def test_two_brains_never_make_two_plans_for_one_decision(
    served: Served, client: Client, namespace: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "all_algorithms", lambda: (RESTLESS,))
    await install(client)
    job = await running_job(client, namespace, "digits", most=8, size={"replicas": 1})
    uid = job["metadata"]["uid"]
    settings = Settings(
        namespace=namespace, probes="", source=Source.NONE, leader_election=True, every=0.2, pace=0.0005
    )
    async with replicas(served, database, settings, monkeypatch) as brains:
        store = brains[0].store
        await until(lambda: known(store, uid), "a Brain knows the job")
        async with beside(trains(store, uid)):
            for _ in range(PARTITIONS):
                victim = await leader(brains)
                victim.last, lost = True, victim.lost
                await until(lambda victim=victim, lost=lost: is_more(victim.lost, lost), "the lease is lost")  # type: ignore[misc]
                await leader(brains)
                victim.heal()
                await leader(brains)
    async with open_store(database) as store:  # no Brain decides any more
        decisions = await store.decisions_of(uid, 1000)
    plans = {plan.metadata.name: plan for plan in await client.list(SCALEPLAN, namespace)}
    written = {each.plan: each for each in decisions if each.outcome == "Written"}
    assert Counter(each.number for each in decisions) == Counter(range(1, len(decisions) + 1))
    assert len({each.plan for each in decisions}) == len(decisions)
    assert plans.keys() <= {each.plan for each in decisions}
    assert written.keys() <= plans.keys()
    counts = {name: plan.spec.replica_resource_specs["worker"].replicas for name, plan in plans.items()}
    assert counts == {
        each.plan: each.sizes["groups"]["worker"]["count"] for each in decisions if each.plan in plans
    }


async def leader(brains: list[Replica]) -> Replica:
    """Return who keeps two decisions from now on."""
    before = [each.decided for each in brains]
    found: list[Replica] = []

    async def decides() -> bool:
        found[:] = [each for each, had in zip(brains, before, strict=True) if each.decided > had + 1]
        return bool(found)

    await until(decides, "decisions go on")
    return found[0]


async def is_more(count: int, before: int) -> bool:
    return count > before


async def known(store: Store, uid: str) -> bool:
    return uid in {row.uid for row in await store.newest_jobs(9)}
