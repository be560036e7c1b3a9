"""The table of solo points.

Written once and then left as it is: what a column is today stands in advisor_data/store/tables.py.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0001"
down_revision = None

REAL: TypeEngine[float] = sa.Double()


def upgrade() -> None:
    op.create_table(
        "solo_points",
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
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("gpu_model", sa.Text(), nullable=False),
        sa.Column("gpu_uuid", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("share_percent", REAL, nullable=False),
        sa.Column("units_granted", sa.Integer(), nullable=True),
        sa.Column("units_total", sa.Integer(), nullable=True),
        sa.Column("rate", REAL, nullable=False),
        sa.Column("rate_unit", sa.Text(), nullable=False),
        sa.Column("rate_stderr", REAL, nullable=True),
        sa.Column("power_w", REAL, nullable=True),
        sa.Column("power_stderr_w", REAL, nullable=True),
        sa.Column("counter_power_w", REAL, nullable=True),
        sa.Column("idle_power_w", REAL, nullable=True),
        sa.Column("power_limit_w", REAL, nullable=True),
        sa.Column("sm_clock_mhz", REAL, nullable=True),
        sa.Column("memory_clock_mhz", REAL, nullable=True),
        sa.Column("temperature_c", REAL, nullable=True),
        sa.Column("throttled", sa.Boolean(), nullable=True),
        sa.Column("memory_used_mib", REAL, nullable=True),
        sa.Column("job_cpu_percent", REAL, nullable=True),
        sa.Column("cpu_steal_percent", REAL, nullable=True),
        sa.Column("settle_s", REAL, nullable=True),
        sa.Column("window_s", REAL, nullable=False),
        sa.Column("started_at", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("job_hash", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("driver", sa.Text(), nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("tool_version", sa.Text(), nullable=True),
        sa.Column("flags", sa.Text(), nullable=False),
    )
    op.create_index("ix_solo_points_job_gpu_model", "solo_points", ["job", "gpu_model"])
    op.create_index("ix_solo_points_run", "solo_points", ["run"])


def downgrade() -> None:
    op.drop_table("solo_points")
