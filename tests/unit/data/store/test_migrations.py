"""The schema of a database: made by migrations, and refused where it is of another version."""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text
from store_points import point

from advisor.errors import StoreError
from advisor_data import migrate, open_store
from advisor_data.database import VERSION_TABLE, metadata, revisions


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        empty: str = request.getfixturevalue("postgres_empty")
        return empty.replace("postgresql:", "postgresql+psycopg:")
    return f"sqlite:///{tmp_path}/store.db"


def _is_no_index(_name: object, kind: str, _parents: object) -> bool:
    return kind != "index"


def test_migrations_make_the_tables_of_the_code(url: str, tmp_path: Path) -> None:
    assert migrate(url, tmp_path)
    engine = create_engine(url)
    with engine.connect() as connection:
        opts = {"version_table": VERSION_TABLE, "include_name": _is_no_index}
        context = MigrationContext.configure(connection, opts=opts)
        assert compare_metadata(context, metadata) == []
    engine.dispose()


@pytest.mark.parametrize(
    ("version", "remedy"),
    [("0012", r"data export FILE.*data import FILE"), ("9999", "upgrade advisor")],
    ids=["before the first release", "newer"],
)
def test_a_database_of_another_version_is_refused(
    url: str, tmp_path: Path, version: str, remedy: str
) -> None:
    """Nothing in it is changed, and the message says how its points come over."""
    migrate(url, tmp_path)
    with open_store(url, tmp_path) as store:
        store.add([point()])
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{version}'"))
    for use in (lambda: open_store(url, tmp_path), lambda: migrate(url, tmp_path)):
        with pytest.raises(StoreError, match=remedy):
            use()
    with engine.begin() as connection:
        assert connection.scalar(text("SELECT count(*) FROM solo_points")) == 1
        assert connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) == version
    engine.dispose()


def test_versions_are_those_of_the_migrations() -> None:
    """Names of files and what Alembic reads in them agree, so the one is as good as the other."""
    config = Config()
    config.set_main_option("script_location", "advisor_data:migrations")
    scripts = ScriptDirectory.from_config(config)
    assert [script.revision for script in scripts.walk_revisions()] == revisions()[::-1]


def test_a_database_that_is_current_is_opened_without_alembic(tmp_path: Path) -> None:
    """Every process opens one; few of them raise it, and most have no PostgreSQL."""
    url = f"sqlite:///{tmp_path}/store.db"
    migrate(url, tmp_path)
    script = (
        "import sys; from pathlib import Path; from advisor_data import open_store; "
        f"open_store({url!r}, Path({str(tmp_path)!r})).close(); "
        "print({'alembic', 'sqlalchemy.dialects.postgresql'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
