"""Long lists out of a store: pages without gaps, in few reads, and what is kept for lists."""

import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event
from sqlalchemy.engine import Engine
from store_points import observation, pair_point, point

from advisor.core.records import Observation, Record
from advisor_data import Store, open_store
from advisor_data.lists import (
    LAST_NAME,
    Page,
    Position,
    Span,
    page_of,
    position,
    profile_rows,
    us_of,
)
from advisor_data.state import open_service_state

few = settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def store(tmp_path: Path) -> Generator[Store]:
    with open_store(_url(tmp_path), tmp_path) as opened:
        yield opened


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'a.db'}"


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an empty database: making its tables takes longer than what an example does."""
    folder = tmp_path_factory.mktemp("migrated")
    with open_store(_url(folder), folder):
        return folder


def _copied(migrated: Path, folder: Path) -> str:
    shutil.copy(migrated / "a.db", folder)
    return _url(folder)


def _at(second: int) -> str:
    return (datetime(2026, 1, 31, tzinfo=UTC) + timedelta(seconds=second)).isoformat()


def test_pages_follow_one_another(store: Store) -> None:
    seen = [
        observation(n, job_1="fft", job_2=f"j{n % 3}", started_at=_at(n // 7)) for n in range(90)
    ]
    store.add(seen)
    for limit in (1, 5, 7, 89, 90, 1000):
        found = _all_pages(lambda span: store.observation_page(None, span), limit)
        assert found == sorted(seen, key=position, reverse=True)


def test_records_of_one_moment_stay_together(store: Store) -> None:
    """So anyone who goes on with the moment of the last one misses none."""
    store.add(point(n, share_percent=n + 1, started_at=_at(n // 5)) for n in range(20))
    first = store.solo_page("gemm", Span(limit=3))
    assert len(first.records) == 5
    before = us_of(datetime.fromisoformat(first.records[-1].started_at))
    rest = store.solo_page("gemm", Span(limit=1000, before_us=before))
    assert (len(rest.records), rest.end) == (15, None)


def test_a_moment_with_very_many_records_is_cut(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page stays bounded, and the next one goes on in the same moment."""
    for module in ("lists", "store"):
        monkeypatch.setattr(f"advisor_data.{module}.MOST_OF_MOMENT", 10)
    seen = [observation(n, started_at=_at(0)) for n in range(50)]
    store.add(seen)
    page = store.observation_page(None, Span(limit=5))
    assert len(page.records) == 15
    found = _all_pages(lambda span: store.observation_page(None, span), 5)
    assert found == sorted(seen, key=position, reverse=True)


MOMENTS = ("", ".5", ".500000", ".999999")
ZONES = ("Z", "+00:00")


def _seen(number: int, second: int, part: str, zone: str, job: str, model: str) -> Observation:
    moment = f"2026-01-31T12:00:{second:02}{part}{zone}"
    return observation(number, job_1="fft", job_2=job, gpu_model=model, started_at=moment)


RECORDS = st.lists(
    st.builds(
        _seen,
        st.integers(0, 10**6),
        st.integers(0, 9),
        st.sampled_from(MOMENTS),
        st.sampled_from(ZONES),
        st.sampled_from(["fft", "gemm", "triad"]),
        st.sampled_from(["NVIDIA H200", "NVIDIA H100"]),
    ),
    max_size=30,
    unique_by=lambda record: record.point_id,
)


@given(RECORDS, st.integers(1, 12), st.sampled_from([None, "NVIDIA H200"]), st.integers(0, 10))
@few
def test_a_database_has_the_pages_of_a_list(
    tmp_path_factory: pytest.TempPathFactory,
    migrated: Path,
    records: list[Observation],
    limit: int,
    gpu_model: str | None,
    second: int,
) -> None:
    """However moments are written: page for page what sorting all of them gives."""
    before = us_of(datetime(2026, 1, 31, 12, 0, second, tzinfo=UTC))
    folder = tmp_path_factory.mktemp("pages")
    with open_store(_copied(migrated, folder), folder) as store:
        store.add(records)
        for job in (None, "gemm", "fft"):
            listed = [r for r in records if job is None or job in r.jobs]
            span = Span(limit=limit, gpu_model=gpu_model, before_us=before)
            while True:
                page = store.observation_page(job, span)
                assert page == page_of(listed, span)
                if page.end is None:
                    break
                span = Span(limit=limit, gpu_model=gpu_model, before_us=before, after=page.end)


def test_pair_points_in_pages(store: Store) -> None:
    seen = [pair_point(n, started_at=_at(n)) for n in range(12)]
    store.add(seen)
    for pair in (("gemm", "sort"), ("sort", "gemm")):
        found = _all_pages(lambda span, of=pair: store.pair_page(of, span), 5)
        assert found == seen[::-1]


@given(st.integers(-(10**17), 10**17), st.text("0123456789abcdef", min_size=32, max_size=32))
def test_a_position_is_read_as_it_was_written(moment: int, point_id: str) -> None:
    """It goes through addresses as text."""
    assert Position.parse(str(Position(moment, point_id))) == Position(moment, point_id)


# what is kept for lists


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "replace", "delete", "forget"]),
        st.sampled_from(["fft", "gemm"]),
        st.sampled_from(["NVIDIA H200", "NVIDIA H100"]),
        st.lists(st.integers(1, 10), min_size=1, max_size=4),
    ),
    max_size=8,
)


@given(CHANGES)
@few
def test_rows_of_profiles_follow_every_change(
    tmp_path_factory: pytest.TempPathFactory, migrated: Path, changes: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    with open_store(_copied(migrated, folder), folder) as store:
        for number, (what, job, model, shares) in enumerate(changes):
            points = [
                point(number, job=job, gpu_model=model, share_percent=10.0 * share)
                for share in shares
            ]
            match what:
                case "add":
                    store.add(points)
                case "replace":
                    store.replace_profile(job, model, points)
                case "delete":
                    store.delete_profile(job, model)
                case _:
                    store.delete(store.solo_points(job=job)[:2])
            assert store.profile_rows("", LAST_NAME) == profile_rows(store.solo_points())


def test_names_come_in_pages(store: Store) -> None:
    names = ["a", "a-b", "a.b", "a0", "a_b", "ab", "b", "z"]
    store.add(point(n, job=name) for n, name in enumerate(names))
    assert store.profile_names() == sorted(names)
    assert store.profile_names("a.b", 3) == sorted(names)[3:6]
    assert [row.job for row in store.profile_rows("a0", "ab")] == ["a0", "a_b", "ab"]


# cost


def test_no_list_reads_the_whole_table(tmp_path: Path) -> None:
    """Each statement of a page goes along an index, and needs no sorting of all rows."""
    with open_store(_url(tmp_path), tmp_path) as store, _statements() as said:
        store.add([point(), pair_point(), observation()])
        said.clear()
        here = position(observation())
        for model in (None, "NVIDIA H200"):
            for after in (None, here):
                span = Span(limit=10, gpu_model=model, after=after)
                store.solo_page("gemm", span)
                store.pair_page(("gemm", "sort"), span)
                store.observation_page("gemm", span)
                store.observation_page(None, span)
        store.profile_names("a", 10)
        store.profile_rows("a", "b")
        store.pair_points(jobs=("sort", "gemm"))
        store.pair_points(run="r1")
        with open_service_state(_url(tmp_path), tmp_path) as state:
            state.launches(host="here", active_only=True)
    read = [one for one in said if one[0].startswith("SELECT") and "advisor_schema" not in one[0]]
    assert len(read) > 20
    for statement, parameters in read:
        plan = _plan(tmp_path / "a.db", statement, parameters)
        scans = [step for step in plan if step.startswith("SCAN") and "USING" not in step]
        assert not scans, (statement, plan)


def _all_pages(read: Callable[[Span], Page[Any]], limit: int) -> list[Record]:
    found: list[Record] = []
    span = Span(limit=limit)
    while True:
        page = read(span)
        found += page.records
        if page.end is None:
            return found
        span = Span(limit=limit, after=page.end)


@contextmanager
def _statements() -> Generator[list[tuple[str, Sequence[Any]]]]:
    said: list[tuple[str, Sequence[Any]]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        said.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def _plan(file: Path, statement: str, parameters: Sequence[Any]) -> list[str]:
    import sqlite3

    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
    return [row[-1] for row in rows]
