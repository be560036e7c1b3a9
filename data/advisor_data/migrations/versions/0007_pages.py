"""When records started as a number, indexes along it, and what lists say of profiles.

Written once and then left as it is: what a column is today stands in advisor_data/store/tables.py.
`advisor_profiles` is filled by the code that keeps it, after all migrations.
"""

from datetime import datetime, timedelta, timezone

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

INDEXES = {
    "solo_points": [["job", "started_at_us"]],
    "pair_points": [["job_a", "job_b", "started_at_us"]],
    "observations": [
        ["started_at_us"],
        ["gpu_model", "started_at_us"],
        ["job_a", "started_at_us"],
        ["job_b", "started_at_us"],
    ],
}
BY_CODE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
AT_ONCE = 10_000


def upgrade() -> None:
    for table, indexes in INDEXES.items():
        column = sa.Column("started_at_us", sa.BigInteger(), nullable=False, server_default="0")
        op.add_column(table, column)
        _fill(table)
        for columns in indexes:
            op.create_index(f"ix_{table}_{'_'.join(columns)}", table, columns)
    op.create_table(
        "advisor_profiles",
        sa.Column("job", BY_CODE, primary_key=True),
        sa.Column("gpu_model", BY_CODE, primary_key=True),
        sa.Column("shares", sa.Text(), nullable=False),
        sa.Column("points", sa.Integer(), nullable=False),
        sa.Column("measured_at", sa.Text(), nullable=False),
        sa.Column("flags", sa.Text(), nullable=False),
        sa.Column("rate_units", sa.Text(), nullable=False),
    )


def _fill(name: str) -> None:
    table = sa.table(
        name,
        sa.column("point_id", sa.Text()),
        sa.column("started_at", sa.Text()),
        sa.column("started_at_us", sa.BigInteger()),
    )
    connection = op.get_bind()
    change = (
        table.update()
        .where(table.c.point_id == sa.bindparam("of"))
        .values(started_at_us=sa.bindparam("us"))
    )
    last = ""
    while True:
        rows = connection.execute(
            sa.select(table.c.point_id, table.c.started_at)
            .where(table.c.point_id > last)
            .order_by(table.c.point_id)
            .limit(AT_ONCE)
        ).all()
        if not rows:
            return
        connection.execute(change, [{"of": of, "us": _us(text)} for of, text in rows])
        last = rows[-1][0]


def _us(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


def downgrade() -> None:
    op.drop_table("advisor_profiles")
    for table, indexes in INDEXES.items():
        for columns in indexes:
            op.drop_index(f"ix_{table}_{'_'.join(columns)}", table)
        with op.batch_alter_table(table) as batch:
            batch.drop_column("started_at_us")
