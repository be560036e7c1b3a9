"""Power with jobs open on the GPU and none at work, of each window."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Windows that are there have no value: it was not measured then."""
    for table in ("solo_points", "pair_points"):
        op.add_column(table, sa.Column("active_idle_power_w", sa.Double(), nullable=True))


def downgrade() -> None:
    """Lose the value of all windows; speeds and power of the windows stay."""
    for table in ("solo_points", "pair_points"):
        op.drop_column(table, "active_idle_power_w")
