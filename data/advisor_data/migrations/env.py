"""Run by Alembic for each command; the caller gives the connection and owns its transaction."""

from alembic import context

from advisor_data.store import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
context.run_migrations()
