"""Where points are kept: SQL, append-only files, and the bundled measurements."""

from advisor_data.store.store import Store, migrate, open_store

__all__ = ["Store", "migrate", "open_store"]
