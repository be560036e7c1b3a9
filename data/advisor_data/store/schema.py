"""The version of a database's schema: compare it with this version of advisor, and raise it."""

from typing import Literal

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from advisor_data.store.tables import VERSION_TABLE

SchemaState = Literal["current", "older", "newer"]


def schema_state(connection: Connection) -> SchemaState:
    """How the schema compares with the one of this version; an empty database is "older"."""
    scripts = ScriptDirectory.from_config(_config())
    known = {script.revision for script in scripts.walk_revisions()}
    options = {"version_table": VERSION_TABLE}
    revision = MigrationContext.configure(connection, opts=options).get_current_revision()
    if revision is not None and revision not in known:
        return "newer"
    return "current" if revision == scripts.get_current_head() else "older"


def upgrade(connection: Connection) -> None:
    """Run the missing migrations in the transaction of `connection`."""
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "advisor_data:migrations")
    return config
