"""Columns that make an observation a row to learn from: versions, the card, the rest of a job.

Written once and then left as it is: what a column is today stands in advisor_data/store/tables.py.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0009"
down_revision = "0008"

COLUMNS: dict[str, dict[str, type[TypeEngine[Any]]]] = {
    "observations": {
        "units_total": sa.Integer,
        "power_limit_w": sa.Double,
        "driver": sa.Text,
        "settled_s": sa.Double,
    },
    "observation_parts": {"job_hash": sa.Text, "libraries": sa.Text, "rest_rate": sa.Double},
}


def upgrade() -> None:
    for table, columns in COLUMNS.items():
        for name, kind in columns.items():
            op.add_column(table, sa.Column(name, kind(), nullable=True))


def downgrade() -> None:
    for table, columns in COLUMNS.items():
        with op.batch_alter_table(table) as batch:
            for name in columns:
                batch.drop_column(name)
