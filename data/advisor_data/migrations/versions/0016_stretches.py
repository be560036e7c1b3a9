"""Stretches of a launch: who was left together after others had ended."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """What was observed until now is of stretch 0, from the start of all jobs."""
    op.add_column(
        "observations", sa.Column("stretch", sa.Integer(), nullable=False, server_default="0")
    )


def downgrade() -> None:
    """Lose what is known of later stretches: an older version would count their time twice."""
    later = "SELECT point_id FROM observations WHERE stretch > 0"
    op.execute(f"DELETE FROM observation_parts WHERE point_id IN ({later})")
    op.execute("DELETE FROM observations WHERE stretch > 0")
    op.drop_column("observations", "stretch")
