"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("uid", sa.String(length=64), nullable=False),
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=253), nullable=False),
        sa.Column("owner", sa.String(length=253), nullable=False),
        sa.Column("image", sa.String(length=512), nullable=False),
        sa.Column("script", sa.String(length=512), nullable=False),
        sa.Column("strategy", sa.String(length=63), nullable=False),
        sa.Column("mode", sa.String(length=32), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("status", sa.JSON(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended", sa.DateTime(timezone=True), nullable=True),
        sa.Column("completed", sa.Boolean(), nullable=False),
        sa.Column("decisions", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_jobs")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_jobs_ended"), ["ended"], unique=False)
        batch_op.create_index("ix_jobs_like", ["owner", "image", "script", "ended"], unique=False)
        batch_op.create_index("ix_jobs_namespace_name", ["namespace", "name"], unique=False)

    op.create_table(
        "machines",
        sa.Column("uid", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=253), nullable=False),
        sa.Column("cores", sa.Float(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("devices", sa.JSON(), nullable=False),
        sa.Column("ready", sa.Boolean(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_machines")),
    )
    with op.batch_alter_table("machines", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_machines_name"), ["name"], unique=False)

    op.create_table(
        "decisions",
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("event", sa.String(length=32), nullable=False),
        sa.Column("algorithm", sa.String(length=63), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("inputs", sa.JSON(), nullable=False),
        sa.Column("sizes", sa.JSON(), nullable=False),
        sa.Column("plan", sa.String(length=253), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.uid"], name=op.f("fk_decisions_job"), ondelete="CASCADE"),
    )
    with op.batch_alter_table("decisions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_decisions_at"), ["at"], unique=False)
        batch_op.create_index("uq_decisions_job_number", ["job", "number"], unique=True)

    op.create_table(
        "pods",
        sa.Column("uid", sa.String(length=64), nullable=False),
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=253), nullable=False),
        sa.Column("role", sa.String(length=63), nullable=False),
        sa.Column("machine", sa.String(length=253), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.String(length=63), nullable=False),
        sa.Column("cores", sa.Float(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("began", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended", sa.DateTime(timezone=True), nullable=True),
        sa.Column("log", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.uid"], name=op.f("fk_pods_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_pods")),
    )
    with op.batch_alter_table("pods", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_pods_job"), ["job"], unique=False)
        batch_op.create_index(batch_op.f("ix_pods_namespace_name"), ["namespace", "name"], unique=False)

    op.create_table(
        "samples",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("workers", sa.Integer(), nullable=False),
        sa.Column("steps", sa.Float(), nullable=False),
        sa.Column("samples", sa.Float(), nullable=False),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.uid"], name=op.f("fk_samples_job"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_samples")),
    )
    with op.batch_alter_table("samples", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_samples_at"), ["at"], unique=False)
        batch_op.create_index("uq_samples_job_at", ["job", "at"], unique=True)


def downgrade() -> None:
    for table in ("samples", "pods", "decisions", "machines", "jobs"):
        op.drop_table(table)
