"""All tables.

Written once and then left as it is: what a column is today stands in advisor_data/store.py.
Versions before this one were never released; their numbers end at 0018.
"""

from alembic import op

revision = "0019"
down_revision = None

RECORDS = """
CREATE TABLE {name} (
    point_id TEXT NOT NULL PRIMARY KEY,
    jobs TEXT NOT NULL,
    gpu_model TEXT NOT NULL,
    run TEXT NOT NULL,
    started_at_us BIGINT NOT NULL,
    document JSON NOT NULL
);
CREATE INDEX ix_{name}_jobs ON {name} (jobs, started_at_us);
CREATE INDEX ix_{name}_gpu_model ON {name} (gpu_model, started_at_us);
CREATE INDEX ix_{name}_run ON {name} (run);
CREATE INDEX ix_{name}_started_at_us ON {name} (started_at_us, jobs)
"""

OTHERS = """
CREATE TABLE advisor_profiles (
    job TEXT{by_code} NOT NULL,
    gpu_model TEXT{by_code} NOT NULL,
    document JSON NOT NULL,
    PRIMARY KEY (job, gpu_model)
);
CREATE TABLE advisor_changes (count BIGINT NOT NULL);
INSERT INTO advisor_changes VALUES (0);
CREATE TABLE advisor_tokens (
    secret_sha256 TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    revoked_at TEXT
);
CREATE UNIQUE INDEX ux_advisor_tokens_name ON advisor_tokens (name) WHERE revoked_at IS NULL;
CREATE TABLE advisor_launches (
    launch_id TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    gpu TEXT NOT NULL,
    gpu_uuid TEXT,
    state TEXT NOT NULL,
    spec TEXT NOT NULL,
    status TEXT NOT NULL,
    asked_by TEXT NOT NULL,
    idempotency_key TEXT,
    request_hash TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    home TEXT
);
CREATE UNIQUE INDEX ux_advisor_launches_gpu ON advisor_launches (host, gpu)
    WHERE state NOT IN ('finished', 'stopped', 'failed');
CREATE UNIQUE INDEX ux_advisor_launches_gpu_uuid ON advisor_launches (host, gpu_uuid)
    WHERE state NOT IN ('finished', 'stopped', 'failed');
CREATE UNIQUE INDEX ux_advisor_launches_key ON advisor_launches (asked_by, idempotency_key);
CREATE TABLE advisor_audit_log (
    number {number} PRIMARY KEY,
    at TEXT NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    outcome TEXT NOT NULL,
    request_id TEXT NOT NULL,
    client TEXT NOT NULL
)
"""

BY_CODE = {"sqlite": "", "postgresql": ' COLLATE "C"'}
"""Text in the order of its code points, as Python sorts it; a server may have another order."""

NUMBER = {"sqlite": "INTEGER NOT NULL", "postgresql": "BIGSERIAL NOT NULL"}
"""A number that the database gives."""


def upgrade() -> None:
    """In the order of what is kept in them: measurements, launches, then what a service needs."""
    dialect = op.get_bind().dialect.name
    records = [RECORDS.format(name=n) for n in ("solo_points", "pair_points", "observations")]
    for statement in ";".join(
        [*records, OTHERS.format(by_code=BY_CODE[dialect], number=NUMBER[dialect])]
    ).split(";"):
        op.execute(statement)
