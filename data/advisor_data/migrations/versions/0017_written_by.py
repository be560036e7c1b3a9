"""Who sent a record to a service."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_TABLES = ("solo_points", "pair_points", "observations")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("written_by", sa.Text(), nullable=True))


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "written_by")
