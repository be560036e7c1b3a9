"""The column of what the memory draws.

Written once and then left as it is: what a column is today stands in advisor_data/store/tables.py.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

TABLES = ("solo_points", "pair_points")


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("memory_power_w", sa.Double(), nullable=True))


def downgrade() -> None:
    for table in TABLES:
        with op.batch_alter_table(table) as batch:
            batch.drop_column("memory_power_w")
