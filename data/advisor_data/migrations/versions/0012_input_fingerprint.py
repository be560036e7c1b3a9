"""The column of what a job's matrices held.

Written once and then left as it is: what a column is today stands in advisor_data/store/tables.py.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

TABLE, COLUMN = "solo_points", "input_fingerprint"


def upgrade() -> None:
    op.add_column(TABLE, sa.Column(COLUMN, sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table(TABLE) as batch:
        batch.drop_column(COLUMN)
