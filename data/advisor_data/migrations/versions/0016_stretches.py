"""Stretches of a launch: who was left together after others had ended."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column(
        "observations", sa.Column("stretch", sa.Integer(), nullable=False, server_default="0")
    )


def downgrade() -> None:
    op.drop_column("observations", "stretch")
