"""What is known of a card and of drifting jobs, from stored launches beside what is expected."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from advised import CARD, UUID, gives, launch, model, profile, settings_of, solo_points
from made_up_profiles import SHARES
from pair_points import pair_point
from store_points import point as solo_point
from unsafe_counts import checked_with

from advisor.core.gpu import EQUAL, UNCAPPED, Split
from advisor.core.objectives import Interval
from advisor.core.records import REPLAY_SOURCE, UNCOUNTED_UNIT, WATCHED, Observation, PairPoint
from advisor.predict.kernels import Kernels
from advisor.predict.measured import Window
from advisor.predict.predictions import CardPredictor
from advisor.predict.profiles import Profile
from advisor.settings import Settings
from advisor.wire.answers import CardPower, DriftedJob
from advisor_advice import conditions as module
from advisor_advice.conditions import (
    Conditions,
    DriftPredictor,
    Expected,
    card_logs,
    checks_of,
    compared,
    expected_of,
    experience_of,
    fitted_kernels,
    measured_windows,
    outdated_check,
    outdated_checks,
    profiles_of,
    read_conditions,
    stored_factor,
)
from advisor_data import Store, open_store
from advisor_data.bundled import bundled_reference_points

MODEL = model({EQUAL: (0.6, 0.8, 350.0), UNCAPPED: (0.7, 0.7, 380.0)})
PROFILES = {(job, CARD): profile(job) for job in "ab"}
PAIR = tuple(PROFILES.values())
OTHER, H200 = "GPU-2", "NVIDIA H200"


def never(gpu_model: str) -> None:
    """No GPU model was checked."""


def expected(*launches: Observation, checked: Any = never) -> list[Expected]:
    return expected_of(launches, PROFILES, MODEL, checked)


def factor(**fields: Any) -> CardPower:
    values: dict[str, Any] = {
        "gpu_uuid": OTHER, "power_factor": Interval(1.105, 1.087, 1.123), "references": 1,
        "observations": 0, **fields,
    }  # fmt: skip
    return CardPower(**values)


def drift(**fields: Any) -> DriftedJob:
    values: dict[str, Any] = {
        "job": "a", "gpu_model": CARD, "gpu_uuid": OTHER, "quantity": "rate", "ratio": 0.5,
        "since": "2026-01-31", "observations": 4, **fields,
    }  # fmt: skip
    return DriftedJob(**values)


# what advice takes in


def test_power_is_that_of_the_card() -> None:
    """Of profiles that were measured elsewhere; not of those that were measured on it."""
    of = tuple(PROFILES.values())
    known = Conditions(gpu_uuid=OTHER, factor=factor())
    predictor, profiles = known.applied(MODEL, of)
    assert isinstance(predictor, CardPredictor)
    assert profiles[0].whole_gpu_power_w == pytest.approx(442)
    assert (known.card_of(of), list(known.warnings(of))) == (known.factor, [factor().text])
    own = tuple(replace(p, gpu_uuids=frozenset({OTHER})) for p in of)
    assert (known.applied(MODEL, own), known.card_of(own)) == ((MODEL, own), None)
    assert known.card_of((of[0], own[1])) == known.factor


@pytest.mark.parametrize(
    ("occupancy", "rate_1", "split", "per_unit"),
    [
        (60.0, 40.0, UNCAPPED, 3.0),
        (12.0, 40.0, UNCAPPED, None),  # kernels slip in beside long blocks
        (60.0, 99.0, UNCAPPED, None),  # hardly slower: what it waited is hidden
        (60.0, 40.0, EQUAL, None),
    ],
)
def test_a_launch_tells_kernels(
    occupancy: float, rate_1: float, split: Split, per_unit: float | None
) -> None:
    """Without limits both jobs get as many: 40 units/s beside 60 of two kernels are three each."""
    full = np.full(len(SHARES), 95.0)
    columns = {"sm_active_percent": full, "sm_occupancy_percent": full * occupancy / 95}
    known = Kernels(per_unit=2, hold_s=0.01, source="probe")
    of = (profile("a"), profile("b", columns=columns, kernels=known))
    seen = launch(rate_1=rate_1, rate_2=60.0)
    (found,) = MODEL.predict(of, [split])
    fitted = fitted_kernels([Expected(seen, of, found)])
    _, (used, _) = Conditions(kernels=fitted).applied(MODEL, of)
    assert (used.kernels and used.kernels.per_unit) == per_unit
    assert {kernels.source for kernels in fitted.values()} <= {"fitted"}


def beside(truth: Profile, other: str, share: float, number: int) -> Observation:
    """A launch of this very job beside one that is known, as physics has it."""
    split = Split((share, 90.0 - share))
    (found,) = model().predict((PROFILES[other, CARD], truth), [Split(split.shares[::-1])])
    known, own = found.parts
    return launch(
        number, job_1=other, job_2=truth.job, share_1_percent=90.0 - share, share_2_percent=share,
        rate_1=known.rate.value, rate_2=own.rate.value, power_w=found.power_w.value,
    )  # fmt: skip


def test_each_shared_hour_narrows_what_is_not_known_of_a_seen_job(settings: Settings) -> None:
    """And brings it nearer to the truth; a full profile stays, as does all without an hour."""
    stored(settings, replace(solo_points("s")[-1], flags=(WATCHED,), sm_active_percent=60.0))
    with open_store(settings.database_url, settings.home) as store:
        estimated = profiles_of({"s"}, store, or_watched=True)["s", CARD]
        slower = np.where(estimated.shares < 100, 0.8, 1.0)
        values = {**estimated.values, "rate": slower * estimated.values["rate"]}
        truth = replace(estimated, values=values, doubt=None)
        asked = (estimated, profile("c"), PAIR[0])
        narrower, shares = list[Profile](), np.array([30.0, 45.0, 60.0])
        for number, (other, share) in enumerate(
            [("", 0.0), ("a", 45.0), ("b", 45.0), ("b", 45.0), ("a", 30.0), ("b", 60.0)]
        ):
            if other:
                store.add([beside(truth, other, share, number)])
            seen = experience_of(store, model(), never, settings.home)
            given = seen.on_card(CARD, None, store)
            applied, said = given.applied, f"of s also {number} launches beside profiled jobs tell"
            assert [*given.warnings(asked)] == ([said] if number else [])
            _, (found, *others) = applied(model(), asked)
            narrower.append(found)
            assert tuple(others) == asked[1:]
            assert (len(seen.expected), len(seen.hours)) == (0, number)
            # What the two did themselves is told by their windows.
            _, (again, _) = applied(model(), (estimated, PAIR[0]))
            assert number < 2 or again.doubt_at(shares)[0, 0] > found.doubt_at(shares)[0, 0]
    rates = [one.at(shares, "rate")["rate"] for one in (truth, *narrower)]
    offs = [np.abs(np.log(rate / rates[0])).mean() for rate in rates[1:]]
    assert narrower[0] is estimated
    assert np.diff([one.doubt_at(shares)[0].mean() for one in narrower]).max() < 0
    assert offs[-1] < 0.4 * offs[0]
    assert narrower[-1].values["rate"][-1] == 100
    assert np.diff(narrower[-1].values["rate"]).min() >= 0


def test_a_job_that_was_seen_and_not_counted_has_no_rates_beside_others() -> None:
    uncounted = replace(PAIR[0], rate_unit=UNCOUNTED_UNIT)
    seen = Expected(launch(), (uncounted, PAIR[1]), MODEL.predict(PAIR, [EQUAL])[0])
    assert [one.observed for one in compared([seen]) if one.quantity == "rate"] == [80.0]
    assert fitted_kernels([seen]) == {}


def test_drifts_of_these_jobs_on_this_card_widen_bounds() -> None:
    of = tuple(PROFILES.values())
    all_drifts = (
        drift(), drift(job="c"), drift(gpu_uuid="GPU-3", ratio=0.1), drift(gpu_model="Other"),
    )  # fmt: skip
    known = Conditions(gpu_uuid=OTHER, drifts=all_drifts)
    predictor, profiles = known.applied(MODEL, of)
    assert isinstance(predictor, DriftPredictor)
    assert (profiles, known.drifts_of(of)) == (of, (drift(),))
    (said,) = known.warnings(of)
    assert said == f"{drift().text}; intervals are wider: advisor profile a"
    assert [d.ratio for d in Conditions(drifts=all_drifts).drifts_of(of)] == [0.1]


# launches beside what is expected


def test_each_launch_stands_beside_its_own_split() -> None:
    whole = launch(
        1, mode="uncapped", share_1_percent=100.0, share_2_percent=100.0, units_1=None,
        units_2=None,
    )  # fmt: skip
    found = expected(launch(0), whole, launch(2))
    assert [(one.observation.launch_id, one.prediction.split) for one in found] == [
        ("l0", EQUAL), ("l1", UNCAPPED), ("l2", EQUAL),
    ]  # fmt: skip
    assert [p.job for p in found[0].profiles] == ["a", "b"]
    assert found[0].prediction.power_w.value == 350.0


def test_launches_of_three_jobs_stand_beside_physics() -> None:
    """They tell of drift, and nothing of a card: physics errs by more than cards differ."""
    pair = launch(1, gpu_uuid=OTHER)
    three = replace(pair, parts=(*pair.parts, replace(pair.parts[1], share_percent=100.0)))
    (found,) = expected(three)
    assert len(found.prediction.parts) == 3
    assert [one.quantity for one in compared([found])].count("power") == 2
    assert card_logs([found], OTHER) == {}
    lacking = {key: replace(p, idle_power_w=math.nan) for key, p in PROFILES.items()}
    assert expected_of([three], lacking, MODEL, never) == []


@pytest.mark.parametrize(
    "columns",
    [
        {"state": "failed"},
        {"overlap_s": 7.9},
        {"results_1": "wrong"},
        {"results_2": "differ"},
        {"flags": ("wrong-results",)},
        {"mode": "time-sliced"},
        {"gpu_model": "Other"},
        {"job_2": "c"},
        {"share_1_percent": 5.0},
    ],
)
def test_launches_that_say_nothing_are_left_out(columns: dict[str, Any]) -> None:
    assert expected(launch(**columns)) == []


def test_unsafe_counts_count_only_with_right_results() -> None:
    host = checked_with(132, {66}, checked={66}, gpu_model=CARD)
    right: dict[str, Any] = {"results_1": "right", "results_2": "right"}
    assert expected(launch(), checked=gives(host)) == []
    assert expected(launch(results_1="right"), checked=gives(host)) == []
    assert len(expected(launch(**right), checked=gives(host))) == 1
    assert len(expected(launch(units_1=38, units_2=92), checked=gives(host))) == 1


def test_both_rates_and_the_power_are_compared() -> None:
    (one,) = expected(launch(driver="580", libraries_1="torch 2, cublas 13", rate_1=66.0))
    found = [*compared([one])]
    assert [(c.job, c.quantity, c.observed, c.expected.value) for c in found] == [
        ("a", "rate", 66.0, pytest.approx(60.0)), ("b", "rate", 80.0, pytest.approx(80.0)),
        ("a", "power", 350.0, 350.0), ("b", "power", 350.0, 350.0),
    ]  # fmt: skip
    # Where its host ran `a` alone at 110 a second, the profile's 100 are the same speed.
    (one,) = expected(launch(rate_1=66.0, solo_rate_1=110.0))
    assert next(compared([one])).observed == pytest.approx(60.0)
    same = {(c.setting, c.gpu_model, c.gpu_uuid, c.at, c.software) for c in found}
    software = ("driver 580", "cublas 13", "torch 2")
    assert same == {("a + b 50/50", CARD, OTHER, "2026-01-31T12:00:00Z", software)}


def test_what_was_not_read_is_not_compared() -> None:
    known = {("a", CARD): profile("a")}
    found = list(compared(expected_of([launch(job_2="a", rate_1=None)], known, MODEL, never)))
    assert [one.quantity for one in found] == ["rate", "power"]


def test_logs_of_a_card_are_of_launches_that_tell_of_it() -> None:
    """On it, under limits, with all readings, and with profiles of other cards."""
    found = card_logs(expected(launch(power_w=360.0), launch(1, power_w=340.0)), OTHER)
    assert found == {("a", "b"): [math.log(360 / 350), math.log(340 / 350)]}
    whole = {"mode": "uncapped", "share_1_percent": 100.0, "share_2_percent": 100.0}
    others: list[dict[str, Any]] = [
        {"gpu_uuid": "GPU-3"}, {"rate_1": None}, {"power_w": None}, {"rate_1": 90.0},
        {"power_w": 690.0}, {"units_1": None, "units_2": None, **whole},
    ]  # fmt: skip
    for columns in others:
        assert card_logs(expected(launch(**columns)), OTHER) == {}, columns
    assert card_logs(expected(launch(gpu_uuid=UUID)), UUID) == {}


# the card


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A host with a store in which both jobs were measured on one card."""
    found = replace(settings_of(tmp_path), database_url=f"sqlite:///{tmp_path / 'points.db'}")
    stored(found, *solo_points("a"), *solo_points("b"))
    return found


def stored(settings: Settings, *records: Any) -> None:
    with open_store(settings.database_url, settings.home) as store:
        store.add(records)


@pytest.mark.slow
def test_bundled_runs_alone_tell_of_the_cards_they_were_on() -> None:
    """Against the other cards of their model; a card of another model has none."""
    points = [p for p in bundled_reference_points() if p.gpu_model == H200]
    profiles = profiles_of({p.job for p in points}, None)
    card = next(p.gpu_uuid for p in points if p.gpu_uuid not in profiles[p.job, H200].gpu_uuids)
    found = stored_factor(H200, card, [], None)
    assert found
    assert (found.gpu_uuid, found.observations) == (card, 0)
    assert found.references > 0
    assert stored_factor(CARD, card, [], None) is None


def test_experience_is_what_launches_did(settings: Settings) -> None:
    stored(settings, *[launch(n, rate_1=60.0 if n < 20 else 30.0) for n in range(40)])
    with open_store(settings.database_url, settings.home) as store:
        seen = experience_of(store, MODEL, checks_of(settings), settings.home)
        given = seen.on_card(CARD, OTHER, store)
    assert len(seen.expected) == 40
    (found,) = [d for d in seen.drifts if d.job == "a"]
    assert (found.quantity, found.gpu_uuid, found.gpu_model) == ("rate", OTHER, CARD)
    assert found.ratio == pytest.approx(0.5, rel=0.05)
    assert (given.gpu_uuid, given.drifts, given.outdated) == (OTHER, seen.drifts, seen.outdated)
    assert given.factor


def test_conditions_of_a_host(settings: Settings, tmp_path: Path) -> None:
    stored(settings, *(launch(n, power_w=350 * 1.1) for n in range(3)))
    found = read_conditions(settings, MODEL, PAIR, OTHER)
    assert found.factor
    assert 1 < found.factor.power_factor.value < 1.1
    assert (found.factor.gpu_uuid, found.factor.observations, found.factor.references) == (
        OTHER, 1, 0,
    )  # fmt: skip
    # All launches ran on one card, so it is that one that is meant.
    assert read_conditions(settings, MODEL, PAIR, None).factor == found.factor
    stored(settings, launch(4, gpu_uuid="GPU-3"))
    assert read_conditions(settings, MODEL, PAIR, None).factor is None
    empty = replace(settings, database_url=None, home=tmp_path / "new")
    nothing = read_conditions(empty, MODEL, PAIR, OTHER)
    assert (nothing.factor, nothing.drifts, dict(nothing.outdated)) == (None, (), {})
    assert not (tmp_path / "new").exists()


def test_the_driver_in_use_goes_before_that_of_the_newest_launch(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outdated(home: Path, gpu_model: str, versions: Any) -> str:
        return f"{gpu_model} now {versions}"

    monkeypatch.setattr(module, "outdated_check", outdated)
    found = read_conditions(settings, MODEL, PAIR, None, "581")
    assert dict(found.outdated) == {CARD: f"{CARD} now {{'driver': '581'}}"}


# checks


def test_a_check_with_the_same_software_is_not_outdated(tmp_path: Path) -> None:
    """Nor is one of which nothing is known, or of a model without one."""
    assert outdated_check(tmp_path, H200, {}) == ""
    assert outdated_check(tmp_path, CARD, {"driver": "1"}) == ""
    old = outdated_check(tmp_path, H200, {"driver": "1.2"})
    assert old.startswith(f"safe counts of the {H200} were found with other software (driver ")
    assert old.endswith(", 1.2 now): advisor check")
    library = outdated_check(tmp_path, H200, {"torch": "0.1"})
    assert "torch" in library
    assert "driver" not in library.split("(")[1]


def test_the_newest_launch_with_versions_decides(tmp_path: Path) -> None:
    launches = [
        launch(5, gpu_model=H200), launch(2, gpu_model=H200, driver="1"),
        launch(4, gpu_model=H200, driver="2"), launch(3, gpu_model=H200, driver="3"),
        launch(1, driver="9"),
    ]  # fmt: skip
    ((model_name, text),) = outdated_checks(launches, tmp_path).items()
    assert model_name == H200
    assert ", 2 now" in text


# What was measured of jobs together: own windows and launches, and bundled pairs.


TWO = (profile("a"), profile("b"))


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
    found = measured_windows(TWO, unchecked, store, bundled=())
    assert sorted(found["a", "b"], key=lambda w: str(w.split)) == [
        Window(Split((30.0, 70.0)), (30.0, 700.0), 500.0, "GPU-1", "2026-01-01T00:00:00Z"),
        Window(EQUAL, (60.0, 80.0), 350.0, "GPU-2", "2026-01-31T12:00:00Z", is_launch=True),
        Window(UNCAPPED, (100.0, 1000.0), 500.0, "GPU-1", "2026-01-01T00:00:00Z"),
    ]


def test_a_launch_on_another_host_teaches_speeds_beside_its_own_rates_alone(store: Store) -> None:
    """The host ran `a` 1.43 times as fast as its profile says; on the card of the profile not."""
    alone = {"solo_rate_1": 143.0, "solo_rate_2": 100.0}
    store.add([launch(1, **alone), launch(2, **alone, gpu_uuid=UUID)])
    far, near = measured_windows(TWO, unchecked, store, bundled=())["a", "b"]
    assert (far.rates, near.rates) == ((pytest.approx(60 / 1.43), 80.0), (60.0, 80.0))


def test_of_copies_fewer_are_read_as_well(store: Store) -> None:
    """`advisor recommend A*3` knows what `advisor replicas A` does; of other jobs all together."""
    store.add([point(**{"job_2": "a", "share_a": 100.0, "share_b": 100.0}), point()])
    store.add([launch(job_2="a")])
    found = measured_windows(TWO[:1] * 3, unchecked, store, bundled=())
    assert {names: len(windows) for names, windows in found.items()} == {("a", "a"): 2}
    assert measured_windows((*TWO, profile("c")), unchecked, store, bundled=()) == {}


def test_unlike_copies_of_a_window_tell_nothing(store: Store) -> None:
    """Who may write answers for no pair by a copy; a true window beside them counts."""
    for of, more in ((point(), []), (launch(), [launch(1)])):
        sent = [
            replace(of, power_w=watts, written_by=by) for watts, by in ((100.0, "a"), (90.0, "b"))
        ]
        store.add([*sent, *more])
    (left,) = measured_windows(TWO, unchecked, store, bundled=())["a", "b"]
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
    assert measured_windows(TWO, unchecked, store, bundled=()) == {}


def test_what_another_program_did_corrects_no_profile(store: Store) -> None:
    """Neither windows nor launches, nor drift; those without a hash may be of any."""
    profiled = (replace(TWO[0], job_hash="new"), TWO[1])
    store.add([point(job_1_hash="old"), launch(job_1_hash="old")])
    assert measured_windows(profiled, unchecked, store, bundled=()) == {}
    store.add([point(job_1_hash="new", run="r2"), launch(1)])
    (found,) = measured_windows(profiled, unchecked, store, bundled=()).values()
    assert len(found) == 2
    launches = (launch(job_1_hash=job_hash) for job_hash in ("old", "new"))
    (kept,) = expected_of(launches, {(p.job, CARD): p for p in profiled}, MODEL, unchecked)
    assert kept.observation.parts[0].job_hash == "new"


def test_of_a_queue_all_its_pairs(store: Store) -> None:
    store.add([point(), point(job_1="b", job_2="c"), point(job_1="c", job_2="d")])
    found = measured_windows([*TWO, profile("c")], unchecked, store, bundled=(), any_of=True)
    assert found.keys() == {("a", "b"), ("b", "c")}


@pytest.mark.parametrize("mode", ["uncapped", "time-sliced"])
def test_of_a_set_its_own_windows_alone(store: Store, mode: str) -> None:
    """Turns as well, which are predicted of three jobs and more."""
    pair = point(mode=mode, share_a=100.0, share_b=100.0)
    parts = (*pair.parts, dataclasses.replace(pair.parts[0], job="c"))
    store.add([point(), dataclasses.replace(pair, parts=parts)])
    found = measured_windows([profile("c"), *TWO], unchecked, store, bundled=())
    assert found.keys() == {("a", "b", "c")}
    ((window,),) = found.values()
    assert (str(window.split), len(window.rates)) == (mode, 3)


def test_a_launch_that_runs_is_in_no_store_yet() -> None:
    ((names, (window,)),) = measured_windows(
        TWO, unchecked, None, bundled=(), newest=[launch(), launch(job_2="c")]
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
    (window,) = measured_windows(TWO, unchecked, store, bundled=())["a", "b"]
    assert (window.rates, window.power_w) == (pytest.approx(rates), power_w)
