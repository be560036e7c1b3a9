"""What every store promises."""

import itertools
import shutil
import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from sqlalchemy import event
from sqlalchemy.engine import Engine
from store_points import (
    any_observation,
    any_pair_point,
    any_point,
    observation,
    pair_point,
    point,
)

from advisor.core.records import Observation, PairPoint, Record, SoloPoint
from advisor.errors import InputError
from advisor_data import Store, open_store
from advisor_data.lists import (
    LAST_NAME,
    Page,
    Position,
    ProfileRow,
    Span,
    job_rows,
    page_of,
    position,
    profile_rows,
    us_of,
)
from advisor_data.state import ServiceState

_fresh = itertools.count()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/points.db"


@pytest.fixture
def store(url: str, tmp_path: Path) -> Iterator[Store]:
    with open_store(url, tmp_path) as opened:
        yield opened


def test_a_point_is_added_once(store: Store) -> None:
    added = [store.add(points) for points in ([], [point(1), point(2), point(2)])]
    assert [*added, store.add([point(1, rate=7.0), point(3)])] == [0, 2, 1]
    assert store.solo_points() == [point(1), point(2), point(3)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(measured=any_point | any_pair_point | any_observation)
def test_any_record_comes_back_as_it_was(store: Store, measured: Record) -> None:
    """Every column survives, whatever its value: missing rates, flags, the text of an error."""
    number = next(_fresh)
    # On a card of its own: else it may be another claim of a window that is there.
    measured = replace(measured, gpu_uuid=f"{measured.gpu_uuid} {number}")
    if isinstance(measured, Observation):
        measured = replace(measured, launch_id=f"{measured.launch_id} {number}")
    else:
        measured = replace(measured, run=f"{measured.run} {number}")
    assert (store.add([measured]), store.add([measured])) == (1, 0)
    match measured:
        case SoloPoint():
            assert store.solo_points(run=measured.run) == [measured]
        case PairPoint():
            assert store.pair_points(jobs=measured.jobs, run=measured.run) == [measured]
        case _:
            assert measured in store.observations(jobs=measured.jobs)


def test_observations_are_found_by_jobs_and_model(store: Store) -> None:
    """In the order of time, the jobs named in either order; points are not among them."""
    seen = [
        observation(1),
        observation(2, job_2="triad"),
        observation(3, gpu_model="A100", started_at="2026-03-01T00:00:00Z"),
    ]
    assert (
        store.add([point(1), seen[2], pair_point(1), *seen]),
        store.observations(),
        store.observations(jobs=("triad", "gemm")),
    ) == (5, seen, [seen[1]])
    assert (store.observations(gpu_model="A100"), store.solo_points(), store.pair_points()) == (
        [seen[2]],
        [point(1)],
        [pair_point(1)],
    )


def test_a_profile_is_replaced_as_a_whole(store: Store) -> None:
    """Of all runs, or on one GPU model; a measurement takes its new values, others stay."""
    others = [point(8, job="sort"), pair_point(1), observation(1)]
    store.add([point(1), point(2, run="r2"), point(3), *others])
    new = [point(1, rate=7.0), point(4, run="r3")]
    assert (store.replace_profile("gemm", None, [*new, new[0]]), store.solo_points(job="gemm")) == (
        2,
        new,
    )
    assert [
        *store.solo_points(job="sort"),
        *store.pair_points(),
        *store.observations(),
    ] == others
    assert store.add([point(1), point(2)]) == 1
    store.add([point(5, gpu_model="A100")])
    assert (
        store.replace_profile("gemm", "A100", [point(6, gpu_model="A100")]),
        store.solo_points(job="gemm", gpu_model="NVIDIA H200"),
    ) == (1, [*new[:1], point(2), new[1]])
    assert store.solo_points(gpu_model="A100") == [point(6, gpu_model="A100")]


@pytest.mark.parametrize(
    ("points", "complaint"),
    [
        ([], "without points"),
        ([point(1, job="sort")], "a point of sort"),
        ([point(1, gpu_model="A100")], "on A100 is not part"),
        ([point(1), point(2, rate=-1.0)], "rate is -1"),
    ],
)
def test_a_profile_that_is_none_replaces_nothing(
    store: Store, points: list[SoloPoint], complaint: str
) -> None:
    """A mistake in the new points costs no old one."""
    store.add([point(5)])
    with pytest.raises(InputError, match=complaint):
        store.replace_profile("gemm", "NVIDIA H200", points)
    assert store.solo_points() == [point(5)]


def test_a_profile_is_deleted(store: Store) -> None:
    """Of one model or of all; what was deleted can be added again."""
    store.add([point(1), point(2, gpu_model="A100"), point(3, run="r2"), point(4, job="sort")])
    assert [store.delete_profile("gemm", "A100") for _ in range(2)] == [1, 0]
    assert store.solo_points() == [point(1), point(3, run="r2"), point(4, job="sort")]
    assert [store.delete_profile(job) for job in ("gemm", "nobody")] == [2, 0]
    assert store.solo_points() == [point(4, job="sort")]
    assert store.add([point(1)]) == 1


def test_points_of_any_kind_are_deleted(store: Store) -> None:
    """Those and no others; what is not there does not count."""
    store.add([point(1), point(2, run="r2"), pair_point(1), pair_point(2, run="r2"), observation()])
    assert (
        store.delete([point(1), pair_point(2, run="r2"), point(9)]),
        store.solo_points(),
        store.pair_points(),
    ) == (2, [point(2, run="r2")], [pair_point(1)])
    assert (store.delete([observation()]), store.observations(), store.delete([])) == (1, [], 0)


SOLO = [point(1), point(2, job="sort"), point(3, gpu_model="A100"), point(4, run="r2")]
PAIRS = [
    pair_point(1),
    pair_point(2, job_2="triad"),
    pair_point(3, job_2="gemm"),
    pair_point(4, gpu_model="A100"),
    pair_point(5, run="r2"),
]


@pytest.mark.parametrize(
    ("points", "wanted", "numbers"),
    [
        (SOLO, {"job": "sort"}, [2]),
        (SOLO, {"gpu_model": "A100"}, [3]),
        (SOLO, {"run": "r2"}, [4]),
        (SOLO, {"job": "gemm", "gpu_model": "NVIDIA H200", "run": "r1"}, [1]),
        (SOLO, {"run": "none"}, []),
        (PAIRS, {"jobs": ("gemm", "triad")}, [2]),
        (PAIRS, {"jobs": ("triad", "gemm")}, [2]),
        (PAIRS, {"jobs": ("gemm", "gemm")}, [3]),
        (PAIRS, {"gpu_model": "A100"}, [4]),
        (PAIRS, {"run": "r2"}, [5]),
        (PAIRS, {"jobs": ("sort", "gemm"), "gpu_model": "NVIDIA H200", "run": "r1"}, [1]),
        (PAIRS, {"jobs": ("sort", "triad")}, []),
    ],
)
def test_points_are_found_by_jobs_model_and_run(
    store: Store, points: list[Any], wanted: dict[str, Any], numbers: list[int]
) -> None:
    """The jobs may be named in either order; a job next to itself is a pair of its own."""
    store.add(points)
    found = (store.solo_points if points is SOLO else store.pair_points)(**wanted)
    assert found == [points[number - 1] for number in numbers]


def test_points_come_in_the_order_of_time(store: Store) -> None:
    """The moment counts, not how it is written, nor in which order they were added."""
    starts = ["2026-01-31T09:00:00Z", "2026-01-31T09:00:00.5+00:00", "2026-01-31T10:00:00+00:00"]
    for make, read in ((point, store.solo_points), (pair_point, store.pair_points)):
        points = [make(run=f"r{9 - n}", started_at=start) for n, start in enumerate(starts)]
        store.add(reversed(points))
        assert read() == points


def test_a_point_that_could_not_be_read_back_is_refused(store: Store) -> None:
    store.add([point(1)])
    with pytest.raises(InputError, match="rate"):
        store.add([point(2), point(3, rate=-1.0)])
    with pytest.raises(InputError, match="job 1 of the row: share_percent is 130"):
        store.add([point(2), pair_point(2, share_1_percent=130.0)])
    assert (store.solo_points(), store.pair_points()) == ([point(1)], [])


# long lists out of a store: pages without gaps, in few reads, and what is kept for lists


few = settings(
    max_examples=settings().max_examples // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


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
    store.add([*seen, point()])
    assert store.together() == {("fft", f"j{n}") for n in range(3)}
    for limit in (1, 5, 7, 89, 90, 1000):
        found = _all_pages(lambda span: store.observation_page(None, span), limit)
        assert found == sorted(seen, key=position, reverse=True)


def test_records_of_one_moment_stay_together(store: Store) -> None:
    """So anyone who goes on with the moment of the last one misses none."""
    store.add(point(n, share_percent=n + 1, started_at=_at(n // 5)) for n in range(20))
    first = store.page(SoloPoint, ["gemm"], Span(limit=3))
    assert len(first.records) == 5
    before = us_of(datetime.fromisoformat(first.records[-1].started_at))
    rest = store.page(SoloPoint, ["gemm"], Span(limit=1000, before_us=before))
    assert (len(rest.records), rest.end) == (15, None)


def test_a_moment_with_very_many_records_is_cut(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page stays bounded, and the next one goes on in the same moment."""
    for module in ("lists", "store"):
        monkeypatch.setattr(f"advisor_data.{module}.MOST_OF_MOMENT", 10)
    seen = [observation(n, started_at=_at(0)) for n in range(50)]
    store.add(seen)
    assert len(store.observation_page(None, Span(limit=5)).records) == 15
    found = _all_pages(lambda span: store.observation_page(None, span), 5)
    assert found == sorted(seen, key=position, reverse=True)


def _seen(number: int, second: int, part: str, zone: str, job: str, model: str) -> Observation:
    moment = f"2026-01-31T12:00:{second:02}{part}{zone}"
    return observation(number, job_1="fft", job_2=job, gpu_model=model, started_at=moment)


RECORDS = st.lists(
    st.builds(
        _seen,
        st.integers(0, 10**6),
        st.integers(0, 9),
        st.sampled_from(("", ".5", ".500000", ".999999")),
        st.sampled_from(("Z", "+00:00")),
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
        found = _all_pages(lambda span, of=pair: store.page(PairPoint, of, span), 5)
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
    assert (store.profile_names(), store.profile_names("a.b", 3)) == (
        sorted(names),
        sorted(names)[3:6],
    )
    assert [row.job for row in store.profile_rows("a0", "ab")] == ["a0", "a_b", "ab"]


# cost


def test_no_list_reads_the_whole_table(tmp_path: Path) -> None:
    """Each statement of a page goes along an index, and needs no sorting of all rows."""
    with open_store(_url(tmp_path), tmp_path) as store, _statements() as said:
        store.add([point(), pair_point(), observation()])
        said.clear()
        here = position(observation())
        for model, after in itertools.product((None, "NVIDIA H200"), (None, here)):
            span = Span(limit=10, gpu_model=model, after=after)
            store.page(SoloPoint, ["gemm"], span)
            store.page(PairPoint, ("gemm", "sort"), span)
            store.observation_page("gemm", span)
            store.observation_page(None, span)
        store.profile_names("a", 10)
        store.profile_rows("a", "b")
        store.pair_points(jobs=("sort", "gemm"))
        store.pair_points(run="r1")
        with ServiceState(_url(tmp_path), tmp_path) as state:
            state.launches(home="here", active_only=True)
    read = [one for one in said if one[0].startswith("SELECT") and "advisor_schema" not in one[0]]
    assert len(read) > 20
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        for statement, parameters in read:
            plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            scans = [row[-1] for row in plan if row[-1].startswith("SCAN")]
            assert all("USING" in step for step in scans), (statement, plan)


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


# Rows of the jobs that are defined or measured.


def row(job: str, gpu_model: str = "H200", **fields: Any) -> ProfileRow:
    values: dict[str, Any] = {
        "shares": (10.0, 100.0), "points": 2, "measured_at": "2026-01-31", "flags": ("noisy-rate",),
        "rate_units": ("steps",), **fields,
    }  # fmt: skip
    return ProfileRow(job=job, gpu_model=gpu_model, **values)


def test_what_was_measured_here_stands_before_what_came_with_advisor() -> None:
    """But only where it makes a profile, as for the recommendation."""
    own = job_rows((), [row("a", "A100")], [row("a", "H200")])
    assert [(r.gpu_model, r.source) for r in own] == [("A100", "stored")]
    part = job_rows((), [row("a", "A100", shares=(50.0,))], [row("a", "H200")])
    assert [(r.gpu_model, r.source) for r in part] == [("A100", "stored"), ("H200", "bundled")]


def test_jobs_that_are_only_defined_have_no_model() -> None:
    rows = job_rows({"c", "b"}, [row("b", "Z"), row("b", "A")])
    assert [(r.job, r.gpu_model, r.launchable) for r in rows] == [
        ("b", "A", True), ("b", "Z", True), ("c", None, True),
    ]  # fmt: skip
