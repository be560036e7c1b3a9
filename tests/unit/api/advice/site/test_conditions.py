"""What is known of a card and of drifting jobs, from stored launches beside what is expected."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from advised import CARD, UUID, gives, launch, model, profile, settings_of, solo_points
from made_up_profiles import SHARES
from unsafe_counts import checked_with

from advisor.core.gpu import EQUAL, UNCAPPED, Split
from advisor.core.records import Observation
from advisor.predict.card_factor import CardFactor, CardPredictor
from advisor.predict.kernels import Kernels
from advisor.settings import Settings
from advisor.wire.answers import DriftedJob
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
    outdated_check,
    outdated_checks,
    profiles_of,
    read_conditions,
    stored_factor,
)
from advisor_data import open_store
from advisor_data.bundled import bundled_reference_points

MODEL = model({EQUAL: (0.6, 0.8, 350.0), UNCAPPED: (0.7, 0.7, 380.0)})
PROFILES = {(job, CARD): profile(job) for job in "ab"}
PAIR = tuple(PROFILES.values())
OTHER, H200 = "GPU-2", "NVIDIA H200"


def never(gpu_model: str) -> None:
    """No GPU model was checked."""


def expected(*launches: Observation, checked: Any = never) -> list[Expected]:
    return expected_of(launches, PROFILES, MODEL, checked)


def factor(**fields: Any) -> CardFactor:
    values: dict[str, Any] = {"gpu_uuid": OTHER, "log_factor": 0.1, "log_stderr": 0.01}
    values |= {"references": 1, "observations": 0, **fields}
    return CardFactor(**values)


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
    assert profiles[0].whole_gpu_power_w == pytest.approx(400 * math.exp(0.1))
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
    known = Kernels(per_unit=2, per_unit_stderr=0.1, hold_s=0.01, hold_stderr_s=0, source="probe")
    of = (profile("a"), profile("b", columns=columns, kernels=known))
    seen = launch(rate_1=rate_1, rate_2=60.0)
    (found,) = MODEL.predict(of, [split])
    fitted = fitted_kernels([Expected(seen, of, found)])
    _, (used, _) = Conditions(kernels=fitted).applied(MODEL, of)
    assert (used.kernels and used.kernels.per_unit) == per_unit
    assert {kernels.source for kernels in fitted.values()} <= {"fitted"}


def test_drifts_of_these_jobs_on_this_card_widen_bounds() -> None:
    of = tuple(PROFILES.values())
    all_drifts = (
        drift(), drift(job="c"), drift(gpu_uuid="GPU-3", ratio=0.1), drift(gpu_model="Other"),
    )  # fmt: skip
    known = Conditions(gpu_uuid=OTHER, drifts=all_drifts)
    predictor, profiles = known.applied(MODEL, of)
    assert isinstance(predictor, DriftPredictor)
    assert profiles == of
    assert known.drifts_of(of) == (drift(),)
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
        given = seen.conditions(CARD, OTHER, store)
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
    assert 0 < found.factor.log_factor < math.log(1.1)
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
