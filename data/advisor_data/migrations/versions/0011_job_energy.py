"""The columns of what part of the energy is whose.

Written once and then left as it is: what a column is today stands in advisor_data/store/tables.py.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

TABLE = "observation_parts"
COLUMNS = ("energy_j", "energy_low_j", "energy_high_j")


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column(TABLE, sa.Column(name, sa.Double(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table(TABLE) as batch:
        for name in COLUMNS:
            batch.drop_column(name)
