"""The tables of Brain's database. Every job is known by its uid; migrations/ makes these tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)


class Moment(TypeDecorator[datetime]):
    """A time with its zone; SQLite has none, and keeps it as UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.replace(tzinfo=UTC) if value and value.tzinfo is None else value


class Words(TypeDecorator[str]):
    """Text that others wrote, as every database takes it: without NUL and lone surrogates, cut to its length.

    Annotations, termination messages and requests of masters may hold any of these.
    """

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        length: int | None = getattr(self.impl, "length", None)
        return value and value.replace("\0", "").encode(errors="replace").decode()[:length]


class Lines(Words):
    """The same without an end to its length."""

    impl = Text
    cache_ok = True


def _job() -> Column[Any]:
    return Column("job", Words(64), ForeignKey("jobs.uid", ondelete="CASCADE"), nullable=False)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""SQLite counts up only columns of this very type."""

jobs = Table(
    "jobs",
    metadata,
    Column("uid", Words(64), primary_key=True),
    Column("namespace", Words(63), nullable=False),
    Column("name", Words(253), nullable=False),
    Column("owner", Words(253), nullable=False, default=""),
    Column("image", Words(512), nullable=False, default=""),
    Column("script", Words(512), nullable=False, default=""),
    Column("strategy", Words(63), nullable=False, default=""),
    Column("mode", Words(32), nullable=False, default=""),
    Column("phase", Words(32), nullable=False, default=""),
    Column("facts", JSON, nullable=False, default=dict),
    Column("status", JSON, nullable=False, default=dict),
    Column("began", Moment, nullable=False),
    Column("seen", Moment, nullable=False),
    Column("ended", Moment),
    Column("completed", Boolean, nullable=False, default=False),
    Column("decisions", Integer, nullable=False, default=0),
    Index("ix_jobs_like", "owner", "image", "script", "ended"),
    Index("ix_jobs_namespace_name", "namespace", "name"),
    Index(None, "ended"),
)
"""Jobs: what their users say, and how they ended. `decisions` counts those that were stored."""

samples = Table(
    "samples",
    metadata,
    Column("id", NUMBER, primary_key=True),
    _job(),
    Column("at", Moment, nullable=False),
    Column("workers", Integer, nullable=False),
    Column("steps", Float, nullable=False),
    Column("samples", Float, nullable=False),
    Column("nodes", JSON, nullable=False),
    Column("goodput", Float),
    Index("uq_samples_job_at", "job", "at", unique=True),
    Index(None, "at"),
)
"""A job at one time. `nodes` is a list of [name, role, cpu, memory, cores, bytes]."""

pods = Table(
    "pods",
    metadata,
    Column("uid", Words(64), primary_key=True),
    _job(),
    Column("namespace", Words(63), nullable=False, default=""),
    Column("name", Words(253), nullable=False),
    Column("role", Words(63), nullable=False, default=""),
    Column("machine", Words(253), nullable=False, default=""),
    Column("phase", Words(32), nullable=False, default=""),
    Column("reason", Words(63), nullable=False, default=""),
    Column("cores", Float, nullable=False, default=0.0),
    Column("bytes", BigInteger, nullable=False, default=0),
    Column("began", Moment, nullable=False),
    Column("ended", Moment),
    Column("log", Lines, nullable=False, default=""),
    Index(None, "job"),
    Index(None, "namespace", "name"),
)
"""Pods of jobs from creation to end, and the last lines of those that failed or were deleted."""

machines = Table(
    "machines",
    metadata,
    Column("uid", Words(64), primary_key=True),
    Column("name", Words(253), nullable=False),
    Column("cores", Float, nullable=False, default=0.0),
    Column("bytes", BigInteger, nullable=False, default=0),
    Column("devices", JSON, nullable=False, default=dict),
    Column("ready", Boolean, nullable=False, default=True),
    Column("began", Moment, nullable=False),
    Column("ended", Moment),
    Index(None, "name"),
)
"""Nodes of the cluster from creation to end."""

decisions = Table(
    "decisions",
    metadata,
    _job(),
    Column("number", Integer, nullable=False),
    Column("at", Moment, nullable=False),
    Column("event", Words(32), nullable=False),
    Column("algorithm", Words(63), nullable=False),
    Column("reason", Lines, nullable=False),
    Column("inputs", JSON, nullable=False),
    Column("sizes", JSON, nullable=False),
    Column("plan", Words(253), nullable=False, default=""),
    Column("outcome", Words(32), nullable=False, default=""),
    Index("uq_decisions_job_number", "job", "number", unique=True),
    Index(None, "at"),
)
"""What was decided for whom, from which numbers; `plan` is the ScalePlan, none for an answer to a master."""
