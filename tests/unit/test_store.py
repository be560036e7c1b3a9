"""What every store promises."""

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from store_points import any_pair_point, any_point, pair_point, point

from advisor.errors import InputError
from advisor.records import PairPoint, SoloPoint
from advisor_data import Store, open_store

_fresh = itertools.count()

KINDS = ("files:{}/points", "sqlite:///{}/points.db")


@pytest.fixture(params=KINDS, ids=["files", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a fresh store of each kind."""
    return request.param.format(tmp_path)


@pytest.fixture
def store(url: str, tmp_path: Path) -> Iterator[Store]:
    with open_store(url, tmp_path) as opened:
        yield opened


def test_a_point_is_added_once(store: Store) -> None:
    """Adding again changes nothing, and the answer says how many were new."""
    assert store.add([point(1), point(2), point(2)]) == 2
    assert store.add([point(1, rate=7.0), point(3)]) == 1
    assert store.solo_points() == [point(1), point(2), point(3)]


def test_nothing_added_is_nothing(store: Store) -> None:
    """An empty batch is no error, and an empty store has no points."""
    assert store.add([]) == 0
    assert store.solo_points() == []
    assert store.pair_points() == []


def test_both_kinds_are_added_together_and_kept_apart(store: Store) -> None:
    """One call takes points of any kind and run; each kind is found by its own question."""
    second_run = pair_point(2, run="r2")
    mixed = [pair_point(1), point(1), second_run, point(2), pair_point(1)]
    assert store.add(mixed) == 4
    assert store.add([point(3), pair_point(1)]) == 1
    assert store.solo_points() == [point(1), point(2), point(3)]
    assert store.pair_points() == [pair_point(1), second_run]


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(measured=any_point)
def test_any_point_comes_back_as_it_was(store: Store, measured: SoloPoint) -> None:
    """Every column survives, whatever its value."""
    measured = replace(measured, run=f"{measured.run} {next(_fresh)}")
    store.add([measured])
    assert store.solo_points(run=measured.run) == [measured]


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(measured=any_pair_point)
def test_any_pair_point_comes_back_as_it_was(store: Store, measured: PairPoint) -> None:
    """Every column of a pair survives: missing rates, flags, the text of an error."""
    measured = replace(measured, run=f"{measured.run} {next(_fresh)}")
    store.add([measured])
    assert store.pair_points(pair=measured.pair, run=measured.run) == [measured]


def test_points_are_found_by_job_model_and_run(store: Store) -> None:
    """Each filter holds, alone and with the others."""
    points = [point(1), point(2, job="sort"), point(3, gpu_model="A100"), point(4, run="r2")]
    store.add(points)
    assert store.solo_points(job="sort") == [points[1]]
    assert store.solo_points(gpu_model="A100") == [points[2]]
    assert store.solo_points(run="r2") == [points[3]]
    assert store.solo_points(job="gemm", gpu_model="NVIDIA H200", run="r1") == [points[0]]
    assert store.solo_points(run="none") == []


def test_pairs_are_found_by_jobs_model_and_run(store: Store) -> None:
    """The jobs may be named in either order; a job beside itself is a pair of its own."""
    points = [
        pair_point(1),
        pair_point(2, job_b="triad"),
        pair_point(3, job_b="gemm"),
        pair_point(4, gpu_model="A100"),
        pair_point(5, run="r2"),
    ]
    store.add(points)
    assert store.pair_points(pair=("gemm", "triad")) == [points[1]]
    assert store.pair_points(pair=("triad", "gemm")) == [points[1]]
    assert store.pair_points(pair=("gemm", "gemm")) == [points[2]]
    assert store.pair_points(gpu_model="A100") == [points[3]]
    assert store.pair_points(run="r2") == [points[4]]
    found = store.pair_points(pair=("sort", "gemm"), gpu_model="NVIDIA H200", run="r1")
    assert found == [points[0]]
    assert store.pair_points(pair=("sort", "triad")) == []


def test_pairs_come_in_the_order_of_time(store: Store) -> None:
    """Whatever the order in which they were added."""
    store.add([pair_point(3), pair_point(1, run="r2"), pair_point(2)])
    assert [p.rate_a for p in store.pair_points()] == [101.0, 102.0, 103.0]


def test_points_come_in_the_order_of_time(store: Store) -> None:
    """The moment counts, not how it is written."""
    starts = ["2026-01-31T09:00:00Z", "2026-01-31T09:00:00.5+00:00", "2026-01-31T10:00:00+00:00"]
    points = [point(run=f"r{9 - n}", started_at=start) for n, start in enumerate(starts)]
    store.add(reversed(points))
    assert store.solo_points() == points


def test_a_point_that_could_not_be_read_back_is_refused(store: Store) -> None:
    """The batch with the bad point leaves the store as it was."""
    store.add([point(1)])
    with pytest.raises(InputError, match="rate"):
        store.add([point(2), point(3, rate=-1.0)])
    with pytest.raises(InputError, match="swap the two jobs"):
        store.add([point(2), pair_point(2, job_a="z")])
    assert store.solo_points() == [point(1)]
    assert store.pair_points() == []


def test_points_outlive_the_store(store: Store, url: str, tmp_path: Path) -> None:
    """What was added is there when the store is opened again."""
    store.add([point(1), pair_point(1)])
    store.close()
    with open_store(url, tmp_path) as again:
        assert again.solo_points() == [point(1)]
        assert again.pair_points() == [pair_point(1)]
        assert again.add([point(1), pair_point(1)]) == 0


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from store_points import point
from advisor_data import open_store
with open_store(sys.argv[2], Path(sys.argv[3])) as store:
    for number in range(int(sys.argv[4])):
        print(number, store.add([point(number)]), flush=True)
"""


def writer(url: str, home: Path, count: int) -> "subprocess.Popen[str]":
    """A process that adds `count` points one by one and prints each when it was added."""
    here = Path(__file__).parent
    command = [sys.executable, "-c", WRITER, str(here), url, str(home), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_write_at_once(url: str, tmp_path: Path) -> None:
    """Points of writers that start together on a store not yet there are each kept once."""
    both = [writer(url, tmp_path, 60) for _ in range(2)]
    printed = [process.communicate(timeout=50)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(int(line.split()[1]) for lines in printed for line in lines) == 60
    with open_store(url, tmp_path) as store:
        assert store.solo_points() == [point(number) for number in range(60)]


def test_kill_9_loses_nothing_that_was_added(url: str, tmp_path: Path) -> None:
    """Each point whose `add` returned is there after the writer was killed."""
    process = writer(url, tmp_path, 80_000)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    rest = process.communicate(timeout=50)[0].splitlines()
    whole = [line for line in rest if len(line.split()) == 2]
    with open_store(url, tmp_path) as store:
        assert len(store.solo_points()) >= 20 + len(whole)
        assert store.add([point(0), point(80_000)]) == 1
