"""Databases of every earlier version, opened and used by this one."""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from old_schema import FILES, REVISIONS, SECRET, fill_old
from sqlalchemy import create_engine, inspect
from store_points import observation, pair_point

from advisor.core.observations import Observation
from advisor.core.records import PairPoint, PointPart, SoloPoint
from advisor.errors import StoreError
from advisor_data import migrate, open_database
from advisor_data.files.files import read_points
from advisor_data.service.state import open_service_state
from advisor_data.store.pages import Span
from advisor_data.store.schema import revisions


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database of each kind, as SQLAlchemy takes it."""
    if request.param == "postgres":
        empty: str = request.getfixturevalue("postgres_empty")
        return empty.replace("postgresql:", "postgresql+psycopg:")
    return f"sqlite:///{tmp_path}/old.db"


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_filled_database_is_raised_and_used(url: str, tmp_path: Path, revision: str) -> None:
    """All records, tokens and launches come back, and everything can be done with them."""
    records = fill_old(url, revision)
    if url.startswith("postgresql"):
        with pytest.raises(StoreError, match="advisor data migrate"):
            open_database(url, tmp_path)
    assert migrate(url, tmp_path)
    solos = [r for r in records if isinstance(r, SoloPoint)]
    pairs = [r for r in records if isinstance(r, PairPoint)]
    seen = [r for r in records if isinstance(r, Observation)]
    assert (len(solos), bool(pairs), bool(seen)) == (2, revision > "0001", revision > "0002")
    with open_database(url, tmp_path) as database:
        assert database.add(records) == 0
        assert sorted(database.solo_points(), key=str) == sorted(solos, key=str)
        assert sorted(database.pair_points(), key=str) == sorted(pairs, key=str)
        assert sorted(database.observations(), key=str) == sorted(seen, key=str)
        for pair in pairs:
            assert database.pair_points(jobs=pair.jobs[::-1]) == [pair]
            assert database.pair_page(pair.jobs, Span(limit=1)).records == [pair]
        for one in seen:
            assert one in database.observations(jobs=one.jobs)
            assert one in database.observation_page(one.jobs[1], Span(limit=5)).records
        # What is brought in again from the old files is there already, where it could be.
        again = [p for kind in ("solo", "pairs") for p in read_points(FILES / f"{kind}.parquet")]
        assert database.add(again) == len(again) - len(solos) - len(pairs)
        assert database.delete([*pairs, *seen]) == len(pairs) + len(seen)
        assert database.add([three_jobs(), pair_point(1), observation(1)]) == 3
        assert database.pair_points(jobs=("c", "a", "b")) == [three_jobs()]
    if revision > "0002":
        with open_service_state(url, tmp_path) as state:
            token, (launch,) = state.find_token(SECRET), state.launches()
            assert token is not None
            assert (token.name, token.scopes) == ("ci", ("read", "write"))
            assert (launch.launch_id, launch.state) == ("20261121-222951-387ff1", "finished")


def three_jobs() -> PairPoint:
    """More jobs than there were columns for."""
    parts = tuple(PointPart(job=name, share_percent=30.0, rate=1.0) for name in "cab")
    return PairPoint(
        parts=parts, gpu_model="NVIDIA H200", gpu_uuid="GPU-1", window_s=5.0,
        started_at="2026-11-22T00:00:00Z", run="r1",
    )  # fmt: skip


def test_no_column_of_two_jobs_is_left(url: str, tmp_path: Path) -> None:
    """What belongs to a job is in the tables of parts, and nowhere else."""
    fill_old(url, "0007")
    migrate(url, tmp_path)
    engine = create_engine(url)
    found = {
        name: {column["name"] for column in inspect(engine).get_columns(name)}
        for name in ("pair_points", "observations", "pair_point_parts", "observation_parts")
    }
    engine.dispose()
    columns = set[str]().union(*found.values())
    assert not {name for name in columns if {"a", "b"} & set(name.split("_"))}
    assert "first_ended" not in columns
    assert found["pair_point_parts"] & found["pair_points"] == {"point_id", "started_at_us"}


def test_versions_are_those_of_the_migrations() -> None:
    """Names of files and what Alembic reads in them agree, so the one is as good as the other."""
    config = Config()
    config.set_main_option("script_location", "advisor_data:migrations")
    scripts = ScriptDirectory.from_config(config)
    assert [script.revision for script in scripts.walk_revisions()] == revisions()[::-1]


def test_a_database_that_is_current_is_opened_without_alembic(tmp_path: Path) -> None:
    """Every process opens one; few of them raise it."""
    url = f"sqlite:///{tmp_path}/store.db"
    migrate(url, tmp_path)
    script = (
        "import sys; from pathlib import Path; from advisor_data import open_database; "
        f"open_database({url!r}, Path({str(tmp_path)!r})).close(); print('alembic' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
