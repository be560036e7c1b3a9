"""Time in which any engine of compute was active: tells pauses from kernels that cover few SMs."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

_TABLES = ("solo_points", "pair_points")


def upgrade() -> None:
    """Windows that are there have no value: whether they paused is not known."""
    for table in _TABLES:
        op.add_column(table, sa.Column("gpu_busy_percent", sa.Double(), nullable=True))


def downgrade() -> None:
    """Lose the value of all windows; the activity of their SMs stays."""
    for table in _TABLES:
        op.drop_column(table, "gpu_busy_percent")
