"""Which store is opened, and what opening costs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from store_points import point

from advisor.errors import InputError, StoreError
from advisor.installed import install
from advisor_data import open_store


def test_the_default_is_a_database_in_the_home_folder(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    with open_store(None, home) as store:
        store.add([point()])
    assert (home / "advisor.db").is_file()


def test_what_is_not_installed_is_said_with_the_pip_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InputError, match=re.escape(install("postgres"))):
        open_store("postgresql://u@127.0.0.1/x", tmp_path)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        *((url, "sqlite:///FILE") for url in (
            "here.db", "postgresql://u:secret@host:port/x", "://secret"
        )),
        ("mysql://u:secret@host/x", "mysql"),
        ("postgresql+asyncpg://u:secret@h/x", "asyncpg"),
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_without_its_password(
    url: str, said: str, tmp_path: Path
) -> None:
    """The message shows how to write an address of SQLite or PostgreSQL, and keeps secrets."""
    with pytest.raises(InputError, match=said) as caught:
        open_store(url, tmp_path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_server_that_is_not_there_is_a_store_error(scheme: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check that the server runs") as caught:
        open_store(f"{scheme}://u:secret@127.0.0.1:1/x", tmp_path)
    assert "127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_home_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Not a directory"):
        open_store(None, tmp_path / "file" / "home")


def test_importing_the_package_loads_nothing_heavy() -> None:
    """Commands that open no store do not pay for SQL and tables."""
    script = (
        "import sys, advisor_data, advisor_data.files, advisor_data.bundled;"
        "print(*{'sqlalchemy', 'alembic', 'pandas', 'pyarrow', 'psycopg'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
