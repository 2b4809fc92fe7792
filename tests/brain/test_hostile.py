"""Whatever a master sends, or a reader asks for: Brain answers, and other jobs' answers stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from elasticjob.api.rpc.brain import AskSizes, TellStatistics, job_token
from elasticjob.api.sizes.facts import JobFacts, Placement, Sample, Stage, Use
from elasticjob.api.sizes.role import Role
from elasticjob.brain.store import NoDatabase, Store, open_store
from tests.kit.brain import KEY, NOW, Site, serving

AMOUNTS = {"cpu": "2", "memory": "4Gi"}
ROLE = Role(count=2, least=1, most=8, unit=1, resource=AMOUNTS)
JOB = JobFacts(namespace="t", name="evil", uid="u1", strategy="s", roles={"worker": ROLE}, limits=AMOUNTS)
USE = Use(name="evil-worker-0", role="worker", cpu=1.5, memory=1 << 30, cores=2.0, bytes=4 << 30)
RECORD = Sample(at=NOW, workers=2, steps=5.0, samples=40.0, nodes=(USE,))
PLACED = Placement(
    sizes={"worker": 2},
    resources={"worker": AMOUNTS},
    nodes={"evil-worker-0": AMOUNTS},
    room={"worker": 3},
    machine=AMOUNTS,
)
BARE = JobFacts(namespace="t", name="evil", uid="u1")
ASKED: Final = (
    AskSizes(job=JOB, stage=Stage.RUNNING, placed=PLACED, settled=True),
    TellStatistics(job=BARE, records=(RECORD,), dropped=1),
)
"""Each part of a request once."""
NUMBERS: Final[tuple[Any, ...]] = (-1, 2**53, 10**30, 1e300)
WORDS: Final[tuple[Any, ...]] = ("\0", "x" * 300, "1e400", "9999-12-31T23:59:59-23:00", None)


def variants(value: Any) -> Iterator[Any]:
    """Return the value with each of its parts, and each of its names, in turn made wild."""
    match value:
        case dict():
            for name, part in value.items():
                yield from ({**value, name: each} for each in variants(part))
            yield from ({**value, each: next(iter(value.values()), 1)} for each in ("\0", "x" * 300))
        case list():
            yield from ([each] for each in variants(value[0]))
        case str():
            yield from WORDS
        case _:
            yield from NUMBERS


async def post(site: Site, path: str, body: Any, uid: str = "u1") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {job_token(KEY, uid)}"}
    url = f"http://{site.address}/v1/{path}"
    async with site.session.post(url, data=msgspec.json.encode(body), headers=headers) as reply:
        return reply.status, await reply.json(content_type=None)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)  # SQLite takes more
async def test_what_one_master_sends_costs_no_other(store: Store, tmp_path: Path) -> None:
    good = AskSizes(job=msgspec.structs.replace(JOB, uid="u2", name="good"), stage=Stage.CREATE)
    async with serving(store, tmp_path) as site:
        expected = await post(site, "brain/sizes", good, "u2")
        assert expected[0] == 200
        for asked in ASKED:
            for body in variants(msgspec.json.decode(msgspec.json.encode(asked))):
                status, said = await post(site, asked.PATH, body)
                assert status in (200, 400, 401), (said, str(body)[:2000])
        assert (await post(site, "brain/sizes", good, "u2")) == expected
        for path in (
            "jobs",
            "jobs?running",
            "jobs/t/evil",
            "jobs/t/good",
            "jobs/%00/x",
            f"jobs/{'x' * 300}/y",
        ):
            async with site.session.get(f"http://{site.address}/v1/{path}") as reply:
                assert reply.status in (200, 404), path


LONG: Final = {
    "roles": AskSizes(
        job=msgspec.structs.replace(BARE, roles={f"r{n}": ROLE for n in range(5000)}), stage=Stage.CREATE
    ),
    "amounts": AskSizes(
        job=msgspec.structs.replace(BARE, limits={f"x/{n}": "1" for n in range(5000)}), stage=Stage.CREATE
    ),
    "nodes": AskSizes(
        job=BARE, stage=Stage.CREATE, placed=Placement(nodes={f"n{n}": AMOUNTS for n in range(5000)})
    ),
    "records": TellStatistics(job=BARE, records=(RECORD,) * 5000),
}


@pytest.mark.parametrize("asked", LONG.values(), ids=[*LONG])
def test_a_request_that_would_hold_up_all_others_is_malformed(asked: Any) -> None:
    """Brain answers all jobs in one thread; two megabytes of these took it for two seconds."""
    with pytest.raises(msgspec.ValidationError, match="of length <="):
        msgspec.json.decode(msgspec.json.encode(asked), type=type(asked))


async def test_requests_wait_while_the_database_is_away(tmp_path: Path) -> None:
    async with (
        open_store("postgresql://brain@127.0.0.1:9/brain") as store,
        serving(store, tmp_path) as site,
    ):
        status, said = await post(site, "brain/sizes", AskSizes(job=JOB, stage=Stage.CREATE))
        assert (status, said["code"], said["detail"]) == (503, "away", "ask again later")
        async with site.session.get(f"http://{site.address}/v1/jobs") as reply:
            assert (reply.status, reply.headers["Retry-After"]) == (503, "2")
        (errors,) = store.errors.collect()
        assert errors.samples[0].value == 3  # the attempt to open it, and two requests


@pytest.mark.parametrize("url", ["mysql://x/y", "no url", "postgresql://host:port/x", ""])
async def test_a_database_that_will_not_come_is_named(url: str) -> None:
    with pytest.raises(NoDatabase):
        async with open_store(url):
            pass


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_without_its_key_masters_are_refused(store: Store, tmp_path: Path) -> None:
    async with serving(store, tmp_path) as site:
        (tmp_path / "key").unlink()
        assert (await post(site, "brain/sizes", AskSizes(job=JOB, stage=Stage.CREATE)))[0] == 401
