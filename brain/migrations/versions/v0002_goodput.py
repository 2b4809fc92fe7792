"""Samples have the job's goodput."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("samples", sa.Column("goodput", sa.Float()))
