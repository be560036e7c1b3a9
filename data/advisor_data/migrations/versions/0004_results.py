"""Columns of results and latencies.

Written once and then left as it is: what a column is today stands in advisor_data/store/tables.py.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0004"
down_revision = "0003"

REAL: TypeEngine[float] = sa.Double()
COLUMNS: dict[str, dict[str, TypeEngine[Any]]] = {
    "solo_points": {
        "results": sa.Text(),
        "reported": sa.Text(),
        "offered_rate": REAL,
        "latency_p50_ms": REAL,
        "latency_p99_ms": REAL,
    },
    "pair_points": {
        "results_a": sa.Text(),
        "results_b": sa.Text(),
        "offered_rate_a": REAL,
        "offered_rate_b": REAL,
        "latency_p50_a_ms": REAL,
        "latency_p50_b_ms": REAL,
        "latency_p99_a_ms": REAL,
        "latency_p99_b_ms": REAL,
    },
    "observations": {"results_a": sa.Text(), "results_b": sa.Text()},
}


def upgrade() -> None:
    for table, columns in COLUMNS.items():
        for name, kind in columns.items():
            op.add_column(table, sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    for table, columns in COLUMNS.items():
        with op.batch_alter_table(table) as batch:
            for name in columns:
                batch.drop_column(name)
