"""All tables.

Written once and then left as it is: what a column is today stands in advisor_data/store/tables.py.
Versions before this one were never released; their numbers end at 0012.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0013"
down_revision = None

TEXT: TypeEngine[str] = sa.Text()
REAL: TypeEngine[float] = sa.Double()
WHOLE: TypeEngine[int] = sa.Integer()
LARGE: TypeEngine[int] = sa.BigInteger()
TRUTH: TypeEngine[bool] = sa.Boolean()
BY_CODE: TypeEngine[str] = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

NOT_OVER = sa.text("state NOT IN ('finished', 'stopped', 'failed')")
NOT_REVOKED = sa.text("revoked_at IS NULL")


def upgrade() -> None:
    """In the order of what is kept in them: measurements, launches, then what a service needs."""
    _points()
    _observations()
    _profiles()
    _service()


def _points() -> None:
    op.create_table(
        "solo_points",
        *_window(),
        *_needed(TEXT, "job rate_unit"),
        *_needed(REAL, "share_percent rate"),
        *_optional(WHOLE, "units_granted"),
        *_optional(REAL, "rate_stderr memory_used_mib job_cpu_percent"),
        *_optional(REAL, "offered_rate latency_p50_ms latency_p99_ms"),
        *_optional(TEXT, "job_hash results reported input_fingerprint"),
    )
    _indexes("solo_points", "job gpu_model", "job started_at_us", "run")
    op.create_table("pair_points", *_window(), *_needed(TEXT, "jobs"), *_optional(TEXT, "error"))
    _indexes("pair_points", "jobs started_at_us", "run")
    op.create_table(
        "pair_point_parts",
        *_part(),
        *_optional(REAL, "rate_stderr memory_used_mib cpu_percent"),
        *_optional(REAL, "offered_rate latency_p50_ms latency_p99_ms"),
    )


def _observations() -> None:
    op.create_table(
        "observations",
        *_identity(),
        *_needed(TEXT, "jobs launch_id gpu_model gpu_uuid mode state started_at flags"),
        *_needed(REAL, "overlap_s stranded_unit_s"),
        *_optional(WHOLE, "units_total"),
        *_optional(REAL, "power_limit_w power_w energy_j settled_s work_per_joule energy_saved"),
        *_optional(REAL, "rest_s rest_energy_j rest_energy_saved energy_saved_to_end"),
        *_optional(REAL, "predicted_power_w predicted_work_per_joule predicted_energy_saved"),
        *_optional(REAL, "predicted_rest_energy_saved"),
        *_optional(TEXT, "driver model_version host tool_version"),
    )
    _indexes("observations", "jobs", "launch_id", "started_at_us", "gpu_model started_at_us")
    op.create_table(
        "observation_parts",
        *_part(),
        *_optional(REAL, "solo_rate solo_power_w predicted_rate rest_rate"),
        *_optional(REAL, "energy_j energy_low_j energy_high_j"),
        *_optional(TEXT, "libraries"),
        *_needed(TRUTH, "ended_first"),
    )
    _indexes("observation_parts", "job started_at_us")


def _profiles() -> None:
    op.create_table(
        "advisor_profiles",
        sa.Column("job", BY_CODE, primary_key=True),
        sa.Column("gpu_model", BY_CODE, primary_key=True),
        *_needed(TEXT, "shares measured_at flags rate_units"),
        *_needed(WHOLE, "points"),
    )
    changes = op.create_table("advisor_changes", *_needed(LARGE, "count"))
    op.bulk_insert(changes, [{"count": 0}])


def _service() -> None:
    op.create_table(
        "advisor_tokens",
        sa.Column("secret_sha256", sa.String(64), primary_key=True),
        *_needed(TEXT, "name scopes created_at"),
        *_optional(TEXT, "expires_at revoked_at"),
    )
    _unique("advisor_tokens", "name", NOT_REVOKED, "name")
    op.create_table(
        "advisor_launches",
        sa.Column("launch_id", TEXT, primary_key=True),
        *_needed(TEXT, "host gpu state spec status asked_by request_hash created_at updated_at"),
        *_optional(TEXT, "gpu_uuid idempotency_key home"),
    )
    _unique("advisor_launches", "gpu", NOT_OVER, "host", "gpu")
    _unique("advisor_launches", "gpu_uuid", NOT_OVER, "host", "gpu_uuid")
    _unique("advisor_launches", "key", None, "asked_by", "idempotency_key")
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "advisor_audit_log",
        sa.Column("number", number, primary_key=True),
        *_needed(TEXT, "at who action subject outcome request_id client"),
    )


def _identity() -> list[sa.Column[Any]]:
    return [sa.Column("point_id", sa.String(32), primary_key=True), *_needed(LARGE, "started_at_us")]


def _window() -> list[sa.Column[Any]]:
    """What solo points and pair points have in common."""
    return [
        *_identity(),
        *_needed(TEXT, "gpu_model gpu_uuid started_at run flags mode"),
        *_needed(REAL, "window_s"),
        *_needed(WHOLE, "repeat"),
        *_optional(REAL, "sm_active_percent sm_occupancy_percent dram_active_percent"),
        *_optional(REAL, "fp32_active_percent fp64_active_percent fp16_active_percent"),
        *_optional(REAL, "tensor_active_percent integer_active_percent memory_busy_percent"),
        *_optional(REAL, "pcie_tx_mib_per_s pcie_rx_mib_per_s"),
        *_optional(REAL, "nvlink_tx_mib_per_s nvlink_rx_mib_per_s"),
        *_optional(REAL, "power_w power_stderr_w counter_power_w memory_power_w idle_power_w"),
        *_optional(REAL, "power_limit_w sm_clock_mhz memory_clock_mhz temperature_c"),
        *_optional(REAL, "cpu_steal_percent settle_s"),
        *_optional(TRUTH, "throttled"),
        *_optional(WHOLE, "units_total"),
        *_optional(TEXT, "source driver host tool_version"),
    ]


def _part() -> list[sa.Column[Any]]:
    """What the parts of pair points and of observations have in common."""
    return [
        *_identity(),
        sa.Column("position", WHOLE, primary_key=True, autoincrement=False),
        *_needed(TEXT, "job rate_unit"),
        *_needed(REAL, "share_percent"),
        *_optional(WHOLE, "units"),
        *_optional(REAL, "rate"),
        *_optional(TEXT, "job_hash results"),
    ]


def _needed(kind: TypeEngine[Any], names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names.split()]


def _optional(kind: TypeEngine[Any], names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=True) for name in names.split()]


def _indexes(table: str, *columns: str) -> None:
    for names in map(str.split, columns):
        op.create_index(f"ix_{table}_{'_'.join(names)}", table, names)


def _unique(table: str, name: str, where: sa.TextClause | None, *columns: str) -> None:
    op.create_index(
        f"ux_{table}_{name}", table, columns, unique=True,
        sqlite_where=where, postgresql_where=where,
    )


def downgrade() -> None:
    """Drop all tables, with everything that was measured: there is no version before."""
    for table in (
        "solo_points", "pair_points", "pair_point_parts", "observations", "observation_parts",
        "advisor_profiles", "advisor_changes", "advisor_tokens", "advisor_launches",
        "advisor_audit_log",
    ):
        op.drop_table(table)
