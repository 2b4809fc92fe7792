"""Brain's memory: jobs, their samples, pods and machines, and what was decided, in SQLite or PostgreSQL.

    async with opened("sqlite+aiosqlite:///brain.db") as store:
        await store.tell(job, records, now)
        history = await store.history(uid, now)

1. Each method is one transaction. Whatever comes again (a sample, an object, an end) changes nothing.
2. A job that only its master has told of has a row too: its objects follow when the monitor sees them. Until
   then it has no owner, and no history but its own: a master may say any namespace. The owner is the
   namespace in which the API server has the job.
3. Decisions of a job are numbered, without gaps but for those of a lost database; of two that are made from
   the same state one is refused.
4. While the database is away each method raises DatabaseAway, soon; the store works again once it is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, cast

import msgspec
from asyncpg.exceptions import InterfaceError, PostgresError
from prometheus_client import Counter
from sqlalchemy import Row, Select, Table, and_, case, delete, event, func, or_, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from elasticjob.api.numbers import MOST
from elasticjob.api.resources import Resources
from elasticjob.api.sizes.facts import JobFacts
from elasticjob.brain.history import Decision, History, OomKill, Past, Sample, Stage, Use
from elasticjob.brain.migrations.run import upgrade
from elasticjob.brain.tables import decisions, jobs, machines, metadata, pods, samples
from elasticjob.kube.errors import Unreachable
from elasticjob.kube.objects.kinds import Key
from elasticjob.sizing.facts import Pace

log = logging.getLogger("elasticjob.brain")

OOM: Final = "OOMKilled"
ALIKE: Final = 8
"""Earlier jobs of a scenario that count."""
ALIKE_FOR: Final = timedelta(days=7)
RECENT: Final = 64
"""Samples of a job that a decision looks at."""
LOOK_BACK: Final = Pace().shrink
"""The age of one more: memory that was not needed for so long may be taken (sizing/rules/memory.py)."""
EPSILON: Final = timedelta(microseconds=1)
PAST_SAMPLES: Final = 8
PIECE: Final = 1000
"""Rows that a sweep deletes in one transaction, and uids in one statement."""
PATIENCE: Final = {"timeout": 5, "command_timeout": 30}
"""Of PostgreSQL's driver, in seconds: a host that swallows packets must not hold its callers for minutes."""
PASSING: Final = ("08", "53", "57")
"""Classes of SQLSTATE: connections, resources that are short, shutdown and start."""
CANNOT_CONNECT: Final = (OSError, SQLAlchemyError, PostgresError, InterfaceError)
"""The last two are the driver's own: SQLAlchemy lets them through while it connects."""
SCHEMES: Final = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
}
SOUND: Final = and_(samples.c.steps.between(0, MOST), samples.c.samples.between(0, MOST))
"""Which samples are read: databases of older versions may hold infinite speeds."""

INSERTS: Final[Mapping[str, Callable[[Table], postgresql.Insert]]] = {
    "postgresql": postgresql.insert,
    "sqlite": cast(Callable[[Table], postgresql.Insert], sqlite.insert),  # its methods are the same
}


@dataclass(frozen=True)
class SeenJob:
    """A job as the cluster has it; `ended` is absent while it goes on."""

    uid: str
    namespace: str
    name: str
    began: datetime
    image: str = ""
    script: str = ""
    strategy: str = ""
    mode: str = ""
    phase: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)
    ended: datetime | None = None
    completed: bool = False


@dataclass(frozen=True)
class SeenPod:
    """A pod of a job."""

    uid: str
    job: str
    name: str
    role: str
    began: datetime
    namespace: str = ""
    machine: str = ""
    phase: str = ""
    reason: str = ""
    cores: float = 0.0
    bytes: int = 0
    ended: datetime | None = None
    log: str = ""


@dataclass(frozen=True)
class SeenMachine:
    """A node of the cluster."""

    uid: str
    name: str
    began: datetime
    cores: float = 0.0
    bytes: int = 0
    devices: Mapping[str, int] = field(default_factory=dict)
    ready: bool = True
    ended: datetime | None = None


@dataclass(frozen=True)
class Record:
    """A decision as it is kept; `plan` names its ScalePlan, "" for an answer to a master."""

    at: datetime
    event: str
    algorithm: str
    reason: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, Any] = field(default_factory=dict)
    plan: str = ""
    outcome: str = ""
    number: int = 0


@dataclass(frozen=True)
class Retention:
    """What a sweep leaves: rows younger than `age`, and of each job the newest `samples`."""

    age: timedelta = timedelta(days=90)
    samples: int = 500


class NoSuchJob(LookupError):
    """No job of this uid, or of this namespace and name, is known."""


class NoDatabase(Exception):
    """The URL names no database that Brain can have: to wait does not help."""


class DatabaseAway(Unreachable):
    """The database does not answer now; loops wait for it as they do for an API server."""


def database_errors() -> Counter:
    """Return the counter of a store, for the registry of the process that has the database open."""
    what = "Transactions that the database refused or lost."
    return Counter("elasticjob_brain_database_errors", what, registry=None)


@asynccontextmanager
async def open_store(url: str) -> AsyncIterator[Store]:
    """Open the database at `url` (sqlite:///file, postgresql://…) with today's tables; one that is away gets
    them when it is back. Raises NoDatabase."""
    engine = engine_of(url)
    store = Store(engine)
    try:
        try:
            await store.answers()
        except DatabaseAway as error:
            if engine.dialect.name == "sqlite" or not _may_come_back(error.__cause__):
                raise NoDatabase(str(error)) from error
            log.warning("Brain begins without its database: %s", error)
        yield store
    finally:
        await engine.dispose()


def engine_of(url: str) -> AsyncEngine:
    """Return the engine for a URL; the driver may be left out. Raises NoDatabase."""
    try:
        found = make_url(url)
    except (SQLAlchemyError, ValueError) as error:
        raise NoDatabase(f"{error}: write sqlite:///FILE or postgresql://HOST/NAME") from error
    scheme = found.drivername if "+" in found.drivername else SCHEMES.get(found.drivername, "")
    if scheme not in SCHEMES.values():
        raise NoDatabase(
            f"{found.drivername} is no database of ours: write sqlite:///FILE or postgresql://HOST/NAME"
        )
    patience = PATIENCE if scheme == SCHEMES["postgresql"] else {}
    engine = create_async_engine(
        found.set(drivername=scheme), pool_pre_ping=True, json_serializer=json_text, connect_args=patience
    )
    if engine.dialect.name == "sqlite":
        event.listen(engine.sync_engine, "connect", set_up_sqlite)
    return engine


def json_text(value: object) -> str:
    """Return a value as columns of JSON hold it."""
    return msgspec.json.encode(value).decode()


def set_up_sqlite(connection: Any, _: object) -> None:
    """Set SQLite up: readers beside a writer, references that hold, and patience with another process."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


class Store:
    """See the module; `open_store` makes one."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._insert = INSERTS[engine.dialect.name]
        self._upgrading, self._upgraded = asyncio.Lock(), False
        self.errors = database_errors()

    # what is told

    async def tell(self, job: JobFacts, records: Sequence[Sample], now: datetime) -> None:
        """Keep what a master tells."""
        async with self._transaction() as connection:
            await self._know(connection, job, now)
            await self._add_samples(connection, job.uid, records)

    async def add_samples(self, uid: str, found: Iterable[Sample]) -> None:
        """Keep samples of a known job. Raises NoSuchJob."""
        async with self._transaction() as connection:
            if await connection.scalar(select(jobs.c.uid).where(jobs.c.uid == uid)) is None:
                raise NoSuchJob(f"no job of uid {uid} is known")
            await self._add_samples(connection, uid, found)

    async def see_job(self, seen: SeenJob, now: datetime) -> None:
        """Keep a job as the cluster has it now; an end stays."""
        row = {**_row(seen), "owner": seen.namespace, "status": dict(seen.status), "seen": now}
        new = self._insert(jobs).values(facts={}, **row)
        changed: dict[str, Any] = {
            name: new.excluded[name] for name in row if name not in ("uid", "ended", "completed")
        }
        changed["ended"] = func.coalesce(jobs.c.ended, new.excluded.ended)
        changed["completed"] = or_(jobs.c.completed, new.excluded.completed)
        async with self._transaction() as connection:
            await connection.execute(new.on_conflict_do_update(index_elements=["uid"], set_=changed))

    async def see_pod(self, seen: SeenPod) -> None:
        """Keep a pod as the cluster has it now; its end, reason and log stay. Raises NoSuchJob."""
        new = self._insert(pods).values(**_row(seen))
        changed: dict[str, Any] = {
            name: new.excluded[name] for name in ("machine", "phase", "cores", "bytes")
        }
        changed["ended"] = func.coalesce(pods.c.ended, new.excluded.ended)
        changed["reason"] = _first_text(pods.c.reason, new.excluded.reason)
        changed["log"] = _first_text(new.excluded.log, pods.c.log)
        try:
            async with self._transaction() as connection:
                await connection.execute(new.on_conflict_do_update(index_elements=["uid"], set_=changed))
        except IntegrityError as error:
            raise NoSuchJob(f"no job of uid {seen.job} is known") from error

    async def see_machine(self, seen: SeenMachine) -> None:
        """Keep a machine as the cluster has it now."""
        row = {**_row(seen), "devices": dict(seen.devices)}
        new = self._insert(machines).values(**row)
        changed: dict[str, Any] = {
            name: new.excluded[name] for name in row if name not in ("uid", "name", "began")
        }
        async with self._transaction() as connection:
            await connection.execute(new.on_conflict_do_update(index_elements=["uid"], set_=changed))

    async def end_all_but(self, table: Table, uids: Iterable[str], now: datetime) -> int:
        """End what a full list of the cluster does not have any more; return how many."""
        known = set(uids)
        async with self._transaction() as connection:
            open_ = await connection.scalars(select(table.c.uid).where(table.c.ended.is_(None)))
            gone = [uid for uid in open_ if uid not in known]
            for piece in _pieces(gone):
                await connection.execute(update(table).where(table.c.uid.in_(piece)).values(ended=now))
        return len(gone)

    async def end_others(self, table: Table, key: Key, uid: str, now: datetime) -> None:
        """End what had the name of an object before: all but the one with `uid`, "" if there is none now."""
        named = and_(table.c.name == key.name, table.c.uid != uid, table.c.ended.is_(None))
        if key.namespace:
            named = and_(named, table.c.namespace == key.namespace)
        async with self._transaction() as connection:
            await connection.execute(update(table).where(named).values(ended=now))

    # what is read

    async def history(
        self, uid: str, now: datetime, stage: Stage = Stage.RUNNING, *, past: bool = True
    ) -> History:
        """Return what is known of a job and, with `past`, of jobs like it; what its roles have is the
        caller's to add. Raises NoSuchJob."""
        async with self._transaction() as connection:
            job = (await connection.execute(select(jobs).where(jobs.c.uid == uid))).first()
            if job is None:
                raise NoSuchJob(f"no job of uid {uid} is known")
            return History(
                uid=uid,
                name=job.name,
                stage=stage,
                samples=await self._looked_at(connection, uid, now),
                past=await self._past(connection, job, now) if past else (),
                killed=(await self._kills(connection, [uid]))[uid],
                planned=await self._plans(connection, uid),
                decisions=job.decisions,
            )

    async def find(self, namespace: str, name: str) -> Row[Any]:
        """Return the newest job of a name; what a master only says comes last. Raises NoSuchJob."""
        asked = select(jobs).where(jobs.c.namespace == namespace, jobs.c.name == name)
        order = (jobs.c.owner == "", jobs.c.began.desc())
        async with self._transaction() as connection:
            found = (await connection.execute(asked.order_by(*order).limit(1))).first()
        if found is None:
            raise NoSuchJob(f"no job {namespace}/{name} is known")
        return found

    async def newest_jobs(self, most: int, running: bool = False) -> Sequence[Row[Any]]:
        """Return the newest jobs, or those that run."""
        asked = select(jobs).order_by(jobs.c.began.desc()).limit(most)
        async with self._transaction() as connection:
            return (await connection.execute(asked.where(jobs.c.ended.is_(None)) if running else asked)).all()

    async def samples_of(self, uid: str, most: int) -> tuple[Sample, ...]:
        """Return the newest samples of a job, oldest first."""
        async with self._transaction() as connection:
            return await self._samples(connection, uid, most)

    async def speeds(self) -> Mapping[str, Mapping[int, float]]:
        """Return the mean records a second of jobs that have not ended, by uid and number of workers."""
        running = select(jobs.c.uid).where(jobs.c.ended.is_(None))
        asked = select(samples.c.job, samples.c.workers, func.avg(samples.c.samples))
        asked = asked.where(samples.c.job.in_(running), samples.c.samples > 0, SOUND)
        found: dict[str, dict[int, float]] = {}
        async with self._transaction() as connection:
            for job, workers, speed in await connection.execute(
                asked.group_by(samples.c.job, samples.c.workers)
            ):
                found.setdefault(job, {})[workers] = speed
        return found

    async def decisions_of(self, uid: str, most: int = 100) -> tuple[Record, ...]:
        """Return the newest decisions of a job, oldest first."""
        async with self._transaction() as connection:
            return await self._decisions(connection, uid, most)

    async def pods_of(self, uid: str) -> Sequence[Row[Any]]:
        """Return the pods of a job, oldest first."""
        async with self._transaction() as connection:
            return (
                await connection.execute(select(pods).where(pods.c.job == uid).order_by(pods.c.began))
            ).all()

    async def largest_machine(self) -> Resources | None:
        """Return the most cores and the most memory of any machine that is ready; None if none is known."""
        asked = select(func.max(machines.c.cores), func.max(machines.c.bytes))
        asked = asked.where(machines.c.ended.is_(None), machines.c.ready)
        async with self._transaction() as connection:
            cores, size = (await connection.execute(asked)).one()
        return Resources.parse({"cpu": cores, "memory": size}) if cores and size else None

    async def counts(self) -> Mapping[str, int]:
        """Return how many rows each table has."""
        async with self._transaction() as connection:
            return {
                table.name: await connection.scalar(select(func.count()).select_from(table)) or 0
                for table in metadata.sorted_tables
            }

    async def answers(self) -> None:
        """Return if the database does."""
        async with self._transaction() as connection:
            await connection.execute(text("SELECT 1"))

    # decisions

    async def keep(self, uid: str, kept: Record, after: int) -> int | None:
        """Keep a decision that was made when a job had `after` of them; return its number.

        None if there has been another one since: this one was made from what is no longer so.
        """
        counted = update(jobs).where(jobs.c.uid == uid, jobs.c.decisions == after).values(decisions=after + 1)
        row = {**_row(kept), "job": uid, "number": after + 1}
        async with self._transaction() as connection:
            if (await connection.execute(counted)).rowcount != 1:
                return None
            await connection.execute(self._insert(decisions).values(**row))
        return after + 1

    async def number_after(self, uid: str, taken: int) -> None:
        """Have the next decision of a job get a number above `taken`, which is in the name of a plan that was
        decided with a database that is lost."""
        lower = and_(jobs.c.uid == uid, jobs.c.decisions < taken)
        async with self._transaction() as connection:
            await connection.execute(update(jobs).where(lower).values(decisions=taken))

    async def note_end(self, uid: str, number: int, outcome: str) -> None:
        """Note how the ScalePlan of a decision ended."""
        one = and_(decisions.c.job == uid, decisions.c.number == number)
        async with self._transaction() as connection:
            await connection.execute(update(decisions).where(one).values(outcome=outcome))

    async def sweep(self, retention: Retention, now: datetime) -> int:
        """Delete what is too old or too much, in pieces; return how many rows."""
        old = now - retention.age
        queries = (
            (samples, select(samples.c.id).where(samples.c.at < old)),
            (samples, _too_many(retention.samples)),
            (jobs, select(jobs.c.uid).where(jobs.c.ended < old)),
            (jobs, select(jobs.c.uid).where(jobs.c.ended.is_(None), jobs.c.seen < old)),
            (machines, select(machines.c.uid).where(machines.c.ended < old)),
        )
        return sum([await self._sweep(table, found) for table, found in queries])

    async def _sweep(self, table: Table, found: Select[Any]) -> int:
        key, swept = next(iter(table.primary_key.columns)), 0
        while True:
            async with self._transaction() as connection:
                some = [row[0] for row in await connection.execute(found.limit(PIECE))]
                if some:
                    await connection.execute(delete(table).where(key.in_(some)))
            swept += len(some)
            if len(some) < PIECE:
                return swept

    # the statements

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction. Raises DatabaseAway."""
        async with AsyncExitStack() as stack:
            try:
                await self._upgrade()
                connection = await stack.enter_async_context(self._engine.connect())
            except CANNOT_CONNECT as error:
                self.errors.inc()
                raise DatabaseAway(_driver_message(error)) from error
            try:
                async with connection.begin():
                    yield connection
            except CANNOT_CONNECT as error:
                if not isinstance(error, IntegrityError):  # another replica was first
                    self.errors.inc()
                if not _may_come_back(error):
                    raise
                raise DatabaseAway(_driver_message(error)) from error

    async def _upgrade(self) -> None:
        async with self._upgrading:
            if not self._upgraded:
                await upgrade(self._engine)
            self._upgraded = True

    async def _know(self, connection: AsyncConnection, job: JobFacts, now: datetime) -> None:
        facts = msgspec.to_builtins(job)
        new = self._insert(jobs).values(
            uid=job.uid,
            namespace=job.namespace,
            name=job.name,
            strategy=job.strategy,
            facts=facts,
            began=now,
            seen=now,
        )
        changed = {"facts": new.excluded.facts, "seen": new.excluded.seen}
        await connection.execute(new.on_conflict_do_update(index_elements=["uid"], set_=changed))

    async def _add_samples(self, connection: AsyncConnection, uid: str, found: Iterable[Sample]) -> None:
        rows = [
            {
                "job": uid,
                "at": each.at,
                "workers": each.workers,
                "steps": each.steps,
                "samples": each.samples,
                "goodput": each.goodput,
                "nodes": [
                    [use.name, use.role, use.cpu, use.memory, use.cores, use.bytes, use.peak]
                    for use in each.nodes
                ],
            }
            for each in found
        ]
        if rows:
            new = self._insert(samples).on_conflict_do_nothing(index_elements=["job", "at"])
            await connection.execute(new, rows)

    async def _looked_at(self, connection: AsyncConnection, uid: str, now: datetime) -> tuple[Sample, ...]:
        """The newest samples, and one that shows what nodes had needed LOOK_BACK ago."""
        recent = await self._samples(connection, uid, RECENT)
        before = min(now - LOOK_BACK, recent[0].at - EPSILON) if recent else now
        asked = select(samples).where(samples.c.job == uid, SOUND, samples.c.at <= before)
        older = (await connection.execute(asked.order_by(samples.c.at.desc()).limit(1))).all()
        return (*map(_sample, older), *recent)

    async def _samples(self, connection: AsyncConnection, uid: str, most: int) -> tuple[Sample, ...]:
        asked = select(samples).where(samples.c.job == uid, SOUND).order_by(samples.c.at.desc()).limit(most)
        return tuple(_sample(row) for row in reversed((await connection.execute(asked)).all()))

    async def _past(self, connection: AsyncConnection, job: Row[Any], now: datetime) -> tuple[Past, ...]:
        """The newest jobs of the same owner with the same image and script; else of the same name.

        The namespace is compared, too: older versions took what an annotation said for the owner.
        """
        if not job.owner:
            return ()
        same = and_(jobs.c.image == job.image, jobs.c.script == job.script, jobs.c.image != "")
        whose = and_(jobs.c.owner == job.owner, jobs.c.namespace == job.namespace)
        alike = and_(whose, or_(same, jobs.c.name == job.name), jobs.c.uid != job.uid)
        asked = select(jobs, case((same, 1), else_=0).label("same")).where(
            alike, jobs.c.ended >= now - ALIKE_FOR
        )
        rows = (await connection.execute(asked.order_by(jobs.c.ended.desc()).limit(4 * ALIKE))).all()
        chosen = ([row for row in rows if row.same] or rows)[:ALIKE]
        uids = [row.uid for row in chosen]
        taken, killed = await self._newest(connection, uids), await self._kills(connection, uids)
        return tuple(
            Past(row.uid, row.name, row.ended, row.completed, taken[row.uid], killed[row.uid])
            for row in reversed(chosen)
        )

    async def _newest(
        self, connection: AsyncConnection, uids: Sequence[str]
    ) -> Mapping[str, tuple[Sample, ...]]:
        """The newest few samples of each of some jobs, oldest first."""
        place = func.row_number().over(partition_by=samples.c.job, order_by=samples.c.at.desc())
        ranked = select(samples, place.label("place")).where(samples.c.job.in_(uids), SOUND).subquery()
        asked = select(ranked).where(ranked.c.place <= PAST_SAMPLES).order_by(ranked.c.at)
        found: dict[str, list[Sample]] = {uid: [] for uid in uids}
        for row in await connection.execute(asked):
            found[row.job].append(_sample(row))
        return {uid: tuple(taken) for uid, taken in found.items()}

    async def _kills(
        self, connection: AsyncConnection, uids: Sequence[str]
    ) -> Mapping[str, tuple[OomKill, ...]]:
        """The pods of each of some jobs that were killed for memory."""
        asked = select(pods).where(pods.c.job.in_(uids), pods.c.reason == OOM, pods.c.ended.is_not(None))
        found: dict[str, list[OomKill]] = {uid: [] for uid in uids}
        for row in await connection.execute(asked.order_by(pods.c.ended)):
            found[row.job].append(OomKill(row.name, row.role, row.ended, row.bytes))
        return {uid: tuple(killed) for uid, killed in found.items()}

    async def _plans(self, connection: AsyncConnection, uid: str) -> tuple[Decision, ...]:
        return tuple(planned_of(kept) for kept in await self._decisions(connection, uid, 16))

    async def _decisions(self, connection: AsyncConnection, uid: str, most: int) -> tuple[Record, ...]:
        asked = (
            select(decisions).where(decisions.c.job == uid).order_by(decisions.c.number.desc()).limit(most)
        )
        names = Record.__dataclass_fields__
        return tuple(
            Record(**{name: getattr(row, name) for name in names})
            for row in reversed((await connection.execute(asked)).all())
        )


def planned_of(kept: Record) -> Decision:
    """Return a decision as algorithms see it."""
    groups = kept.sizes.get("groups", {})
    counts = {role: group["count"] for role, group in groups.items() if group.get("count") is not None}
    resources = {role: Resources.parse(group.get("resource")) for role, group in groups.items()}
    return Decision(kept.at, kept.algorithm, counts, resources, kept.number, kept.plan, kept.outcome)


def _sample(row: Row[Any]) -> Sample:
    uses = tuple(Use(*each) for each in row.nodes if None not in each)
    return Sample(row.at, row.workers, row.steps, row.samples, uses, row.goodput)


def _may_come_back(error: BaseException | None) -> bool:
    """Whether an error is one of a database that stops, starts or has no connection left."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    state = getattr(getattr(error, "orig", None), "sqlstate", None) or getattr(error, "sqlstate", None) or ""
    return isinstance(error, OSError | TimeoutError | PoolTimeout | OperationalError) or state[:2] in PASSING


def _driver_message(error: Exception) -> str:
    """The words of the driver: SQLAlchemy adds the statement."""
    return str(getattr(error, "orig", None) or error) or type(error).__name__


def _pieces(uids: Sequence[str]) -> Iterator[Sequence[str]]:
    """The uids in pieces that one statement takes: PostgreSQL's drivers allow 32,767 arguments."""
    return (uids[at : at + PIECE] for at in range(0, len(uids), PIECE))


def _row(seen: Any) -> dict[str, Any]:
    return {name: getattr(seen, name) for name in seen.__dataclass_fields__}


def _message(new: postgresql.Insert, names: Iterable[str]) -> dict[str, Any]:
    return {name: new.excluded[name] for name in names}


def _first_text(one: Any, other: Any) -> Any:
    """The first of two texts that is not empty."""
    return case((one != "", one), else_=other)


def _too_many(most: int) -> Select[Any]:
    """The samples beyond the newest `most` of each job."""
    place = func.row_number().over(partition_by=samples.c.job, order_by=samples.c.at.desc())
    ranked = select(samples.c.id, place.label("place")).subquery()
    return select(ranked.c.id).where(ranked.c.place > most)
