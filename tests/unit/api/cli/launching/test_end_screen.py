"""The end of a launch: what it took beside what was predicted, and whether that counts."""

from dataclasses import replace

import pytest

from advisor.core.interval import Interval
from advisor.core.objectives import NO_PRICES, Prices
from advisor.core.observations import Observation, ObservedPart
from advisor.launch.records.spec import Forecast, JobForecast
from advisor.launch.records.status import JobStatus, LaunchStatus
from advisor_cli.console import print_screen
from advisor_cli.launch_text import end_screens

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
STATUS = LaunchStatus(
    launch_id="20261125-030728-cb7096", state="finished", updated_at="", gpu_model="NVIDIA H200",
    jobs=(
        JobStatus(job="train", rate_unit="images", share_percent=50, outcome="finished",
                  exit_code=0, steps=119_000),
        JobStatus(job="score", rate_unit="images", share_percent=50, outcome="finished",
                  exit_code=0, steps=72_000),
    ),
    forecast=Forecast(
        model_version="m", coverage=0.9, work_per_joule=Interval(0.003, 0.002, 0.004),
        jobs=(
            JobForecast(rate=Interval(25.5, 20, 40), solo_rate=50),
            JobForecast(rate=Interval(12.5, 10, 20), solo_rate=25),
        ),
        power_w=Interval(310, 281, 336),
    ),
)  # fmt: skip


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")


def printed(
    capsys: pytest.CaptureFixture[str],
    status: LaunchStatus,
    *seen: Observation,
    prices: Prices = NO_PRICES,
) -> list[str]:
    for screen in end_screens(status, seen, prices):
        print_screen(screen)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    return lines


def test_everything_that_a_person_asks(capsys: pytest.CaptureFixture[str]) -> None:
    """Energy, work, jobs, results, and better or worse than predicted, in nine lines of 80."""
    lines = printed(capsys, STATUS, SEEN)
    assert lines == [
        "FINISHED after 1 h 2 min: train and score at 66 + 66 of 132 SMs.",
        "  Energy  384 Wh; one after the other 474 Wh: 90.1 Wh saved (19 %, 13 predicted)",
        "  Work    1.31x an hour (1.01 predicted): 1 h 2 min instead of 1 h 21 min",
        "  Each    train 65 % of its speed (51 predicted), 119,000 images, exit 0",
        "          score 66 % of its speed (50 predicted), 72,000 images, exit 0",
        "  Results as on the whole GPU; limits held all the time",
        "  Model   better than predicted; power 372 W, not 281 to 336. The next answer",
        "          for these jobs takes it in.",
        "  Again   advisor launch train score --split 50/50",
        "  Details advisor launches show 20261125-030728-cb7096",
    ]


def test_who_joined_is_told_beside_what_was_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    """When, at which speed, and at which power of all; the stretch of before is no part of it."""
    third = replace(
        STATUS.jobs[0], job="third", share_percent=30, outcome="hung", exit_code=None,
        joined_at="2026-11-25T03:30:00+00:00", ended_at="2026-11-25T04:00:00+00:00",
    )  # fmt: skip
    part = replace(TRAIN, job="third", share_percent=30, rate=20.0, predicted_rate=22.0)
    later = replace(
        SEEN, stretch=1, parts=(TRAIN, SCORE, part), power_w=500.0, predicted_power_w=480.0
    )
    stopped = replace(STATUS.jobs[1], outcome="stopped", ended_at="2026-11-25T05:00:00+00:00")
    status = replace(STATUS, jobs=(STATUS.jobs[0], stopped, third))
    lines = printed(capsys, status, SEEN, replace(later, stretch=1))
    assert lines[6:10] == [
        "  Moves   03:30:00 third joined with 30 %",
        "          04:00:00 third left: hung",
        "  Joined  third 40 % of its speed (44 predicted), 119,000 images, hung; all draw",
        "          500 W (480 predicted)",
    ]


def test_latency_of_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    served = replace(SEEN, parts=(replace(TRAIN, latency_p99_ms=41.26), SCORE))
    lines = printed(capsys, STATUS, served)
    assert lines[3:5] == [
        "  Each    train 65 % of its speed (51 predicted), p99 41.3 ms, 119,000 images,",
        "          exit 0",
    ]


def test_price_only_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the GPU hours that it held and the energy that it took."""
    lines = printed(capsys, STATUS, SEEN, prices=Prices(gpu_hour=2.5, kwh=0.15))
    (price,) = [line for line in lines if line.startswith("  Price")]
    assert price == "  Price   24 % less: 2.64 instead of 3.46 (2.5 a GPU hour, 0.15 a kWh)"


def test_rest_of_one_job_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """What the job that went on did and drew is in time and energy."""
    rest = replace(TRAIN, rest_rate=40.0)
    seen = replace(
        SEEN, parts=(rest, SCORE), rest_s=1800.0, rest_energy_j=150 * HOUR_S,
        energy_saved_to_end=-0.05,
    )  # fmt: skip
    text = " ".join(" ".join(printed(capsys, STATUS, seen)).split())
    assert "FINISHED after 1 h 32 min" in text
    assert "25.4 Wh more (5 %, while all ran 19 % less, 13 % less predicted)" in text
    # 1.31 of 62 minutes, and 0.8 of half an hour.
    assert "1.31x an hour while all ran (1.01 predicted): 1 h 32 min instead of 1 h 45 min" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"overlap_s": 7.0}, "Later answers leave it out: under 8 s together."),
        ({"flags": ("limit-broken",)}, "a limit was BROKEN"),
        ({"flags": ("limit-broken",)}, "Later answers leave it out: limit-broken."),
        ({"energy_saved": 0.05}, "worse than predicted"),
        ({"energy_saved": 0.133, "power_w": 310.0}, "as predicted. The next answer"),
        ({"energy_j": None}, "Energy not read"),
        ({"mode": "uncapped"}, "train and score without limits."),
        ({"mode": "uncapped"}, "no limits were set"),
    ],
)
def test_what_differs_is_said(
    capsys: pytest.CaptureFixture[str], change: dict[str, object], said: str
) -> None:
    """Nothing is claimed that the record does not hold."""
    lines = printed(capsys, STATUS, replace(SEEN, **change))  # type: ignore[arg-type]
    assert said in " ".join(" ".join(lines).split())


def test_jobs_without_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    """Rates and counts, and that nothing can be said against one after the other."""
    blank = {"solo_rate": None, "solo_power_w": None, "predicted_rate": None}
    parts = tuple(replace(part, **blank) for part in SEEN.parts)  # type: ignore[arg-type]
    nothing = {"energy_saved": None, "energy_saved_to_end": None, "predicted_energy_saved": None}
    seen = replace(SEEN, parts=parts, **nothing)  # type: ignore[arg-type]
    lines = printed(capsys, replace(STATUS, forecast=None), seen, prices=Prices(gpu_hour=1))
    text = " ".join(" ".join(lines).split())
    assert "384 Wh; one after the other is not known: not every job has a profile" in text
    assert "train 32.5 images/s, 119,000 images, exit 0" in text
    assert "nothing was predicted. Later answers take it in once each job has a profile." in text
    assert not {"Work", "Price"} & {line.split()[0] for line in lines}


def test_failed_launch_names_its_cause(capsys: pytest.CaptureFixture[str]) -> None:
    """With each job's error; without an observation there is nothing else to say."""
    jobs = (replace(STATUS.jobs[0], outcome="failed", exit_code=3, error="bad checkpoint"),)
    status = replace(STATUS, state="failed", code="job", cause="train failed", jobs=jobs)
    assert printed(capsys, status) == [
        "FAILED: nothing ran together.",
        "  Cause   job: train failed",
        "          train failed: bad checkpoint",
        "  Details advisor launches show 20261125-030728-cb7096",
    ]


def test_pair_of_one_job_and_a_queue(capsys: pytest.CaptureFixture[str]) -> None:
    """Each pair has its lines; of pairs before the last nobody knows counts and exit codes."""
    parts = (TRAIN, replace(TRAIN, share_percent=30, units=40, rate=20.0))
    twice = replace(SEEN, parts=parts, state="stopped")
    jobs = (replace(STATUS.jobs[0], share_percent=30), STATUS.jobs[0])
    assert [part.share_percent for part in twice.parts] == [50, 30]
    status = replace(STATUS, jobs=jobs[::-1], pairs=2, pair_number=1, forecast=None)
    lines = printed(capsys, status, SEEN, twice)
    heads = [line for line in lines if not line.startswith(" ")]
    assert heads == [
        "FINISHED after 1 h 2 min: score and train at 66 + 66 of 132 SMs.",
        "FINISHED after 1 h 2 min: train*2 at 66 + 40 of 132 SMs.",
    ]
    assert lines.count("  Each    score 66 % of its speed (50 predicted)") == 1
    assert "  Again   advisor launch train*2 --split 50/30" in lines


def test_copies_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """As they are asked for; what was out of the same range is said together."""
    seen = replace(SEEN, parts=(TRAIN, replace(TRAIN, rate=21.0)))
    jobs = tuple(replace(STATUS.jobs[0], job=TRAIN.job) for _ in range(2))
    said = JobForecast(rate=Interval(90.0, 80.0, 100.0), solo_rate=100.0)
    assert STATUS.forecast
    forecast = replace(STATUS.forecast, jobs=(said, said))
    text = " ".join(
        " ".join(printed(capsys, replace(STATUS, jobs=jobs, forecast=forecast), seen)).split()
    )
    assert "train*2 at 66 + 66 of 132 SMs" in text
    assert text.count("rate of train") == 1, text
    assert "and 21 images/s, not 80 to 100" in text, text


def test_three_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each."""
    third = replace(TRAIN, job="infer", units=26, share_percent=20, results="differ")
    jobs = (*STATUS.jobs, replace(STATUS.jobs[0], job="infer", share_percent=20))
    status = replace(STATUS, jobs=jobs, forecast=None)
    lines = printed(capsys, status, replace(SEEN, parts=(TRAIN, SCORE, third)))
    text = " ".join(" ".join(lines).split())
    assert "train, score and infer at 66 + 66 + 26 of 132 SMs" in text
    assert "infer DIFFER from those on the whole GPU" in text
    assert "Later answers leave it out: results were wrong." in text
