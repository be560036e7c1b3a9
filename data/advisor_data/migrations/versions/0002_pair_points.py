"""The table of pair points.

Written once and then left as it is: what a column is today stands in advisor_data/store/tables.py.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0002"
down_revision = "0001"

REAL: TypeEngine[float] = sa.Double()


def upgrade() -> None:
    op.create_table(
        "pair_points",
        sa.Column("point_id", sa.String(32), primary_key=True),
        sa.Column("sm_active_percent", REAL, nullable=True),
        sa.Column("sm_occupancy_percent", REAL, nullable=True),
        sa.Column("fp32_active_percent", REAL, nullable=True),
        sa.Column("fp64_active_percent", REAL, nullable=True),
        sa.Column("fp16_active_percent", REAL, nullable=True),
        sa.Column("tensor_active_percent", REAL, nullable=True),
        sa.Column("integer_active_percent", REAL, nullable=True),
        sa.Column("dram_active_percent", REAL, nullable=True),
        sa.Column("memory_busy_percent", REAL, nullable=True),
        sa.Column("pcie_tx_mib_per_s", REAL, nullable=True),
        sa.Column("pcie_rx_mib_per_s", REAL, nullable=True),
        sa.Column("nvlink_tx_mib_per_s", REAL, nullable=True),
        sa.Column("nvlink_rx_mib_per_s", REAL, nullable=True),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("gpu_uuid", sa.Text(), nullable=False),
        sa.Column("units_total", sa.Integer(), nullable=True),
        sa.Column("power_w", REAL, nullable=True),
        sa.Column("power_stderr_w", REAL, nullable=True),
        sa.Column("counter_power_w", REAL, nullable=True),
        sa.Column("idle_power_w", REAL, nullable=True),
        sa.Column("power_limit_w", REAL, nullable=True),
        sa.Column("sm_clock_mhz", REAL, nullable=True),
        sa.Column("memory_clock_mhz", REAL, nullable=True),
        sa.Column("temperature_c", REAL, nullable=True),
        sa.Column("throttled", sa.Boolean(), nullable=True),
        sa.Column("cpu_steal_percent", REAL, nullable=True),
        sa.Column("settle_s", REAL, nullable=True),
        sa.Column("window_s", REAL, nullable=False),
        sa.Column("started_at", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("driver", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("tool_version", sa.Text(), nullable=True),
        sa.Column("flags", sa.Text(), nullable=False),
        sa.Column("job_a", sa.Text(), nullable=False),
        sa.Column("job_b", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("share_a_percent", REAL, nullable=False),
        sa.Column("share_b_percent", REAL, nullable=False),
        sa.Column("units_a", sa.Integer(), nullable=True),
        sa.Column("units_b", sa.Integer(), nullable=True),
        sa.Column("rate_a", REAL, nullable=True),
        sa.Column("rate_b", REAL, nullable=True),
        sa.Column("rate_unit_a", sa.Text(), nullable=False),
        sa.Column("rate_unit_b", sa.Text(), nullable=False),
        sa.Column("rate_a_stderr", REAL, nullable=True),
        sa.Column("rate_b_stderr", REAL, nullable=True),
        sa.Column("memory_used_a_mib", REAL, nullable=True),
        sa.Column("memory_used_b_mib", REAL, nullable=True),
        sa.Column("job_a_cpu_percent", REAL, nullable=True),
        sa.Column("job_b_cpu_percent", REAL, nullable=True),
        sa.Column("job_a_hash", sa.Text(), nullable=True),
        sa.Column("job_b_hash", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
    )
    op.create_index("ix_pair_points_job_a_job_b", "pair_points", ["job_a", "job_b"])
    op.create_index("ix_pair_points_run", "pair_points", ["run"])


def downgrade() -> None:
    op.drop_table("pair_points")
