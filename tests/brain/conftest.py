"""Stores in both databases. PostgreSQL starts once, when it is needed."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from elasticjob.brain.store import Store, open_store
from lab.programs import postgres

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Postgres]:
    """A PostgreSQL server."""
    with tempfile.TemporaryDirectory(prefix="brain-") as made:
        folder = Path(made)
        folder.chmod(0o711)
        (folder / "server").mkdir()
        with postgres.Postgres(folder / "server") as server:
            yield server


@pytest_asyncio.fixture(params=["sqlite", "postgresql"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'brain.db'}"
    server = request.getfixturevalue("postgres_server").url
    name = f"brain{next(NUMBERS)}"
    connection = await asyncpg.connect(f"{server}/postgres")
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return f"{server}/{name}"


@pytest_asyncio.fixture
async def store(database: str) -> AsyncIterator[Store]:
    """A store with today's tables and nothing in them."""
    async with open_store(database) as found:
        yield found
