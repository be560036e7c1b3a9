"""Which store is opened, and what opening costs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from store_points import point

from advisor.errors import InputError, StoreError
from advisor.installed import install
from advisor_data import migrate, open_store


def test_the_default_is_a_database_in_the_home_folder(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    with open_store(None, home) as store:
        store.add([point()])
    assert (home / "advisor.db").is_file()


def test_a_node_without_sqlalchemy_writes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a home folder that began with files goes on with files when it comes later."""
    with monkeypatch.context() as bare:
        bare.setitem(sys.modules, "sqlalchemy", None)
        assert open_store(None, tmp_path).add([point()]) == 1
    assert (tmp_path / "points" / "solo-r1.jsonl").is_file()
    with open_store(None, tmp_path) as store:
        assert store.solo_points() == [point()]


def test_an_address_of_files_names_the_folder(tmp_path: Path) -> None:
    open_store(f"files:{tmp_path}/here", tmp_path / "home").add([point()])
    assert (tmp_path / "here" / "solo-r1.jsonl").is_file()
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("missing", "url", "extra"),
    [
        ("alembic", "sqlite:///{}/x.db", "data"),
        ("psycopg", "postgresql://u@127.0.0.1/x", "postgres"),
    ],
)
def test_what_is_not_installed_is_said_with_the_pip_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, url: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=re.escape(install(extra))):
        open_store(url.format(tmp_path), tmp_path)


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
    """A GPU node that only profiles does not pay for SQL and tables, not even when installed."""
    script = (
        "import sys, pathlib, advisor_data, advisor_data.files.files, advisor_data.files.bundled;"
        "advisor_data.open_store('files:x', pathlib.Path()).close();"
        "print(*{'sqlalchemy', 'alembic', 'pandas', 'pyarrow', 'psycopg'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_migrating_a_folder_of_files_makes_nothing(tmp_path: Path) -> None:
    """Above all no empty database in front of the points."""
    migrate(f"files:{tmp_path}/points", Path())
    assert not (tmp_path / "points").exists()
    (tmp_path / "points").mkdir()
    migrate(None, tmp_path)
    assert not (tmp_path / "advisor.db").exists()
