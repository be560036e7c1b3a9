"""Who sent a record to a service."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_TABLES = ("solo_points", "pair_points", "observations")


def upgrade() -> None:
    """Records that are there name nobody."""
    for table in _TABLES:
        op.add_column(table, sa.Column("written_by", sa.Text(), nullable=True))


def downgrade() -> None:
    """Lose who sent them; all records stay, as their ids are kept."""
    for table in _TABLES:
        op.drop_column(table, "written_by")
