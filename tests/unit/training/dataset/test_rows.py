"""Measured pairs and profiles as arrays."""

import dataclasses

import numpy as np
import pytest
import synthetic_pairs as made_up
from made_up_profiles import profile
from made_up_rows import solo_points
from simple_pairs import pair, solo

from advisor.core.records import OBSERVED_SOURCE
from advisor.errors import InputError
from advisor.predict.features import matrix, power_features, speed_features
from advisor.predict.profiles import make_profiles
from advisor.predict.serving import Serving
from advisor.predict.sides import Side, prior_kept, side
from advisor_training.pairs import make_pairs
from advisor_training.rows import OBSERVED_WEIGHT, SOME, Rows, flat, make_rows

SOLOS = solo_points()
PROFILES = make_profiles(SOLOS)


def rows_of(*pairs: tuple[made_up.MadeUpJob, made_up.MadeUpJob]) -> Rows:
    return make_rows(make_pairs(made_up.pair_points(pairs), SOLOS)[0], PROFILES)


def sides(rows: Rows, first: str, second: str) -> tuple[Side, Side]:
    a, b = (PROFILES[name, made_up.GPU_MODEL] for name in (first, second))
    return side(a, rows.share_a), side(b, rows.share_b)


def test_a_row_for_each_split_that_is_learned_from() -> None:
    """The nine and uncapped; neither time-sliced nor over-subscribed splits."""
    rows = rows_of((made_up.CLIMBER, made_up.SITTER))
    assert len(rows) == 10
    assert rows.jobs == ["climber", "sitter"]
    assert rows.share_a.tolist() == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    assert rows.kind.tolist() == ["nine"] * 9 + ["uncapped"]
    assert rows.gpu_model.tolist() == [made_up.GPU_MODEL] * 10


def test_values_are_those_measured_and_those_alone() -> None:
    """Speeds and power of the pair; rates alone at the share, and power without learning."""
    rows = rows_of((made_up.CLIMBER, made_up.SITTER))
    kept = prior_kept(sides(rows, "climber", "sitter"))
    for row, share in enumerate(range(10, 100, 10)):
        speed_a, speed_b, power_w = made_up.speeds_and_power(
            made_up.CLIMBER, made_up.SITTER, "mps", share, 100 - share
        )
        assert rows.speed_a[row] == pytest.approx(speed_a)
        assert rows.speed_b[row] == pytest.approx(speed_b)
        assert rows.power_w[row] == pytest.approx(power_w)
        alone = made_up.CLIMBER.speed(share), made_up.SITTER.speed(100 - share)
        np.testing.assert_allclose(rows.heads["speed"].prior[row], np.array(alone) * kept[row])
    both_w = 80 + 400 * made_up.CLIMBER.speed(10) + 60
    assert rows.heads["power"].prior[0] == pytest.approx(both_w, rel=0.01)


def test_every_column_of_a_row() -> None:
    """A server with a demand next to one without: all of the pair, of each alone, of the card."""
    point = pair(
        30, 70, rate_1=1.2, rate_2=0.5, power_w=250.0, memory_power_w=60.0, source=OBSERVED_SOURCE
    )
    solos = [solo("a", rate=2.0, power_w=150.0), solo("b", rate=5.0, power_w=170.0)]
    asked = Serving(offered_rate=2.0, rate_noise=None, latency_p99_ms=())
    undemanding = dataclasses.replace(asked, offered_rate=None)
    profiles = {
        ("a", "Card"): profile("a", gpu_model="Card", serving=asked),
        ("b", "Card"): profile(
            "b", gpu_model="Card", serving=undemanding, columns={"power_w": [200.0] * 10}
        ),
    }
    rows = make_rows(make_pairs([point], solos, full=False)[0], profiles)
    assert rows.table.to_dict("records") == [
        {
            "job_a": "a", "job_b": "b", "gpu_model": "Card", "card": "GPU-1", "run": "r1",
            "measurement": 0, "pair": 0, "kind": SOME, "share_a": 30, "share_b": 70,
            "situation": "split, with a server", "situation_a": "split, server",
            "situation_b": "split, launch-bound",
            "all_served_a": 0.98, "all_served_b": np.inf, "speed_a": 0.6, "speed_b": 0.1,
            "power_w": 250, "memory_power_w": 60, "solo_rate_a": 2, "solo_rate_b": 5,
            "solo_power_a_w": 150, "solo_power_b_w": 170, "profile_power_a_w": 400,
            "profile_power_b_w": 200, "power_limit_w": 700, "weight": OBSERVED_WEIGHT,
        }
    ]  # fmt: skip


def test_features_are_seen_from_each_job() -> None:
    rows = rows_of((made_up.HOG, made_up.MIDDLE))
    hog, middle = (PROFILES[name, made_up.GPU_MODEL] for name in ("hog", "middle"))
    a, b = side(hog, rows.share_a), side(middle, rows.share_b)
    speed, power = rows.heads["speed"].features, rows.heads["power"].features
    np.testing.assert_array_equal(speed[:, 0], matrix(speed_features(a, [b])))
    np.testing.assert_array_equal(speed[:, 1], matrix(speed_features(b, [a])))
    np.testing.assert_array_equal(power[:, 0], matrix(power_features([a, b])))
    np.testing.assert_array_equal(flat(speed), np.concatenate([speed[:, 0], speed[:, 1]]))


def test_rows_know_their_pair_and_measurement() -> None:
    """Two runs of one pair are two measurements; splits are compared within one."""
    points = [
        *made_up.pair_points([(made_up.CLIMBER, made_up.SITTER)], run="first"),
        *made_up.pair_points([(made_up.CLIMBER, made_up.SITTER)], run="second"),
        *made_up.pair_points([(made_up.HOG, made_up.HOG)], run="first"),
    ]
    rows = make_rows(make_pairs(points, SOLOS)[0], PROFILES)
    assert np.bincount(rows.pair).tolist() == [20, 6]
    assert np.bincount(rows.measurement).tolist() == [10, 10, 6]


def test_rows_of_a_job_and_a_part_of_them() -> None:
    rows = rows_of((made_up.CLIMBER, made_up.SITTER), (made_up.HOG, made_up.CLIMBER))
    assert rows.of("climber").all()
    assert rows.of("hog").sum() == 10
    part = rows.take(rows.of("hog"))
    assert len(part) == 10
    assert part.jobs == ["climber", "hog"]
    np.testing.assert_array_equal(part.speed_a, rows.speed_a[rows.of("hog")])


def test_pairs_without_a_profile_are_no_rows() -> None:
    """A reference on the whole GPU is enough for a speed, but not for features below a profile."""
    pairs, _ = make_pairs(made_up.pair_points(), SOLOS)
    some = {key: profile for key, profile in PROFILES.items() if key[0] != "hog"}
    rows = make_rows(pairs, some)
    assert rows.jobs == ["climber", "middle", "sitter", "slow"]
    some["hog", made_up.GPU_MODEL] = profile("hog", None, (30, 100), gpu_model=made_up.GPU_MODEL)
    within = [p for p in made_up.pair_points(run="within") if min(p.shares_percent) >= 30]
    both = make_pairs([*made_up.pair_points(), *within], SOLOS, full=False)[0]
    rows = make_rows(both, some)
    assert set(rows.run[rows.of("hog")]) == {"within"}
    with pytest.raises(InputError, match="no measured pair has profiles of both"):
        make_rows(pairs, {})


def test_profiles_take_doubtful_points_only_where_there_are_no_others() -> None:
    """A share that failed its cross-check once is taken from its other window."""
    solos = [p for p in SOLOS if p.job == "hog"]
    wrong = [
        dataclasses.replace(
            p, rate=p.rate * 1.05, run="again", flags=("not-settled",), started_at="2026-02-01T00Z"
        )
        for p in solos
    ]
    only_doubtful = [p for p in solos if p.share_percent != 10]
    profile = make_profiles([*only_doubtful, *wrong])["hog", made_up.GPU_MODEL]
    assert profile.values["rate"][0] == pytest.approx(1.05 * solos[0].rate)
    assert profile.values["rate"][1:] == pytest.approx([p.rate for p in solos[1:]])
