"""Launches know the home of their service, so that two homes on one database keep apart.

Rows that are there have none; the services of their host look after them, as before.

Written once and then left as it is: what a column is today stands in advisor_data/store/tables.py.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("advisor_launches", sa.Column("home", sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("advisor_launches") as batch:
        batch.drop_column("home")
