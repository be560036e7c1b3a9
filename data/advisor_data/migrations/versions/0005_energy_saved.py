"""Columns of the energy that launched pairs saved for the same work.

Written once and then left as it is: what a column is today stands in advisor_data/store/tables.py.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

COLUMNS = (
    "solo_power_a_w",
    "solo_power_b_w",
    "energy_saved",
    "rest_s",
    "rest_energy_j",
    "rest_energy_saved",
    "energy_saved_to_end",
    "predicted_energy_saved",
    "predicted_rest_energy_saved",
)


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("observations", sa.Column(name, sa.Double(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("observations") as batch:
        for name in COLUMNS:
            batch.drop_column(name)
