"""What a person sees of a launch while it runs, in lists and at its end: recorded texts."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from golden import Golden

from advisor.core.objectives import NO_PRICES, Interval, Prices
from advisor.core.records import Observation, ObservedPart
from advisor.launch.spec import Drift, Forecast, JobForecast, JobStatus, LaunchStatus
from advisor_cli.console import plain_console, print_screen
from advisor_cli.launch_text import (
    end_screens,
    line,
    show_lines,
    show_live,
    table,
)

GOLDEN = Golden("launches.txt")

HOUR_S = 3600.0
TRAIN = ObservedPart(
    job="train", share_percent=50, units=66, rate=32.5, rate_unit="images", solo_rate=50.0,
    solo_power_w=350.0, predicted_rate=25.5, results="right",
)  # fmt: skip
SCORE = replace(TRAIN, job="score", rate=16.5, solo_rate=25.0, predicted_rate=12.5)
SEEN = Observation(
    launch_id="L", parts=(TRAIN, SCORE), gpu_model="NVIDIA H200", gpu_uuid="g", units_total=132,
    power_w=372.0, energy_j=384 * HOUR_S, overlap_s=3720.0, energy_saved=0.19, state="finished",
    energy_saved_to_end=0.19, predicted_energy_saved=0.13, started_at="2026-11-25T03:07:28+00:00",
)  # fmt: skip
ENDED = JobStatus(
    job="train", rate_unit="images", share_percent=50, outcome="finished", exit_code=0,
    steps=119_000,
)  # fmt: skip
FORECAST = Forecast(
    model_version="m", coverage=0.9, work_per_joule=Interval(0.003, 0.002, 0.004),
    jobs=(
        JobForecast(rate=Interval(25.5, 20, 40), solo_rate=50),
        JobForecast(rate=Interval(12.5, 10, 20), solo_rate=25),
    ),
    power_w=Interval(310, 281, 336), energy_saved=Interval(0.12, 0.05, 0.2),
)  # fmt: skip
OVER = LaunchStatus(
    launch_id="20261125-030728-cb7096", state="finished", updated_at="", gpu_model="NVIDIA H200",
    jobs=(ENDED, replace(ENDED, job="score", steps=72_000)), forecast=FORECAST,
)  # fmt: skip
RUNS = replace(
    OVER, state="running", pairs=2, power_w=450, work_per_joule=0.001, energy_saved=0.08,
    predicted_power_w=FORECAST.power_w, overlap_s=12, energy_j=5400, stranded_unit_s=76,
    warnings=("train is [slow]",),
    jobs=(
        replace(ENDED, outcome="running", exit_code=None, share_percent=30, units_granted=38,
                proven=True, rate=20, relative_speed=0.4, predicted_rate=FORECAST.jobs[0].rate),
        replace(ENDED, job="score", outcome="waiting", exit_code=None, share_percent=70, steps=0,
                predicted_rate=FORECAST.jobs[1].rate),
    ),
)  # fmt: skip
FAILED = LaunchStatus(
    launch_id="x", state="failed", updated_at="", code="busy", cause="GPU 0 is taken"
)


def at(clock: str) -> str:
    return f"2026-11-25T{clock}.100+00:00"


def status(base: LaunchStatus, *changes: dict[str, Any], **fields: Any) -> LaunchStatus:
    """A status whose jobs have these changes, in their order; more of them are copies."""
    jobs = [*base.jobs, *base.jobs[:1] * (len(changes) - len(base.jobs))]
    changed = [replace(job, **change) for job, change in zip(jobs, changes, strict=False)]
    return replace(base, jobs=(*changed, *jobs[len(changes) :]), **fields)


def seen(*changes: dict[str, Any], **fields: Any) -> Observation:
    parts = [TRAIN, SCORE, *[TRAIN] * (len(changes) - 2)]
    changed = [replace(part, **change) for part, change in zip(parts, changes, strict=False)]
    return replace(SEEN, parts=(*changed, *parts[len(changes) :]), **fields)


BLANK: dict[str, Any] = {"solo_rate": None, "solo_power_w": None, "predicted_rate": None}
UNKNOWN: dict[str, Any] = {
    "energy_saved": None, "energy_saved_to_end": None, "predicted_energy_saved": None,
}  # fmt: skip
RANGE = JobForecast(rate=Interval(90.0, 80.0, 100.0), solo_rate=100.0)
THIRD: dict[str, Any] = {"job": "third", "share_percent": 30}

SCENES: dict[str, tuple[LaunchStatus, tuple[Observation, ...]]] = {
    "two jobs that have ended": (OVER, (SEEN,)),
    "a third that joined and hung": (
        status(
            OVER, {}, {"outcome": "stopped", "ended_at": at("05:00:00")},
            {**THIRD, "outcome": "hung", "exit_code": None, "joined_at": at("03:30:00"),
             "ended_at": at("04:00:00")},
        ),
        (SEEN, seen({}, {}, {**THIRD, "rate": 20.0, "predicted_rate": 22.0},
                    stretch=1, power_w=500.0, predicted_power_w=480.0)),
    ),
    "a server": (status(OVER, {"max_p99_ms": 50.0}), (seen({"latency_p99_ms": 41.26}),)),
    "one that went on": (
        OVER,
        (seen({"rest_rate": 40.0}, {"ended_first": True}, rest_s=1800.0,
              rest_energy_j=150 * HOUR_S, energy_saved_to_end=-0.05, rest_energy_saved=-0.09,
              predicted_rest_energy_saved=-0.08),),
    ),
    "whose energy it was": (
        OVER,
        (seen({"energy_j": 4e5, "energy_low_j": 3e5, "energy_high_j": 5e5}, stranded_unit_s=76.0,
              predicted_power_w=500.0),),
    ),
    "too short": (OVER, (seen(overlap_s=7.0),)),
    "a broken limit": (OVER, (seen(flags=("limit-broken",)),)),
    "worse than predicted": (OVER, (seen(energy_saved=0.05),)),
    "as predicted": (OVER, (seen(energy_saved=0.133, power_w=310.0),)),
    "energy not read": (OVER, (seen(energy_j=None),)),
    "without limits": (replace(OVER, sharing="uncapped"), (seen(mode="uncapped"),)),
    "no profiles": (replace(OVER, forecast=None), (seen(BLANK, BLANK, **UNKNOWN),)),
    "faster than a profile of another host": (
        status(OVER, {"mean_speed": 1.43}, {"mean_speed": 0.66}),
        (seen({"rate": 71.5}, flags=("foreign-host",), energy_saved=None,
              energy_saved_to_end=None),),
    ),
    "a failed job": (
        status(OVER, {"outcome": "failed", "exit_code": 3, "error": "bad checkpoint"},
               state="failed", code="job", cause="train failed"),
        (),
    ),
    "never ran": (FAILED, ()),
    "a queue of sets": (
        status(OVER, {}, {"job": "train", "share_percent": 30}, pairs=2, pair_number=1,
               forecast=None),
        (SEEN, seen({}, {"job": "train", "share_percent": 30, "units": 40}, state="stopped")),
    ),
    "copies out of the same range": (
        status(OVER, {}, {"job": "train"}, forecast=replace(FORECAST, jobs=(RANGE, RANGE))),
        (seen({}, {"job": "train", "rate": 21.0}),),
    ),
    "three jobs": (
        status(OVER, {}, {}, {"job": "infer", "share_percent": 20}, forecast=None),
        (seen({}, {}, {"job": "infer", "units": 26, "share_percent": 20, "results": "differ"}),),
    ),
    "two jobs that run": (RUNS, ()),
    "beside a promise that was renewed": (
        status(RUNS, {"drift": Drift(0.8, 0.78, 1.57)},
               {"drift": Drift(0.98, 0.8, 1.6), "paused": True},
               speed_drift=Drift(0.89, 0.79, 1.585), work_drift=Drift(0.953, 0.67, 1.33),
               promised_at=at("12:00:05"), promise_renewed="another demand arrives"),
        (),
    ),
    "beside its promise at the end": (
        status(OVER, {"drift": Drift(0.8, 0.78, 1.57)}, speed_drift=Drift(0.8, 0.78, 1.57),
               work_drift=Drift(0.953, 0.67, 1.33), promised_at=at("12:00:05")),
        (SEEN,),
    ),
    "unknown and stalled": (
        status(
            RUNS,
            {"rate": None, "relative_speed": None, "unread": "the page is gone.",
             "unread_since": at("12:03:10")},
            {"stalled_since": at("12:01:00")}, unwatched_s=1.25,
        ),
        (),
    ),
    "means of what has ended": (
        status(RUNS, {"rate": None, "mean_rate": 22, "mean_speed": 0.45}, state="finished",
               power_w=None, energy_saved=None, mean_power_w=510, mean_energy_saved=0.1,
               whole_energy_j=9000.0, starts_energy_j=600.0),
        (),
    ),
    "long names and a limit of memory": (
        status(RUNS, {"job": "resnet50-train-b2", "rate": 321.4, "memory_limit_mib": 2512}), (),
    ),
    "who came and left": (
        status(RUNS, {}, {"outcome": "finished", "ended_at": at("12:00:03")},
               {**THIRD, "joined_at": at("12:00:05"), "predicted_rate": None},
               predicted_power_w=None),
        (),
    ),
    "stopped together": (
        status(RUNS, {}, {"outcome": "stopped", "ended_at": at("12:00:03")}, state="stopped"), (),
    ),
}  # fmt: skip


def shown(scene: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Tables of 120 and 80 columns, the line and the last screens."""
    of, observed = SCENES[scene]
    for width in (120, 80):
        plain_console(width=width).print(table(of, width))
    print(line(of))
    for prices in (NO_PRICES, Prices(gpu_hour=2.5, kwh=0.15)) if of is OVER else (NO_PRICES,):
        for screen in end_screens(of, observed, prices):
            print_screen(screen)
    lines: Iterator[str] = (text.rstrip() for text in capsys.readouterr().out.splitlines())
    return "".join(f"{text}\n" for text in lines)


@pytest.mark.parametrize("scene", SCENES)
def test_scene(
    scene: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    GOLDEN.check(scene, shown(scene, capsys))


def test_lines_are_said_at_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_lines(iter([RUNS, RUNS, FAILED])) is FAILED
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_live_view_ends_with_the_last_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_live(iter([RUNS, FAILED])) is FAILED
    assert "GPU 0 is taken" in capsys.readouterr().out
