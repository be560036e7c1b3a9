"""Which profiles are missing where jobs were profiled on different GPU models."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advised import points_file, profile, profiles, settings_of, solo_points
from small_model import make_profile

from advisor.core.records import SINGLE_WINDOW, UNCOUNTED_UNIT, WATCHED, SoloPoint
from advisor.errors import InputError
from advisor.settings import Settings
from advisor_advice.conditions import (
    ProfilesOfJob,
    all_profiles,
    find_profiles,
    local_profiles,
    no_profile,
    on_single_gpu,
)
from advisor_data import open_store
from advisor_data.bundled import GPU_MODEL as BUNDLED_MODEL, bundled_solo_points


def known(**models: str) -> dict[str, ProfilesOfJob]:
    """Jobs by name, each with profiles on GPU models, such as `a="H100 H200"`."""
    return {
        job: ProfilesOfJob({m: make_profile(job, 1, gpu_model=m) for m in names.split()})
        for job, names in models.items()
    }


@pytest.mark.parametrize(
    ("models", "wanted", "message"),
    [
        ({"a": "H200", "b": "H100"}, "H100", "no profile on H100: a. profiled were a on H200"),
        (
            {"a": "H200", "b": "H200"},
            "H100",
            "no profile on H100: a, b. profiled were a on H200; b",
        ),
        (
            {"a": "H200", "b": "H100 A100"},
            None,
            "no profile on H200: b. profiled were b on H100",
        ),
        ({"a": "H100 A100", "b": "H200"}, None, "no profile on H100: b. profiled"),
    ],
)
def test_the_missing_profile_is_named(
    models: dict[str, str], wanted: str | None, message: str
) -> None:
    """Rates of another GPU are no guess; what to measure, and where, is said."""
    with pytest.raises(InputError) as raised:
        on_single_gpu("ab", known(**models), wanted)
    text = str(raised.value)
    assert all(
        part in text
        for part in (
            message,
            f"on that GPU: advisor profile {message.split(': ')[1][0]}",
            "rates and power of a job differ between GPU models",
        )
    )


def test_a_part_of_a_name_lacks_no_profile_that_is_there() -> None:
    """Of b there is one on the GPU model that is meant; to measure it again were for nothing."""
    models = known(a="NVIDIA-H200", b="NVIDIA-H100")
    with pytest.raises(InputError, match="no profile on NVIDIA-H100: a"):
        on_single_gpu("ab", models, "h100")


def test_few_of_many_jobs_are_named() -> None:
    jobs = {f"job{n}": "H200" for n in range(9)}
    with pytest.raises(InputError, match="no profile on H100: job0, job1, job2 and 6 more"):
        on_single_gpu(list(jobs), known(**jobs), "H100")


# where profiles are looked for


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(settings_of(tmp_path), database_url=f"sqlite:///{tmp_path / 'points.db'}")


def stored(settings: Settings, *points: SoloPoint) -> None:
    with open_store(settings.database_url, settings.home) as store:
        store.add(points)


def test_points_of_a_file_go_before_stored_ones(settings: Settings, tmp_path: Path) -> None:
    stored(settings, *solo_points("a", idle_power_w=50.0), *solo_points("b"))
    file = points_file(tmp_path, solo_points("a", idle_power_w=60.0))
    found = find_profiles(["a", "b"], settings, file=file)
    assert [p.idle_power_w for p in found.profiles] == [60.0, 80.0]
    assert [p.job for p in found.profiles] == ["a", "b"]
    assert (found.bundled, found.other_models) == ((), ())
    assert find_profiles(["a", "a"], settings).a.idle_power_w == 50.0


def test_bundled_profiles_stand_in_and_are_named(settings: Settings) -> None:
    """Once each; a job's own goes before the bundled one of its name."""
    found = find_profiles(["fft", "sorting", "fft"], settings)
    assert found.bundled == ("fft", "sorting")
    assert [p.job for p in found.profiles] == ["fft", "sorting", "fft"]
    assert found.a.gpu_model == BUNDLED_MODEL
    stored(settings, *solo_points("fft", gpu_model=BUNDLED_MODEL, idle_power_w=50.0))
    own = find_profiles(["fft", "sorting"], settings)
    assert (own.bundled, own.a.idle_power_w) == (("sorting",), 50.0)


def test_the_gpu_model_of_ones_own_points_goes_before_bundled_ones(settings: Settings) -> None:
    for job in ("fft", "sorting"):
        stored(settings, *solo_points(job), *solo_points(job, gpu_model="NVIDIA H100", run="r2"))
    with pytest.raises(InputError, match="all of them were profiled on Card, NVIDIA H100"):
        find_profiles(["fft", "sorting"], settings)
    found = find_profiles(["fft", "sorting"], settings, "Card")
    assert (found.a.gpu_model, found.other_models) == ("Card", ())


def test_other_models_that_all_jobs_have_are_told(settings: Settings) -> None:
    own = {
        job: ProfilesOfJob({m: make_profile(job, 1, gpu_model=m) for m in ("H100", "H200", "X")})
        for job in "ab"
    }
    known = {job: ProfilesOfJob(of.profiles, frozenset({"H200", "X"})) for job, of in own.items()}
    found = on_single_gpu("ab", known)
    assert (found.a.gpu_model, found.other_models) == ("H100", ("H200", "X"))
    assert on_single_gpu("ab", known, "H200").other_models == ()
    assert on_single_gpu("ab", known, "H200").bundled == ("a", "b")


def test_a_job_without_enough_points_is_told_what_to_measure(
    settings: Settings, tmp_path: Path
) -> None:
    """It is known, and makes no profile; points of a file count as well."""
    stored(settings, *(p for p in solo_points("a") if p.share_percent < 100))
    with pytest.raises(InputError, match="a has no profile") as raised:
        find_profiles(["a", "fft"], settings)
    assert raised.value.steps[0] == "1. advisor profile a   # on the GPU"
    few = [p for p in solo_points("c") if p.share_percent < 100]
    with pytest.raises(InputError, match="c has no profile"):
        find_profiles(["c", "fft"], settings, file=points_file(tmp_path, few))


def test_unlike_copies_of_points_make_no_profile(settings: Settings) -> None:
    """Who may write changes no profile by a copy: the window is gone, or the job says why."""
    true = [replace(point, written_by="b") for point in solo_points("a")]
    small, *_, whole = sorted(true, key=lambda point: point.share_percent)
    half = replace(small, rate=9 * small.rate, written_by="z")
    stored(settings, *true, half)
    [left, _] = find_profiles(["a", "a"], settings).profiles
    assert small.share_percent not in left.shares
    with open_store(settings.database_url, settings.home) as store:
        store.delete([*true, half])
    stored(settings, *true, replace(whole, power_w=1.0, written_by="z"))
    with pytest.raises(InputError, match=r"copies that differ.*--written-by NAME"):
        find_profiles(["a", "fft"], settings)


def test_a_job_that_was_seen_on_the_whole_gpu_alone_is_estimated(settings: Settings) -> None:
    """In its own unit, with a mark; one with a doubtful flag, or without activity, says nothing."""
    whole = next(p for p in bundled_solo_points({"bert-train"}) if p.share_percent == 100)
    whole = replace(whole, gpu_model=BUNDLED_MODEL, job="mine", flags=())
    stored(settings, replace(whole, job="hot", flags=("heat",)), whole)
    (found,) = find_profiles(["mine"], settings).profiles
    assert (found.flags, found.whole_gpu_rate) == ((SINGLE_WINDOW,), whole.rate)
    assert (found.rate_unit, found.shares[0]) == (whole.rate_unit, 10)
    assert 0.1 < found.values["rate"][0] / whole.rate < 0.5
    stored(settings, replace(whole, job="dark", sm_active_percent=None, flags=(WATCHED,)))
    for job, why in (("hot", ""), ("dark", "the GPU's activity is missing")):
        with pytest.raises(InputError, match=f"{job} has no profile.*{why}"):
            find_profiles([job], settings)


def test_a_job_that_was_seen_once_is_known_to_compute_in_bursts(settings: Settings) -> None:
    whole = next(p for p in bundled_solo_points({"bert-train"}) if p.share_percent == 100)
    steady = replace(whole, job="steady", flags=(), gpu_busy_percent=99.0)
    pausing = replace(steady, job="pausing", gpu_busy_percent=26.0, sm_active_percent=23.0)
    stored(settings, steady, pausing)
    found = find_profiles(["steady", "pausing"], settings).profiles
    assert [profile.in_bursts for profile in found] == [False, True]


def test_a_name_that_nobody_knows_is_spelled_for_you(settings: Settings) -> None:
    stored(settings, *solo_points("matrices"))
    with pytest.raises(InputError, match="there is no job matrice") as raised:
        find_profiles(["matrice", "fft"], settings)
    assert raised.value.fix == "similar names: matrices"
    first, second = raised.value.steps
    assert first.startswith("1. advisor profile --name matrice -- COMMAND")
    assert second == "2. this command again"
    assert no_profile("zzz", ["a"]).fix == "names: advisor jobs --bundled"


def test_what_was_checked_is_of_the_profiles_gpu(settings: Settings) -> None:
    assert profiles().checked(settings) is None
    found = profiles(*[profile(job, gpu_model=BUNDLED_MODEL) for job in "ab"]).checked(settings)
    assert found
    assert (found.gpu_model, found.units_total) == (BUNDLED_MODEL, 132)
    other = [profile(job, gpu_model=BUNDLED_MODEL, units_total=99) for job in "ab"]
    assert profiles(*other).checked(settings) is None


# the idle power of profiles that lack it


NAN = float("nan")


def test_the_median_of_the_others_stands_in() -> None:
    known = [profile(job, idle_power_w=w) for job, w in zip("abc", (70.0, 80.0, 99.0), strict=True)]
    lacking = profile("d", idle_power_w=NAN)
    found, (said,) = profiles(*known, lacking, lacking).with_idle_power_filled(
        {"idle_power_w": 1.0}
    )
    assert [p.idle_power_w for p in found.profiles] == [70.0, 80.0, 99.0, 80.0, 80.0]
    assert said == ("idle_power_w is missing in the profile of d: 80 W, as in the other profiles")


def test_where_nobody_knows_nothing_is_made_up() -> None:
    found = profiles(profile("a", idle_power_w=NAN), profile("b", idle_power_w=NAN))
    assert found.with_idle_power_filled({}) == (found, ())


def test_power_of_open_jobs_is_left_to_predictors() -> None:
    """They have their own number for what was not measured; profiles that lack nothing stay."""
    known = profiles(profile("a", idle_power_w=70.0, active_idle_power_w=130.0), profile("b"))
    assert known.with_idle_power_filled({"active_idle_above_w": 36.0}) == (known, ())
    assert math.isnan(known.profiles[1].active_idle_power_w)


def seen(job: str = "mine", **changes: Any) -> SoloPoint:
    """A window of a job that was watched on the whole GPU."""
    whole = next(p for p in bundled_solo_points({"bert-train"}) if p.share_percent == 100)
    given = {"gpu_model": BUNDLED_MODEL, "job": job, "flags": (WATCHED,), "run": "seen", **changes}
    return replace(whole, **given)


def test_what_was_seen_never_moves_a_full_profile(settings: Settings) -> None:
    """Another host may be slower: rates that all speeds divide by are those that were profiled."""
    profiled = [*solo_points("mine")]
    stored(settings, *profiled)
    before = find_profiles(["mine"], settings).a
    whole = max(profiled, key=lambda p: p.share_percent)
    stored(
        settings,
        seen(gpu_model=whole.gpu_model, rate=whole.rate / 2, power_w=1.5 * (whole.power_w or 1)),
    )
    after = find_profiles(["mine"], settings).a
    for name in ("rate", "power_w"):
        assert [*after.values[name]] == [*before.values[name]]


def test_windows_that_were_seen_make_one_estimate(settings: Settings) -> None:
    """By their lengths; one that was not counted says watts, and no rate."""
    at = "2026-11-0{}T00:00:00Z".format
    short = seen(rate=10.0, power_w=300.0, window_s=60.0, started_at=at(1))
    long = seen(rate=20.0, power_w=400.0, window_s=180.0, started_at=at(2))
    uncounted: dict[str, Any] = {"rate": 1.0, "rate_unit": UNCOUNTED_UNIT, "rate_stderr": None}
    stored(settings, short, long, seen(power_w=320.0, window_s=60.0, started_at=at(3), **uncounted))
    stored(settings, seen("never", started_at=at(1), **uncounted))
    counted, never = find_profiles(["mine", "never"], settings).profiles
    assert (counted.rate_unit, counted.whole_gpu_rate) == (short.rate_unit, 17.5)
    assert counted.whole_gpu_power_w == pytest.approx((300 * 60 + 400 * 180 + 320 * 60) / 300)
    assert (never.rate_unit, never.whole_gpu_rate) == (UNCOUNTED_UNIT, 1.0)
    assert {"mine", "never", "bert-train"} <= all_profiles(settings, BUNDLED_MODEL).keys()
    assert local_profiles(settings) == {}, "an audit takes these for sure"
