"""What Brain keeps, on both databases: once, by uid, across restarts, within bounds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, insert

from elasticjob.api.resources import Resources
from elasticjob.api.sizes.facts import JobFacts, Sample, Use
from elasticjob.brain.history import Decision, OomKill
from elasticjob.brain.migrations.run import configuration
from elasticjob.brain.store import (
    NoDatabase,
    NoSuchJob,
    Record,
    Retention,
    SeenJob,
    SeenMachine,
    SeenPod,
    Store,
    engine_of,
    open_store,
)
from elasticjob.brain.tables import jobs, machines, metadata, pods

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
FACTS = JobFacts(namespace="team", name="digits", uid="u1")
JOB = SeenJob("u1", "team", "digits", NOW, image="trainer:1", script="python train.py")
POD = SeenPod("p1", "u1", "digits-worker-0", "worker", NOW, phase="Running", cores=2.0, bytes=4 << 30)
KEPT = Record(
    NOW,
    "Start",
    "cold",
    "nothing is known",
    {"x": 1},
    {"groups": {"ps": {"count": 4, "resource": {"cpu": "12"}}}},
)


def told(minutes: int, workers: int = 2) -> Sample:
    node = Use(name="digits-ps-0", role="ps", cpu=1.5, memory=1 << 30, cores=4.0, bytes=8 << 30)
    return Sample(
        at=NOW + timedelta(minutes=minutes), workers=workers, steps=2.5, samples=80.0, nodes=(node,)
    )


def test_only_databases_of_ours_are_opened() -> None:
    with pytest.raises(
        NoDatabase, match="mysql is no database of ours: write sqlite:///FILE or postgresql://"
    ):
        engine_of("mysql://x/y")


async def test_migrations_make_the_tables_that_the_code_names(database: str) -> None:
    engine = engine_of(database)
    async with open_store(database), open_store(database):  # the second has nothing to do

        def difference(connection: Connection) -> list[object]:
            return list(compare_metadata(MigrationContext.configure(connection), metadata))

        async with engine.connect() as connection:
            assert await connection.run_sync(difference) == []
    await engine.dispose()


async def test_a_database_of_the_first_version_keeps_its_rows(database: str) -> None:
    engine = engine_of(database)
    row = {"uid": "u1", "namespace": "team", "name": "digits", "began": NOW, "seen": NOW}

    def as_it_was(connection: Connection) -> None:
        command.upgrade(configuration(connection), "0001")
        connection.execute(insert(jobs).values(row))

    async with engine.begin() as connection:
        await connection.run_sync(as_it_was)
    await engine.dispose()
    async with open_store(database) as store:
        await store.add_samples("u1", [Sample(NOW, 1, 1.0, 1.0, goodput=0.5)])
        assert [sample.goodput for sample in (await store.history("u1", NOW)).samples] == [0.5]


async def test_what_masters_tell_is_kept_once_and_survives_a_restart(database: str) -> None:
    async with open_store(database) as store:
        await store.tell(FACTS, [told(0), told(1)], NOW)
        await store.tell(FACTS, [told(1), told(2)], NOW)
    async with open_store(database) as store:
        found = (await store.history("u1", NOW)).samples
    assert [(each.at - NOW) / timedelta(minutes=1) for each in found] == [0, 1, 2]
    use = Use("digits-ps-0", "ps", 1.5, 1 << 30, 4.0, 8 << 30)
    assert found[0] == Sample(NOW, 2, 2.5, 80.0, (use,))


async def test_ends_stay_and_the_first_reason_for_them(store: Store) -> None:
    await store.see_job(JOB, NOW)
    await store.see_pod(POD)
    end = NOW + timedelta(minutes=5)
    await store.see_pod(replace(POD, phase="Failed", reason="OOMKilled", ended=end, log="last words"))
    await store.see_pod(replace(POD, phase="Failed", reason="Deleted", ended=end + timedelta(minutes=1)))
    await store.see_job(replace(JOB, phase="Succeeded", ended=end, completed=True), end)
    await store.see_job(replace(JOB, phase="Succeeded"), end)
    (pod,) = await store.pods_of("u1")
    assert (pod.ended, pod.reason, pod.log) == (end, "OOMKilled", "last words")
    job = await store.find("team", "digits")
    assert (job.ended, job.completed) == (end, True)
    assert (await store.history("u1", end)).killed == (OomKill("digits-worker-0", "worker", end, 4 << 30),)


async def test_a_namesake_is_another_job(store: Store) -> None:
    await store.see_job(replace(JOB, ended=NOW, completed=True), NOW)
    await store.add_samples("u1", [Sample(NOW, 2, 1.0, 1.0)])
    await store.see_job(replace(JOB, uid="u2", began=NOW + timedelta(hours=1)), NOW)
    assert (await store.find("team", "digits")).uid == "u2"
    found = await store.history("u2", NOW + timedelta(hours=2))
    assert found.samples == ()
    assert [(past.uid, past.completed, len(past.samples)) for past in found.past] == [("u1", True, 1)]


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (replace(JOB, name="other"), True),  # the same image and script
        (replace(JOB, image="trainer:2"), True),  # the same name
        (replace(JOB, name="other", script="eval.py"), False),
        (replace(JOB, namespace="evil"), False),
        (replace(JOB, began=NOW - timedelta(days=9)), False),
    ],
)
async def test_jobs_like_it(store: Store, other: SeenJob, alike: bool) -> None:
    await store.see_job(JOB, NOW)
    await store.see_job(replace(other, uid="u0", ended=other.began + timedelta(hours=1)), NOW)
    assert bool((await store.history("u1", NOW + timedelta(hours=2))).past) is alike


async def test_history_belongs_to_the_namespace_in_which_the_api_server_has_the_job(store: Store) -> None:
    """A tenant chooses annotations, and what its master says before the monitor has seen the job."""
    lie = FACTS.but(uid="u0")
    await store.tell(lie, [told(0)], NOW)
    await store.end_all_but(jobs, (), NOW)
    await store.tell(FACTS, [told(1)], NOW)
    assert (await store.history("u1", NOW)).past == ()
    await store.see_job(JOB, NOW)
    assert (await store.history("u1", NOW)).past == ()
    async with store._engine.begin() as connection:  # as a version wrote it that believed annotations
        claims = {"uid": "u9", "namespace": "evil", "name": "digits", "owner": "team"}
        await connection.execute(insert(jobs).values(began=NOW, seen=NOW, ended=NOW, **claims))
    assert (await store.history("u1", NOW)).past == ()
    await store.tell(lie, [], NOW + timedelta(hours=1))
    await store.tell(FACTS.but(uid="u8"), [], NOW + timedelta(hours=1))
    assert (await store.find("team", "digits")).uid == "u1"


async def test_who_is_not_known_is_named(store: Store) -> None:
    with pytest.raises(NoSuchJob, match="no job of uid u9 is known"):
        await store.history("u9", NOW)
    with pytest.raises(NoSuchJob, match="no job team/absent is known"):
        await store.find("team", "absent")
    with pytest.raises(NoSuchJob, match="u9"):
        await store.see_pod(replace(POD, job="u9"))
    with pytest.raises(NoSuchJob, match="u9"):
        await store.add_samples("u9", [Sample(NOW, 1, 1.0, 1.0)])


async def test_of_decisions_from_the_same_state_one_is_kept(store: Store) -> None:
    await store.see_job(JOB, NOW)
    numbers = await asyncio.gather(*(store.keep("u1", KEPT, after=0) for _ in range(5)))
    assert sorted(numbers, key=str) == [1, None, None, None, None]
    assert await store.keep("u1", KEPT, after=1) == 2
    await store.note_end("u1", 2, "Succeeded")
    first, second = await store.decisions_of("u1")
    assert (first.number, first.inputs, first.outcome) == (1, {"x": 1}, "")
    assert (second.number, second.outcome) == (2, "Succeeded")
    planned = Decision(NOW, "cold", {"ps": 4}, {"ps": Resources.parse({"cpu": "12"})}, 1)
    ended = replace(planned, number=2, outcome="Succeeded")
    assert (await store.history("u1", NOW)).planned == (planned, ended)


async def test_numbers_of_plans_that_a_lost_database_decided_are_not_used_again(store: Store) -> None:
    await store.see_job(JOB, NOW)
    await store.number_after("u1", 3)
    await store.number_after("u1", 2)
    assert await store.keep("u1", KEPT, after=0) is None
    assert await store.keep("u1", KEPT, after=(await store.history("u1", NOW)).decisions) == 4


async def test_what_a_full_list_lacks_has_ended(store: Store) -> None:
    await store.see_job(JOB, NOW)
    for uid in ("p1", "p2"):
        await store.see_pod(replace(POD, uid=uid))
    await store.see_machine(SeenMachine("m1", "node-1", NOW, 8.0, 64 << 30, {"nvidia.com/gpu": 8}))
    assert await store.end_all_but(pods, ["p2"], NOW) == 1
    assert await store.end_all_but(pods, ["p2"], NOW) == 0
    assert await store.end_all_but(machines, ["m1"], NOW) == 0
    assert await store.largest_machine() == Resources.parse({"cpu": 8, "memory": "64Gi"})
    assert {pod.uid: pod.ended for pod in await store.pods_of("u1")} == {"p1": NOW, "p2": None}


async def test_a_sweep_leaves_what_is_new_and_not_too_much(store: Store) -> None:
    old = NOW - timedelta(days=100)
    await store.see_job(replace(JOB, uid="u0", began=old, ended=old), NOW)
    await store.see_pod(replace(POD, uid="p0", job="u0"))
    await store.see_job(JOB, NOW)
    await store.tell(FACTS, [told(minutes) for minutes in range(30)], NOW)
    await store.keep("u1", KEPT, after=0)
    assert await store.sweep(Retention(samples=10), NOW + timedelta(hours=1)) == 21
    assert await store.counts() == {"jobs": 1, "machines": 0, "decisions": 1, "pods": 0, "samples": 10}
    assert (await store.history("u1", NOW)).samples[-1].at == NOW + timedelta(minutes=29)


async def test_a_full_list_may_be_longer_than_the_arguments_of_a_statement(store: Store) -> None:
    """PostgreSQL's drivers take 32,767 of them."""
    await store.see_job(JOB, NOW)
    uids = [f"p{number}" for number in range(40_000)]
    for uid in (uids[0], "gone"):
        await store.see_pod(replace(POD, uid=uid))
    assert await store.end_all_but(pods, uids, NOW) == 1
    assert {pod.uid for pod in await store.pods_of("u1") if pod.ended} == {"gone"}


WILD: Any = "\0\ud800" + 600 * "é"
"""Text as annotations and termination messages may hold it: PostgreSQL refuses it for three reasons."""


async def test_words_of_others_are_kept_whatever_they_are(store: Store) -> None:
    names = {name for name, type_ in SeenJob.__annotations__.items() if type_ == "str"}
    for _ in range(2):
        await store.see_job(replace(JOB, **dict.fromkeys(names, WILD)), NOW)
    (row,) = await store.newest_jobs(9)
    assert {getattr(row, name)[:2] for name in names} == {"?é"}
    names = {name for name, type_ in SeenPod.__annotations__.items() if type_ == "str"}
    for _ in range(2):
        await store.see_pod(replace(POD, **dict.fromkeys(names, WILD)))
    (pod,) = await store.pods_of(WILD)
    assert {getattr(pod, name)[:2] for name in names} == {"?é"}
    assert len(pod.log) == 601


async def test_speeds_that_no_job_has_are_not_read(store: Store) -> None:
    """Databases of older versions may hold them."""
    await store.see_job(JOB, NOW)
    for workers, speed in ((1, inf), (3, 30.0), (4, 1e300)):
        await store.add_samples("u1", [Sample(NOW + timedelta(seconds=workers), workers, 1.0, speed)])
    await store.add_samples("u1", [Sample(NOW, 5, inf, 1.0)])
    assert await store.speeds() == {"u1": {3: 30.0}}
    assert [each.workers for each in (await store.history("u1", NOW)).samples] == [3]
    assert [each.workers for each in await store.samples_of("u1", 9)] == [3]
