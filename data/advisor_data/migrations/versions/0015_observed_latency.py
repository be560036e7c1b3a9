"""Latencies of servers while they shared a GPU in a launch."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_COLUMNS = ("latency_p50_ms", "latency_p99_ms")


def upgrade() -> None:
    """Parts of earlier launches have no value: only rates of their servers were kept."""
    for name in _COLUMNS:
        op.add_column("observation_parts", sa.Column(name, sa.Double(), nullable=True))


def downgrade() -> None:
    """Lose the latencies of all launches; their rates stay."""
    for name in _COLUMNS:
        op.drop_column("observation_parts", name)
