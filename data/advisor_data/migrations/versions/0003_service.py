"""Observations, and what a service keeps: tokens, launches, the audit log, the count of changes.

Written once and then left as it is: what a column is today stands in advisor_data/store/tables.py.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0003"
down_revision = "0002"

REAL: TypeEngine[float] = sa.Double()
NOT_REVOKED = sa.text("revoked_at IS NULL")
NOT_OVER = sa.text("state NOT IN ('finished', 'stopped', 'failed')")


def upgrade() -> None:
    op.create_table(
        "observations",
        sa.Column("point_id", sa.String(32), primary_key=True),
        sa.Column("launch_id", sa.Text(), nullable=False),
        sa.Column("job_a", sa.Text(), nullable=False),
        sa.Column("job_b", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("gpu_uuid", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("share_a_percent", REAL, nullable=False),
        sa.Column("share_b_percent", REAL, nullable=False),
        sa.Column("units_a", sa.Integer(), nullable=True),
        sa.Column("units_b", sa.Integer(), nullable=True),
        sa.Column("rate_unit_a", sa.Text(), nullable=False),
        sa.Column("rate_unit_b", sa.Text(), nullable=False),
        sa.Column("rate_a", REAL, nullable=True),
        sa.Column("rate_b", REAL, nullable=True),
        sa.Column("solo_rate_a", REAL, nullable=True),
        sa.Column("solo_rate_b", REAL, nullable=True),
        sa.Column("power_w", REAL, nullable=True),
        sa.Column("energy_j", REAL, nullable=True),
        sa.Column("overlap_s", REAL, nullable=False),
        sa.Column("work_per_joule", REAL, nullable=True),
        sa.Column("first_ended", sa.Text(), nullable=False),
        sa.Column("stranded_unit_s", REAL, nullable=False),
        sa.Column("model_version", sa.Text(), nullable=True),
        sa.Column("predicted_rate_a", REAL, nullable=True),
        sa.Column("predicted_rate_b", REAL, nullable=True),
        sa.Column("predicted_power_w", REAL, nullable=True),
        sa.Column("predicted_work_per_joule", REAL, nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("tool_version", sa.Text(), nullable=True),
        sa.Column("flags", sa.Text(), nullable=False),
    )
    op.create_index("ix_observations_job_a_job_b", "observations", ["job_a", "job_b"])
    op.create_index("ix_observations_launch_id", "observations", ["launch_id"])
    changes = op.create_table(
        "advisor_changes", sa.Column("count", sa.BigInteger(), nullable=False)
    )
    op.bulk_insert(changes, [{"count": 0}])
    op.create_table(
        "advisor_tokens",
        sa.Column("secret_sha256", sa.String(64), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Text(), nullable=True),
        sa.Column("revoked_at", sa.Text(), nullable=True),
    )
    _unique_among("ux_advisor_tokens_name", "advisor_tokens", ["name"], NOT_REVOKED)
    op.create_table(
        "advisor_launches",
        sa.Column("launch_id", sa.Text(), primary_key=True),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=False),
        sa.Column("gpu_uuid", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.Text(), nullable=False),
    )
    _unique_among("ux_advisor_launches_gpu", "advisor_launches", ["host", "gpu"], NOT_OVER)
    _unique_among(
        "ux_advisor_launches_gpu_uuid", "advisor_launches", ["host", "gpu_uuid"], NOT_OVER
    )
    op.create_index(
        "ux_advisor_launches_key", "advisor_launches", ["asked_by", "idempotency_key"], unique=True
    )
    op.create_table(
        "advisor_audit_log",
        sa.Column(
            "number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True
        ),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("client", sa.Text(), nullable=False),
    )


def _unique_among(name: str, table: str, columns: list[str], where: "sa.TextClause") -> None:
    op.create_index(
        name, table, columns, unique=True, sqlite_where=where, postgresql_where=where
    )


def downgrade() -> None:
    for table in (
        "advisor_audit_log",
        "advisor_launches",
        "advisor_tokens",
        "advisor_changes",
        "observations",
    ):
        op.drop_table(table)
