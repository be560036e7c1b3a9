"""A pair to be launched: its split by the model, or what to expect of a split that is given."""

from collections.abc import Callable
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from advised import (
    CARD,
    UUID,
    gives,
    launch,
    launch_set,
    model,
    points_file,
    settings_of,
    solo_points,
)
from made_up_profiles import profile

from advisor.core.gpu import EQUAL, UNCAPPED, Gpu, Split, without_limits
from advisor.core.job import Job
from advisor.decide.limits import Request
from advisor.errors import InputError, ModelError, NoSplitError
from advisor.launch.spec import LaunchPart, LaunchSet
from advisor.predict.profiles import Serving
from advisor.settings import Settings
from advisor.wire.requests import JobRequest, LaunchRequest
from advisor_advice.forecasting import better, recommended, renewed, with_forecast, with_kept
from advisor_advice.launching import ResolvedLaunch
from advisor_data import open_store
from advisor_data.bundled import bundled_solo_points
from advisor_models.registry import Registry

A, B = (Job(name=name, command=("true",)) for name in "ab")
BEST, NEAR = Split((30.0, 70.0)), Split((40.0, 60.0))
UNCAPPED3 = without_limits("uncapped", 3)
MODEL = model({BEST: (0.6, 0.9, 350.0), EQUAL: (0.5, 0.5, 300.0), UNCAPPED: (0.5, 0.6, 320.0)})
SERVED = {"offered_rate": 100.0, "latency_p99_ms": 8.0}

Use = Callable[[Any], None]


@pytest.fixture(autouse=True)
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """What makes a model the one in use; `MODEL` is at first."""

    def used(found: Any) -> None:
        monkeypatch.setattr(Registry, "open_champion", gives(found))

    used(MODEL)
    return used


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A host without a store, at which any job may be slow."""
    return settings_of(tmp_path, ADVISOR_MIN_SPEED="0")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return points_file(tmp_path)


def wanted(file: Path | None, *jobs: JobRequest, **fields: Any) -> ResolvedLaunch:
    """A launch of `a` and `b`, or of jobs with limits."""
    seen = fields.pop("seen", None)
    asked = LaunchRequest.of(*(jobs or ("a", "b")), **fields)
    return ResolvedLaunch(request=asked, profiles=file, card=seen)


def test_another_demand_has_another_forecast_and_may_break_a_promise(settings: Settings) -> None:
    parts = tuple(
        LaunchPart(job=Job(name=name, command=("true",)), min_speed=least, solo_rate=rate)
        for name, least, rate in (("bert-serve-30", 0.6, 2500.0), ("resnet50-train", 0.4, 3000.0))
    )
    gpu = Gpu(uuid="GPU-9", model="NVIDIA H200", units_total=132)
    forecast, broken = renewed(LaunchSet(split=EQUAL, parts=parts), (800.0, None), gpu, settings)
    assert [round(job.solo_rate) for job in forecast.jobs] == [800, 3000], "on its host"
    assert [round(job.rate.value) for job in forecast.jobs] == [400, 1500]
    assert broken == ("bert-serve-30 at 0.50 of its speed, below 0.60",)


def test_jobs_that_are_faster_here_draw_more(settings: Settings) -> None:
    """By the law at their rates alone, whose ranges hold what is not known of the host."""
    names = ("albert-train-b2", "bert-train-b2", "resnet50-infer-b2")
    gpu = Gpu(uuid="GPU-9", model="NVIDIA H200", units_total=132)
    parts = tuple(LaunchPart(job=Job(name=name, command=("true",))) for name in names)
    there, _ = renewed(LaunchSet(split=UNCAPPED3, parts=parts), (None,) * 3, gpu, settings)
    rates = [1.5 * job.solo_rate for job in there.jobs]
    faster = tuple(
        replace(p, solo_rate=r, host_spread=0.2) for p, r in zip(parts, rates, strict=True)
    )
    here, broken = renewed(LaunchSet(split=UNCAPPED3, parts=faster), (None,) * 3, gpu, settings)
    assert [job.solo_rate for job in here.jobs] == pytest.approx(rates)
    assert here.power_w.value > 1.15 * there.power_w.value
    for job, before in zip(here.jobs, there.jobs, strict=True):
        assert job.rate.high / job.rate.low > 1.2 * before.rate.high / before.rate.low
    assert here.energy_saved
    assert there.energy_saved
    assert broken == ()
    assert here.energy_saved.value < there.energy_saved.value


HERE = Gpu(uuid=UUID, model=CARD, units_total=132)


def running(split: Split, **part: Any) -> LaunchSet:
    """`a` and `b`, or `a` alone, which may be started again; `a` is twice as fast here."""
    known: dict[str, Any] = {"solo_power_w": 400.0, "idle_power_w": 80.0, **part}
    parts = tuple(
        LaunchPart(job=replace(job, restartable=True), solo_rate=rate, **known)
        for job, rate, _ in zip((A, B), (200.0, 100.0), split.shares, strict=False)
    )
    return LaunchSet(split=split, parts=parts, alone_s=6.0)


@pytest.fixture
def profiled(settings: Settings) -> Settings:
    with open_store(None, settings.home) as store:
        store.add([*solo_points("a"), *solo_points("b")])
    return settings


def test_a_split_that_does_more_beyond_its_range_is_offered(profiled: Settings, use: Use) -> None:
    """`a` draws at most 700 W at its rate here, for 400 W by the profile; 10 % on both sides."""
    use(model({BEST: (0.6, 0.9, 330.0), EQUAL: (0.5, 0.5, 300.0)}))
    offer, made = better(running(EQUAL, min_speed=0.5), (), HERE, profiled)
    assert (offer.split, offer.refused) == ("30/70", None)
    assert offer.text == "29 % more work per joule (5 to 58)"
    assert made and made.forecast  # noqa: PT018 both narrow the types
    assert (made.split, made.alone_s) == (BEST, None)
    assert [(part.units, part.share_rate, part.min_speed) for part in made.parts] == [
        (38, 60.0, 0.5), (92, 70.0, 0.5),
    ]  # fmt: skip
    assert [job.rate.value for job in made.forecast.jobs] == pytest.approx([120, 90])


WHOLE = Split((100.0,))


@pytest.mark.parametrize(
    ("pair", "made", "said"),
    [
        (running(BEST), None, "they run at the best split that is known: 30/70"),
        (running(NEAR), None, "30/70 is not known to do more: 13 % more work per joule (-7 to 38)"),
        (running(EQUAL, min_speed=0.7), None,
         "no split of them saves anything and keeps all limits"),
        # At 30 % it draws 190 W for 0.3 of the rate, on the whole GPU 400 W for all of it.
        (running(Split((30.0,))), WHOLE, "58 % more work per joule"),
        (running(Split((90.0,))), None, "100 is not known to do more"),
        (running(replace(WHOLE, sharing="uncapped")), None, "100 is not known to do more"),
    ],
)  # fmt: skip
def test_another_split_is_offered_or_not_for_a_reason(
    pair: LaunchSet, made: Split | None, said: str, profiled: Settings, use: Use
) -> None:
    """A job that is left under a limit is offered the whole GPU."""
    if pair.split == NEAR:
        use(model({BEST: (0.6, 0.9, 350.0), NEAR: (0.5, 0.6, 300.0)}))
    offer, found = better(pair, (), HERE, profiled)
    assert (found and found.split) == made
    assert (offer.refused or offer.text).startswith(said)
    assert bool(offer.refused) is (made is None)


def test_what_a_launch_has_seen_of_its_jobs_may_speak_for_another_split(
    profiled: Settings, use: Use
) -> None:
    """Nothing of it is in the store yet."""
    use(model({BEST: (0.55, 0.7, 320.0), EQUAL: (0.5, 0.6, 300.0)}))
    pair = running(EQUAL)
    assert better(pair, (), HERE, profiled)[1] is None
    seen = launch(gpu_uuid=UUID, rate_1=25.0, rate_2=30.0, power_w=300.0)
    offer, made = better(pair, [seen], HERE, profiled)
    assert (made and made.split, offer.refused) == (BEST, None)


def test_limits_of_those_that_run_are_those_of_a_join() -> None:
    """The stricter one of each; what was not asked for bounds nothing."""
    asked = Request(min_speed={"a": 0.2, "c": 0.5}, max_p99_ms={"b": 90.0}, max_power_w=650.0)
    first = LaunchPart(job=A, min_speed=0.4, max_power_w=600.0)
    kept = with_kept(asked, [first, LaunchPart(job=B, max_p99_ms=50.0)])
    assert kept.min_speed == {"a": 0.4, "c": 0.5}
    assert (kept.max_p99_ms, kept.max_power_w) == ({"b": 50.0}, 600.0)
    assert with_kept(asked, [LaunchPart(job=A), LaunchPart(job=B)]) == asked
    # Five times what it is alone, which nobody asked for.
    serving = Serving(offered_rate=10.0, rate_noise=None, latency_p99_ms=((100.0, 12.0),))
    assert [
        with_kept(
            Request(), [LaunchPart(job=B, max_p99_ms=most_ms)], [profile("b", serving=serving)]
        ).max_p99_ms
        for most_ms in (60.0, 50.0)
    ] == [{}, {"b": 50.0}]


def test_the_recommended_split_is_launched(file: Path, settings: Settings) -> None:
    """With what profiles know of each job, and all that the model expects."""
    ((pair, notes),) = recommended([A, B], wanted(file), settings)
    assert (pair.split, [job.name for job in pair.jobs]) == (BEST, ["a", "b"])
    of_parts = [(p.solo_rate, p.share_rate, p.solo_power_w, p.idle_power_w) for p in pair.parts]
    assert of_parts == [(100.0, 30.0, 400.0, 80.0), (100.0, 70.0, 400.0, 80.0)]
    assert [part.job.memory_mib for part in pair.parts] == [1001, 1001]
    told = pair.forecast
    assert told and told.energy_saved  # noqa: PT018 both narrow the types
    assert (told.model_version, told.coverage) == (MODEL.manifest.version, 0.9)
    # Alone under its limit: 0.3 of the rate at 190 W, 0.7 of it at 310 W.
    assert [(job.rate.value, job.solo_rate, job.rest_energy_saved) for job in told.jobs] == [
        pytest.approx((60, 100, 1 - 190 / 120)), pytest.approx((90, 100, 1 - 310 / 280)),
    ]  # fmt: skip
    gains = (told.power_w.value, told.work_per_joule.value, told.energy_saved.value)
    assert gains == pytest.approx((350, 1.5 / 350, 1 - 350 / 600))
    assert any(text.startswith("no check of SM counts") for text in notes)


def test_limits_of_one_job_count_for_its_own_pair_alone(file: Path, settings: Settings) -> None:
    others = ((JobRequest(job="c", min_speed=0.9), JobRequest(job="d")),)
    ((pair, _),) = recommended([A, B], wanted(file, then=others), settings)
    assert pair.split == BEST
    fast = [JobRequest(job=job, min_speed=0.9) for job in "ab"]
    with pytest.raises(NoSplitError, match="no split of a and b on the Card keeps the limits"):
        recommended([A, B], wanted(file, *fast), settings)


@pytest.mark.parametrize(
    ("least", "words"),
    [
        (
            {"seen": Gpu(uuid="GPU-9", model=CARD, units_total=132, memory_mib=1900)},
            "keeps the limits",
        ),
        ({"memory_mib": 1900.0}, r"nearest is .*: both need 2001 MiB of memory"),
    ],
)
def test_too_little_memory_is_no_launch(
    file: Path, settings: Settings, least: dict[str, Any], words: str
) -> None:
    """That of the card that was seen counts, and what was asked for."""
    with pytest.raises(NoSplitError, match=words):
        recommended([A, B], wanted(file, **least), settings)


def test_jobs_that_should_not_share_are_told_what_it_would_cost(
    file: Path, settings: Settings, use: Use
) -> None:
    """And how to share all the same, at the best of the splits that keep the limits."""
    use(model({EQUAL: (0.45, 0.45, 400.0)}))
    with pytest.raises(NoSplitError) as raised:
        recommended([A, B], wanted(file), settings)
    error = raised.value
    assert error.what == "a and b should not share the Card"
    assert (error.why, error.fix) == (
        "with 100/46 the same work takes as much energy and as much GPU time, against a GPU for "
        "each (objective energy-efficiency)",
        "give each a GPU of its own, or share it anyway: --split 100/46",
    )


def test_a_latency_that_nobody_has_is_of_queues_no_matter(
    tmp_path: Path, settings: Settings
) -> None:
    """A pair of a queue that serves nothing is not held to what is for those that serve."""
    serving = points_file(tmp_path, solo_points("a", **SERVED), solo_points("b"))
    behind = ((JobRequest(job="c"), JobRequest(job="d")),)
    (tmp_path / "plain").mkdir()
    plain = points_file(tmp_path / "plain")
    ((pair, _),) = recommended([A, B], wanted(plain, max_p99_ms=9.0, then=behind), settings)
    assert pair.split == BEST
    with pytest.raises(InputError, match="no latency of a or b was measured"):
        recommended([A, B], wanted(plain, max_p99_ms=9.0), settings)
    least = (JobRequest(job="a", min_speed=0.0), JobRequest(job="b"))
    ((kept, _),) = recommended([A, B], wanted(serving, *least, max_p99_ms=80.0), settings)
    assert kept.split == BEST
    promised = [replace(A, max_p99_ms=7.0), B]
    for jobs, late in (
        ([A, B], wanted(serving, *least, max_p99_ms=7.0)),
        ([A, B], wanted(serving, *least, max_p99_ms=7.0, then=behind)),
        ([A, B], wanted(serving, replace(least[0], max_p99_ms=7.0), least[1])),
        (promised, wanted(serving, *least)),
    ):
        with pytest.raises(NoSplitError, match="above 7 ms"):
            recommended(jobs, late, settings)
    late = replace(least[0], max_p99_ms=80.0)
    assert recommended(promised, wanted(serving, late, least[1]), settings)[0][0].split == BEST


def test_where_nothing_of_sharing_is_kept_the_nearest_way_is_named(
    file: Path, settings: Settings, use: Use
) -> None:
    """With its worst, and one after the other is none of the ways of sharing."""
    use(model({BEST: (0.585, 0.9, 350.0), EQUAL: (0.6, 0.6, 408.0)}))
    with pytest.raises(NoSplitError) as raised:
        recommended([A, B], wanted(file, min_speed=0.58, max_power_w=400.0), settings)
    error = raised.value
    assert error.what == "no split of a and b on the Card keeps the limits"
    assert error.why.startswith(
        "nearest is 50/50: a keeps 58 % of its speed alone with a probability of 85.1 %"
    )
    assert "; both draw 408 W, at most 400 W are allowed" in error.why
    assert "; accept it with --min-speed " in error.fix
    use(model({}))
    with pytest.raises(NoSplitError) as raised:
        recommended([A, B], wanted(file, min_speed=0.9), settings)
    assert raised.value.fix.startswith("give each a GPU of its own, or take it: --split ")


@pytest.mark.parametrize("split", [without_limits("time-sliced"), Split((50.0, 90.0))], ids=str)
def test_turns_and_limits_that_overlap_are_predicted_by_physics(
    split: Split, file: Path, settings: Settings, tmp_path: Path, use: Use
) -> None:
    turns = launch_set(split)
    pair, notes = with_forecast(turns, wanted(file), settings)
    assert notes == ()
    assert pair.forecast
    assert pair.forecast.model_version == "physics"
    assert sum(job.rate.value for job in pair.forecast.jobs) < 200
    use(model())
    points = [solo_points(job, idle_power_w=None) for job in "ab"]
    pair, notes = with_forecast(turns, wanted(points_file(tmp_path, *points)), settings)
    assert pair.forecast is None
    assert notes[0].startswith("no forecast: ")
    assert [part.solo_rate for part in pair.parts] == [100.0, 100.0]


def test_three_jobs_run_as_advice_for_sets_says(tmp_path: Path, settings: Settings) -> None:
    """With what profiles know and physics expects of each; where no way pays, nothing starts."""
    path = points_file(tmp_path, *[solo_points(job, power_limit_w=None) for job in "abc"])
    jobs = [A, B, Job(name="c", command=("true",))]
    ((group, notes),) = recommended(jobs, wanted(path, *map(_asked, "abc")), settings)
    assert (len(group.split.shares), [part.solo_rate for part in group.parts]) == (3, [100.0] * 3)
    assert group.forecast
    assert (group.forecast.model_version, len(group.forecast.jobs)) == ("physics", 3)
    assert any("physics fitted to measured sets" in note for note in notes)
    given, _ = with_forecast(launch_set(group.split, *jobs), wanted(path), settings)
    assert given.forecast == group.forecast
    fast = [replace(_asked(job), min_speed=1.0) for job in "abc"]
    with pytest.raises(NoSplitError, match="no split of a, b and c on the Card keeps the limits"):
        recommended(jobs, wanted(path, *fast), settings)
    much = replace(wanted(path, *map(_asked, "abc")).request, min_gain=0.9)
    with pytest.raises(NoSplitError, match="a, b and c should not share the Card") as raised:
        recommended(jobs, replace(wanted(path), request=much), settings)
    assert "share it anyway: --split" in (raised.value.fix or "")


def _asked(job: str) -> JobRequest:
    return JobRequest(job=job)


def test_a_model_that_cannot_say_is_no_reason_not_to_launch(
    file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Registry) -> Any:
        raise ModelError("the model is damaged")

    monkeypatch.setattr(Registry, "open_champion", broken)
    pair, notes = with_forecast(launch_set(EQUAL), wanted(file), settings)
    assert notes == ("no forecast: the model is damaged.",)
    assert (pair.forecast, pair.parts[0].solo_rate) == (None, 100.0)


def test_jobs_without_a_profile_have_no_forecast(settings: Settings, tmp_path: Path) -> None:
    asked = launch_set(EQUAL)
    pair, (note,) = with_forecast(asked, wanted(points_file(tmp_path, solo_points("a"))), settings)
    assert pair == asked
    assert note.startswith("no forecast: there is no job b")


def test_results_on_the_whole_gpu_are_handed_on(tmp_path: Path, settings: Settings) -> None:
    """Not those of another program, and that it is another one is said."""
    said = {"results": "right", "reported": "48=10.93"}
    points = (
        solo_points("a", job_hash=A.job_hash, **said), solo_points("b", job_hash="other", **said),
    )  # fmt: skip
    pair, notes = with_forecast(launch_set(EQUAL), wanted(points_file(tmp_path, *points)), settings)
    assert [part.reported for part in pair.parts] == ["48=10.93", None]
    assert [note for note in notes if "changed" in note] == [
        "the job file of b has changed since it was profiled: advisor profile b"
    ]


def test_below_the_smallest_share_no_rate_is_known(
    tmp_path: Path, settings: Settings, use: Use
) -> None:
    use(model())
    few = [p for p in solo_points("a") if p.share_percent >= 60]
    asked = wanted(points_file(tmp_path, few, solo_points("b")))
    pair, _ = with_forecast(launch_set(without_limits("time-sliced")), asked, settings)
    assert pair.parts[0].share_rate == 100.0
    first, second = _known_at(EQUAL, asked, settings).parts
    assert (first.share_rate, second.share_rate) == (None, 50.0)
    assert _known_at(Split((60.0, 40.0)), asked, settings).parts[0].share_rate == 60.0


def _known_at(split: Split, asked: ResolvedLaunch, settings: Settings) -> LaunchSet:
    return with_forecast(launch_set(split), asked, settings)[0]


def test_a_job_that_stands_still_saves_nothing_that_json_could_tell(
    file: Path, settings: Settings, use: Use
) -> None:
    use(model({EQUAL: (0.0, 0.0, 300.0)}))
    pair, _ = with_forecast(launch_set(EQUAL), wanted(file), settings)
    assert pair.forecast
    assert pair.forecast.energy_saved is None


def test_rates_of_another_hosts_profile_may_be_what_hosts_differ_by(
    tmp_path: Path, settings: Settings
) -> None:
    """They hold 1.43 times; on a card beside the profiled one all stays as it is.

    Watts and energy for work by the profiles' rates are as much less sure.
    """
    few, wide = [solo_points(job, sm_active_percent=30.0) for job in "ab"], list[list[float]]()
    path = points_file(tmp_path, *few)
    for cards, is_foreign in ((("GPU-far", UUID), False), (("GPU-far", "GPU-2"), True)):
        seen = Gpu(uuid=cards[0], model=CARD, beside=cards[1:])
        pair, _ = with_forecast(launch_set(EQUAL), wanted(path, seen=seen), settings)
        assert [part.host_spread > 0 for part in pair.parts] == [is_foreign] * 2
        assert pair.forecast
        rate = pair.forecast.jobs[0].rate
        assert (rate.value, pair.parts[0].solo_rate) == (pytest.approx(50.0), pytest.approx(100.0))
        assert (rate.high > 1.43 * rate.value) == is_foreign
        assert pair.forecast.energy_saved
        figures = pair.forecast.power_w, pair.forecast.energy_saved
        wide.append([high - low for _, low, high in map(astuple, figures)])
    assert all(foreign > own for own, foreign in zip(*wide, strict=True))
    assert wide[1][0] > 1.5 * wide[0][0]
    with open_store(None, settings.home) as store:
        store.add([replace(few[0][-1], gpu_uuid="GPU-2", rate=143.0)])
    pair, _ = with_forecast(launch_set(EQUAL), wanted(path, seen=seen), settings)
    faster, other = (part.solo_rate or 0.0 for part in pair.parts)
    assert 100 == other < faster < 143


@pytest.mark.parametrize(
    ("filler", "job"), [("triad", "vit-train-b2"), ("matmul-bf16", "albert-train-b2")]
)
def test_on_a_slower_host_a_filler_leaves_a_job_the_rate_it_leaves_anywhere(
    filler: str, job: str, settings: Settings
) -> None:
    """As the law says of it at its rate there: it does not lose twice what the host takes.

    The same with `--alone`. What was measured of the two elsewhere was at another rate.
    """
    jobs = [Job(name=name, command=("true",)) for name in (job, filler)]
    asked = partial(wanted, None, _asked(job), _asked(filler))
    cards = Gpu(uuid="GPU-9", model="NVIDIA H200", units_total=132)
    anywhere, _ = with_forecast(launch_set(UNCAPPED, *jobs), asked(), settings)
    slow = [
        replace(point, gpu_uuid="GPU-9", rate=0.5 * point.rate, run=f"here-{n}")
        for n in range(20)
        for point in bundled_solo_points({job})
        if (point.share_percent, point.gpu_model) == (100.0, cards.model)
    ]
    with open_store(None, settings.home) as store:
        store.add(slow)
    here, _ = with_forecast(launch_set(UNCAPPED, *jobs), asked(seen=cards), settings)
    assert anywhere.forecast
    assert here.forecast
    before, after = (pair.forecast.jobs[0] for pair in (anywhere, here) if pair.forecast)
    assert after.solo_rate < 0.6 * before.solo_rate
    assert 0.7 * before.rate.value < after.rate.value < before.rate.value
    alone, _ = renewed(here, (None, None), cards, settings)
    assert alone.jobs[0].rate.value == pytest.approx(after.rate.value)
