"""The version of a database's schema: compare it with this version of advisor, and raise it."""

from importlib import resources
from typing import Literal

from sqlalchemy import Connection, inspect, text

from advisor_data.store.tables import VERSION_TABLE

SchemaState = Literal["current", "older", "unreleased", "newer"]

_MIGRATIONS = "advisor_data.migrations"


def schema_state(connection: Connection) -> SchemaState:
    """How the schema compares with the one of this version.

    An empty database is "older"; one from before the first migration is "unreleased".
    """
    known = revisions()
    revision = _revision(connection)
    if revision is not None and revision not in known:
        return "unreleased" if revision < known[0] else "newer"
    return "current" if revision == known[-1] else "older"


def revisions() -> list[str]:
    """Every version of the schema, the newest last: what the names of its migrations begin with."""
    files = (resources.files(_MIGRATIONS) / "versions").iterdir()
    return sorted(f.name.partition("_")[0] for f in files if f.name.endswith(".py"))


def upgrade(connection: Connection) -> None:
    """Run the missing migrations in the transaction of `connection`."""
    # Every process opens a database and few of them raise one; importing Alembic takes 0.12 s.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", _MIGRATIONS.replace(".", ":"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _revision(connection: Connection) -> str | None:
    """As Alembic wrote it down."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
