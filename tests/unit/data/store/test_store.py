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

_fresh = itertools.count()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/points.db"


@pytest.fixture
def store(url: str, tmp_path: Path) -> Iterator[Store]:
    with open_store(url, tmp_path) as opened:
        yield opened


def test_a_point_is_added_once(store: Store) -> None:
    assert store.add([]) == 0
    assert (store.solo_points(), store.pair_points()) == ([], [])
    assert store.add([point(1), point(2), point(2)]) == 2
    assert store.add([point(1, rate=7.0), point(3)]) == 1
    assert store.solo_points() == [point(1), point(2), point(3)]


def test_both_kinds_are_added_together_and_kept_apart(store: Store) -> None:
    """One call takes points of any kind and run; each kind is found by its own question."""
    second_run = pair_point(2, run="r2")
    mixed = [pair_point(1), point(1), second_run, point(2), pair_point(1)]
    assert store.add(mixed) == 4
    assert store.add([point(3), pair_point(1)]) == 1
    assert store.solo_points() == [point(1), point(2), point(3)]
    assert store.pair_points() == [pair_point(1), second_run]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(measured=any_point | any_pair_point | any_observation)
def test_any_record_comes_back_as_it_was(store: Store, measured: Record) -> None:
    """Every column survives, whatever its value: missing rates, flags, the text of an error."""
    if isinstance(measured, Observation):
        measured = replace(measured, launch_id=f"{measured.launch_id} {next(_fresh)}")
    else:
        measured = replace(measured, run=f"{measured.run} {next(_fresh)}")
    assert store.add([measured]) == 1
    assert store.add([measured]) == 0
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
    assert store.add([point(1), seen[2], pair_point(1), *seen]) == 5
    assert store.observations() == seen
    assert store.observations(jobs=("triad", "gemm")) == [seen[1]]
    assert store.observations(gpu_model="A100") == [seen[2]]
    assert (store.solo_points(), store.pair_points()) == ([point(1)], [pair_point(1)])


def test_a_profile_is_replaced_as_a_whole(store: Store) -> None:
    """Of all runs, or on one GPU model; a measurement takes its new values, others stay."""
    others = [point(8, job="sort"), pair_point(1), observation(1)]
    store.add([point(1), point(2, run="r2"), point(3), *others])
    new = [point(1, rate=7.0), point(4, run="r3")]
    assert store.replace_profile("gemm", None, [*new, new[0]]) == 2
    assert store.solo_points(job="gemm") == new
    assert [
        *store.solo_points(job="sort"),
        *store.pair_points(),
        *store.observations(),
    ] == others
    assert store.add([point(1), point(2)]) == 1
    elsewhere = [point(5, gpu_model="A100")]
    store.add(elsewhere)
    assert store.replace_profile("gemm", "A100", [point(6, gpu_model="A100")]) == 1
    assert store.solo_points(job="gemm", gpu_model="NVIDIA H200") == [*new[:1], point(2), new[1]]
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
    assert store.delete_profile("gemm", "A100") == 1
    assert store.delete_profile("gemm", "A100") == 0
    assert store.solo_points() == [point(1), point(3, run="r2"), point(4, job="sort")]
    assert store.delete_profile("gemm") == 2
    assert store.delete_profile("nobody") == 0
    assert store.solo_points() == [point(4, job="sort")]
    assert store.add([point(1)]) == 1


def test_points_of_any_kind_are_deleted(store: Store) -> None:
    """Those and no others; what is not there does not count."""
    store.add([point(1), point(2, run="r2"), pair_point(1), pair_point(2, run="r2"), observation()])
    assert store.delete([point(1), pair_point(2, run="r2"), point(9)]) == 2
    assert store.solo_points() == [point(2, run="r2")]
    assert store.pair_points() == [pair_point(1)]
    assert store.delete([observation()]) == 1
    assert store.observations() == []
    assert store.delete([]) == 0


def test_points_are_found_by_job_model_and_run(store: Store) -> None:
    points = [point(1), point(2, job="sort"), point(3, gpu_model="A100"), point(4, run="r2")]
    store.add(points)
    assert store.solo_points(job="sort") == [points[1]]
    assert store.solo_points(gpu_model="A100") == [points[2]]
    assert store.solo_points(run="r2") == [points[3]]
    assert store.solo_points(job="gemm", gpu_model="NVIDIA H200", run="r1") == [points[0]]
    assert store.solo_points(run="none") == []


def test_pairs_are_found_by_jobs_model_and_run(store: Store) -> None:
    """The jobs may be named in either order; a job next to itself is a pair of its own."""
    points = [
        pair_point(1),
        pair_point(2, job_2="triad"),
        pair_point(3, job_2="gemm"),
        pair_point(4, gpu_model="A100"),
        pair_point(5, run="r2"),
    ]
    store.add(points)
    assert store.pair_points(jobs=("gemm", "triad")) == [points[1]]
    assert store.pair_points(jobs=("triad", "gemm")) == [points[1]]
    assert store.pair_points(jobs=("gemm", "gemm")) == [points[2]]
    assert store.pair_points(gpu_model="A100") == [points[3]]
    assert store.pair_points(run="r2") == [points[4]]
    found = store.pair_points(jobs=("sort", "gemm"), gpu_model="NVIDIA H200", run="r1")
    assert found == [points[0]]
    assert store.pair_points(jobs=("sort", "triad")) == []


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
    assert store.solo_points() == [point(1)]
    assert store.pair_points() == []


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

REPLACER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from store_points import point
from advisor_data import open_store
with open_store(sys.argv[2], Path(sys.argv[3])) as store:
    for number in range(int(sys.argv[4])):
        store.replace_profile("gemm", None, [point(number), point(number, run="r2")])
        print(number, flush=True)
"""


def writer(url: str, home: Path, count: int, program: str = WRITER) -> "subprocess.Popen[str]":
    """A process that adds `count` points one by one and prints each when it was added."""
    here = Path(__file__).parents[3] / "fakes"
    command = [sys.executable, "-c", program, str(here), url, str(home), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def killed(process: "subprocess.Popen[str]") -> list[str]:
    """What it wrote behind its first 20 lines; `communicate` would forget what was read ahead."""
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    with process:
        return process.stdout.read().splitlines()


def test_two_processes_write_at_once(url: str, tmp_path: Path) -> None:
    both = [writer(url, tmp_path, 60) for _ in range(2)]
    printed = [process.communicate(timeout=50)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(int(line.split()[1]) for lines in printed for line in lines) == 60
    with open_store(url, tmp_path) as store:
        assert store.solo_points() == [point(number) for number in range(60)]


def test_kill_9_loses_nothing_that_was_added(url: str, tmp_path: Path) -> None:
    whole = [line for line in killed(writer(url, tmp_path, 80_000)) if len(line.split()) == 2]
    with open_store(url, tmp_path) as store:
        assert len(store.solo_points()) >= 20 + len(whole)
        assert store.add([point(0), point(80_000)]) == 1


def test_writers_and_replacers_at_once(url: str, tmp_path: Path) -> None:
    with open_store(url, tmp_path) as store:
        process = writer(url, tmp_path, 60, REPLACER)
        kept = [point(number, job="sort") for number in range(100)]
        assert [store.add([one]) for one in kept] == [1] * 100
        process.communicate(timeout=50)
        assert process.returncode == 0
        assert store.solo_points(job="sort") == kept
        assert store.solo_points(job="gemm") == [
            *sorted([point(59), point(59, run="r2")], key=lambda p: p.point_id)
        ]


def test_kill_9_of_a_replacement_keeps_one_profile_at_least(url: str, tmp_path: Path) -> None:
    rest = killed(writer(url, tmp_path, 80_000, REPLACER))
    done = int(rest[-1]) if rest else 19
    with open_store(url, tmp_path) as store:
        starts = {p.started_at for p in store.solo_points()}
        assert starts & {point(done).started_at, point(done + 1).started_at}
        assert store.replace_profile("gemm", None, [point(0)]) == 1
        assert store.solo_points() == [point(0)]
