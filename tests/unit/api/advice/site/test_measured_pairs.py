"""What was measured of jobs together: own windows and launches, and bundled pairs."""

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advised import CARD, UUID, launch, profile, settings_of
from pair_points import pair_point
from store_points import point as solo_point

from advisor.core.gpu import EQUAL, UNCAPPED, Split
from advisor.core.records import REPLAY_SOURCE, PairPoint
from advisor.predict.measured import Window
from advisor_advice.conditions import measured_windows
from advisor_data import Store, open_store

PAIR = (profile("a"), profile("b"))


def point(**columns: Any) -> PairPoint:
    values: dict[str, Any] = {"job_1": "a", "job_2": "b", "gpu_model": CARD, **columns}
    return pair_point(**values)


def unchecked(gpu_model: str) -> None:
    """No GPU model was checked."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    settings = settings_of(tmp_path)
    with open_store(settings.database_url, settings.home) as opened:
        yield opened


def test_windows_and_launches_of_a_pair(store: Store) -> None:
    """Rates in the order of the names; no limits are a split of their own."""
    store.add([point(), point(share_a=100.0, share_b=100.0)])
    store.add([launch()])
    found = measured_windows(PAIR, unchecked, store, bundled=())
    assert sorted(found["a", "b"], key=lambda w: str(w.split)) == [
        Window(Split((30.0, 70.0)), (30.0, 700.0), 500.0, "GPU-1", "2026-01-01T00:00:00Z"),
        Window(EQUAL, (60.0, 80.0), 350.0, "GPU-2", "2026-01-31T12:00:00Z", is_launch=True),
        Window(UNCAPPED, (100.0, 1000.0), 500.0, "GPU-1", "2026-01-01T00:00:00Z"),
    ]


def test_a_launch_on_another_host_teaches_speeds_beside_its_own_rates_alone(store: Store) -> None:
    """The host ran `a` 1.43 times as fast as its profile says; on the card of the profile not."""
    alone = {"solo_rate_1": 143.0, "solo_rate_2": 100.0}
    store.add([launch(1, **alone), launch(2, **alone, gpu_uuid=UUID)])
    far, near = measured_windows(PAIR, unchecked, store, bundled=())["a", "b"]
    assert (far.rates, near.rates) == ((pytest.approx(60 / 1.43), 80.0), (60.0, 80.0))


def test_of_copies_fewer_are_read_as_well(store: Store) -> None:
    """`advisor recommend A*3` knows what `advisor replicas A` does; of other jobs all together."""
    store.add([point(**{"job_2": "a", "share_a": 100.0, "share_b": 100.0}), point()])
    store.add([launch(job_2="a")])
    found = measured_windows(PAIR[:1] * 3, unchecked, store, bundled=())
    assert {names: len(windows) for names, windows in found.items()} == {("a", "a"): 2}
    assert measured_windows((*PAIR, profile("c")), unchecked, store, bundled=()) == {}


def test_unlike_copies_of_a_window_tell_nothing(store: Store) -> None:
    """Who may write answers for no pair by a copy; a true window beside them counts."""
    store.add([point(), replace(point(), power_w=100.0, written_by="a")])
    store.add([launch(), replace(launch(), power_w=100.0, written_by="a"), launch(1)])
    (left,) = measured_windows(PAIR, unchecked, store, bundled=())["a", "b"]
    assert left.started_at == launch(1).started_at


@pytest.mark.parametrize(
    "columns",
    [
        {"flags": ("wrong-results",)},
        {"flags": ("heat",)},
        {"source": REPLAY_SOURCE},
        {"gpu_model": "Other"},
        {"mode": "time-sliced"},
        {"job_2": "c"},
    ],
    ids=str,
)
def test_points_that_tell_nothing_of_the_pair(store: Store, columns: dict[str, Any]) -> None:
    store.add([point(**columns)])
    assert measured_windows(PAIR, unchecked, store, bundled=()) == {}


def test_of_a_queue_all_its_pairs(store: Store) -> None:
    store.add([point(), point(job_1="b", job_2="c"), point(job_1="c", job_2="d")])
    found = measured_windows([*PAIR, profile("c")], unchecked, store, bundled=(), any_of=True)
    assert found.keys() == {("a", "b"), ("b", "c")}


@pytest.mark.parametrize("mode", ["uncapped", "time-sliced"])
def test_of_a_set_its_own_windows_alone(store: Store, mode: str) -> None:
    """Turns as well, which are predicted of three jobs and more."""
    pair = point(mode=mode, share_a=100.0, share_b=100.0)
    parts = (*pair.parts, dataclasses.replace(pair.parts[0], job="c"))
    store.add([point(), dataclasses.replace(pair, parts=parts)])
    found = measured_windows([profile("c"), *PAIR], unchecked, store, bundled=())
    assert found.keys() == {("a", "b", "c")}
    ((window,),) = found.values()
    assert (str(window.split), len(window.rates)) == (mode, 3)


def test_a_launch_that_runs_is_in_no_store_yet() -> None:
    ((names, (window,)),) = measured_windows(
        PAIR, unchecked, None, bundled=(), newest=[launch(), launch(job_2="c")]
    ).items()
    assert (names, window.rates, window.is_launch) == (("a", "b"), (60.0, 80.0), True)


def test_bundled_pairs_are_read_where_none_are_given() -> None:
    jobs = [profile(job, gpu_model="NVIDIA H200") for job in ("bert-serve-30", "triad")]
    found = measured_windows(jobs, unchecked, None)
    copies = {("bert-serve-30",) * number for number in (2, 3)}
    assert found.keys() <= {("bert-serve-30", "triad"), ("triad", "triad"), *copies}
    assert all(w.is_bundled for windows in found.values() for w in windows)
    assert found["bert-serve-30", "triad"]


@pytest.mark.parametrize(
    ("columns", "rates", "power_w"),
    [({}, (15.0, 70.0), 500.0), ({"power_limit_w": 400.0}, (12.0, 56.0), 400.0)],
)
def test_speeds_are_those_beside_alone_on_the_same_host(
    store: Store, columns: dict[str, Any], rates: tuple[float, ...], power_w: float
) -> None:
    """Its host runs `a` twice and `b` ten times as fast as that of the profiles; 400 W alone."""
    a = solo_point(
        job="a", rate=200.0, run="r1", share_percent=100.0, power_w=400.0, gpu_model=CARD
    )
    store.add(
        [a, replace(a, job="b", rate=1000.0), replace(a, run="r2", rate=9.0), point(**columns)]
    )
    (window,) = measured_windows(PAIR, unchecked, store, bundled=())["a", "b"]
    assert (window.rates, window.power_w) == (pytest.approx(rates), power_w)
