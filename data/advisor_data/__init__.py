"""Where points are kept: SQL, append-only files, and the bundled measurements."""

from advisor_data.store.base import Database, Store
from advisor_data.store.store import migrate, open_database, open_store

__all__ = ["Database", "Store", "migrate", "open_database", "open_store"]
