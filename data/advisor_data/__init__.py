"""Where points are kept: SQL, append-only files, and the bundled measurements."""

from advisor_data.store import Store, open_store

__all__ = ["Store", "open_store"]
