"""Brain's database for virtual time: the real tables in the memory of SQLite, without a thread and a file.

A transaction takes no virtual time, so none is ever cut off in its midst.
"""

from __future__ import annotations

import sqlite3
from functools import cache
from typing import Any, Final, Self

from sqlalchemy import create_engine, delete, event
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import StaticPool
from sqlalchemy.util import await_only

from elasticjob.brain.store import Store, json_text, set_up_sqlite
from elasticjob.brain.tables import metadata

MEMORY: Final = "sqlite://"


async def records() -> Store:
    """Return this process's store, with nothing in it."""
    engine, store = _database()
    await store.answers()
    async with engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            await connection.execute(delete(table))
    return store


@cache
def _database() -> tuple[AsyncEngine, Store]:
    """The one database: to make its tables takes longer than a short history."""
    with_factory = {"factory": _Connection}
    engine = create_engine(MEMORY, poolclass=StaticPool, json_serializer=json_text, connect_args=with_factory)
    engine.dialect.is_async = True
    event.listen(engine, "connect", set_up_sqlite)
    found = AsyncEngine(engine)
    return found, Store(found)


class _Cursor(sqlite3.Cursor):
    """Awaits nothing with each statement, since SQLAlchemy takes a driver that never awaits for a mistake."""

    def execute(self, statement: str, values: Any = (), /) -> Self:
        await_only(_nothing())
        return super().execute(statement, values)

    def executemany(self, statement: str, rows: Any, /) -> Self:
        await_only(_nothing())
        return super().executemany(statement, rows)

    async def _async_soft_close(self) -> None:
        """The closing of a cursor, which SQLAlchemy asks of asynchronous drivers."""


class _Connection(sqlite3.Connection):
    def cursor(self, *_: Any) -> sqlite3.Cursor:  # type: ignore[override]  # of the one class that is used
        return super().cursor(_Cursor)


async def _nothing() -> None:
    pass
