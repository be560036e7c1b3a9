"""The head for jobs of which one window was seen: fitted, bundled, and asked."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from advisor.core.gpu import without_limits
from advisor.core.objectives import NORMAL_90
from advisor.core.records import PRIOR, SINGLE_WINDOW
from advisor.errors import ModelError
from advisor.predict.profiles import MEASURED_ON, Profile, kind_of, make_profiles
from advisor.predict.sets import SetPredictor
from advisor_data.bundled import bundled_set_references, bundled_solo_points
from advisor_models import single_window
from advisor_models.single_window import (
    BUSY,
    COUNTERS,
    ESTIMATED_SHARES,
    SingleWindowHead,
    bundled_head,
    estimated_profile,
    window_of,
)
from advisor_training.learners import family_of
from advisor_training.train import blind, families_left_out, fit_single_window, learnable


@pytest.fixture(scope="module")
def profiles() -> list[Profile]:
    return learnable(make_profiles([*bundled_solo_points(), *bundled_set_references()]).values())


def test_the_bundled_head_is_the_one_of_the_bundled_profiles(profiles: list[Profile]) -> None:
    """Or something was changed without `docs/measurements/sets/one_window.py --write`."""
    assert {profile.gpu_model for profile in profiles} == {*MEASURED_ON}
    fitted = SingleWindowHead(fit_single_window(profiles))
    for profile in profiles[::10]:
        window = window_of(profile)
        ours, theirs = (
            estimated_profile(window, m.estimate(window)) for m in (fitted, bundled_head())
        )
        np.testing.assert_allclose(ours.values["rate"], theirs.values["rate"], atol=1e-9)
        np.testing.assert_allclose(ours.values["power_w"], theirs.values["power_w"], rtol=1e-9)


@pytest.mark.parametrize("lacking", [(), COUNTERS[:1], COUNTERS])
def test_an_estimated_profile_is_possible_and_near_the_whole_one(
    profiles: list[Profile], lacking: tuple[str, ...]
) -> None:
    offs = list[float]()
    for whole in profiles:
        found = bundled_head().profile(blind(window_of(whole), lacking), is_server=False)
        rate, power = found.values["rate"], found.values["power_w"]
        assert (found.shares.tolist(), found.flags) == ([*ESTIMATED_SHARES, 100], (SINGLE_WINDOW,))
        assert np.diff([rate, power]).min() >= 0
        assert (rate[-1], power[-1]) == (1, pytest.approx(whole.whole_gpu_power_w))
        assert (found.values["sm_active_percent"] <= found.shares).all()
        shares = np.maximum(whole.shares[:-1], ESTIMATED_SHARES[0])
        kept = whole.values["rate"][:-1] / whole.values["rate"][-1]
        offs += np.abs(found.at(shares)["rate"] - kept).tolist()
    assert np.mean(offs) < 0.06


def test_a_card_that_draws_no_more_than_idle_is_estimated_too(profiles: list[Profile]) -> None:
    """Such as one that other jobs had warmed."""
    window = window_of(profiles[0])
    for power_w in (window.idle_power_w, 10.0):
        values = bundled_head().profile(replace(window, power_w=power_w), is_server=False).values
        assert np.isfinite([values["power_w"], values["rate"]]).all()


def test_sets_are_answered_for_from_windows(profiles: list[Profile]) -> None:
    """Without limits the law needs the whole GPU alone, so both say the same but for servers."""
    own = [p for p in profiles if p.gpu_model == "NVIDIA H200" and p.serving is None][:5]
    split = without_limits("uncapped", len(own))
    seen = [bundled_head().profile(window_of(p), is_server=False) for p in own]
    uncounted = [replace(p, kernels=None) for p in own]
    one, whole = (SetPredictor().predict(ps, [split])[0] for ps in (seen, uncounted))
    assert one.power_w.value == pytest.approx(whole.power_w.value, rel=0.05)
    for estimated, known in zip(one.parts, whole.parts, strict=True):
        assert estimated.speed.value == pytest.approx(known.speed.value, abs=0.02)


def in_ranges(whole: Profile, seen: Profile, part: float = 1.0) -> list[bool]:
    """Whether speeds and watts at shares of 20 to 80 % are in this part of their ranges."""
    shares = whole.shares[(whole.shares >= 20) & (whole.shares <= 80)]
    true, said = whole.at(shares), seen.at(shares)
    kept = np.minimum(1, true["rate"] / whole.values["rate"][-1])
    offs = np.log([kept / said["rate"], true["power_w"] / said["power_w"]])
    held: list[bool] = (np.abs(offs) <= part * NORMAL_90 * seen.doubt_at(shares)).ravel().tolist()
    return held


def test_on_a_card_that_was_not_learned_from_watts_say_nothing(profiles: list[Profile]) -> None:
    """How busy it was does, which is not how active its SMs were; ranges are wide."""
    held = list[bool]()
    for whole in (p for p in profiles if p.busy > 0):
        window = replace(window_of(whole), gpu_model="NVIDIA A30", power_limit_w=None)
        seen, hungrier = (
            bundled_head().profile(replace(blind(window, COUNTERS), power_w=w), is_server=False)
            for w in (window.power_w, 2 * window.power_w)
        )
        assert (seen.flags, seen.power_limit_w) == ((SINGLE_WINDOW, PRIOR), None)
        assert seen.values["rate"].tolist() == hungrier.values["rate"].tolist()
        assert 0 < seen.values["sm_active_percent"][-1] <= 100 * whole.busy
        assert seen.doubt_at(np.array([100.0]))[0] > 0, "what it does beside others is unsure, too"
        held += in_ranges(whole, seen)
    assert 0.75 < np.mean(held) < 0.95


def test_sms_are_active_no_longer_than_the_gpu_is_busy(profiles: list[Profile]) -> None:
    window = blind(window_of(max(profiles, key=lambda p: p.whole_gpu_power_w)), COUNTERS)
    seen = [replace(window, counters={**window.counters, BUSY: busy}) for busy in (100.0, 7.0)]
    idle, active = sorted(bundled_head().estimate(one).sm for one in seen)
    assert idle == 0.07 < 0.5 < active


@pytest.mark.slow
def test_ranges_hold_jobs_of_families_that_were_left_out(profiles: list[Profile]) -> None:
    """About nine of ten at shares of 20 to 80 %; half as wide they would not."""
    held = dict[float, list[bool]]()
    for head, own in islice(families_left_out(profiles), 0, None, 3):
        family = family_of(own[0].job)
        head.left_out = [one for one in bundled_head().left_out if one.family != family]
        for whole in own:
            seen = head.profile(window_of(whole), is_server=kind_of(whole) == "server")
            for part in (1.0, 0.5):
                held.setdefault(part, []).extend(in_ranges(whole, seen, part))
    assert np.mean(held[0.5]) < 0.8 < np.mean(held[1.0]) < 0.97


def test_a_damaged_head_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in single_window.BUNDLED.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "rate.trees").write_bytes(b"0" * 10)
    monkeypatch.setattr(single_window, "BUNDLED", tmp_path)
    with pytest.raises(ModelError, match=r"rate\.trees is not the file"):
        bundled_head.__wrapped__()
