"""Brings a database to today's tables: one process at a time, others wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

LOCK: Final = 0x656C6A62
"""PostgreSQL's advisory lock of those that migrate."""


async def upgrade(engine: AsyncEngine) -> None:
    """Make or change the tables."""
    async with engine.begin() as connection:
        await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    command.upgrade(configuration(connection), "head")


def configuration(connection: Connection) -> Config:
    """Return Alembic's configuration for a connection."""
    made = Config()
    made.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    made.set_main_option("file_template", "v%%(rev)s_%%(slug)s")
    attributes: dict[str, Any] = made.attributes
    attributes["connection"] = connection
    return made
