"""What a person sees of a launch."""

from dataclasses import replace
from typing import Any

from rich.console import Console

from advisor.core.interval import Interval
from advisor.launch.records.spec import Forecast, JobForecast
from advisor.launch.records.status import JobStatus, LaunchStatus
from advisor_cli.launch_text import line, show_lines, show_live, summary, table

FORECAST = Forecast(
    model_version="m",
    jobs=(
        JobForecast(rate=Interval(100, 90, 110), solo_rate=200),
        JobForecast(rate=Interval(50, 40, 60), solo_rate=100),
    ),
    power_w=Interval(500, 450, 550),
    work_per_joule=Interval(0.002, 0.0015, 0.0025),
    coverage=0.9,
    energy_saved=Interval(0.12, 0.05, 0.2),
)
JOBS = (
    JobStatus(
        job="train", rate_unit="images", share_percent=30, units_granted=38, proven=True,
        outcome="running", steps=12345, rate=80, relative_speed=0.4,
        predicted_rate=FORECAST.jobs[0].rate,
    ),
    JobStatus(
        job="infer", rate_unit="tokens", share_percent=70, outcome="waiting",
        predicted_rate=FORECAST.jobs[1].rate,
    ),
)  # fmt: skip
STATUS = LaunchStatus(
    launch_id="20260131-120000-3f2a91", state="running", updated_at="", gpu_model="NVIDIA H200",
    pairs=2, jobs=JOBS, forecast=FORECAST, power_w=450, work_per_joule=0.001, energy_saved=0.08,
    predicted_power_w=FORECAST.power_w, overlap_s=12, energy_j=5400, stranded_unit_s=76,
    warnings=("train is [slow]",),
)  # fmt: skip
FAILED = LaunchStatus(
    launch_id="x", state="failed", updated_at="", code="busy", cause="GPU 0 is taken"
)


def drawn(status: LaunchStatus, width: int = 160) -> list[str]:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table(status, width))
    return [text.rstrip() for text in captured.get().splitlines()]


def test_table_has_the_prediction_beside_what_is_observed() -> None:
    """Rate, power and work with how far each is off, and everything that is to be known."""
    lines = drawn(STATUS)
    assert lines[0] == ("20260131-120000-3f2a91 running on NVIDIA H200, pair 1 of 2, 12 s together")
    rows = {text.split()[0]: text.split() for text in lines[2:6]}
    assert rows["train"] == [
        "train", "30", "%", "38", "no", "limit", "running", "80", "images/s", "100", "-20%",
        "40", "%", "12,345",
    ]  # fmt: skip
    assert rows["infer"] == ["infer", "70", "%", "waiting", "-", "50", "0"]
    assert rows["power"] == ["power", "450", "W", "500", "-10%"]
    assert rows["energy"] == ["energy", "saved", "8.0", "%", "12.0", "%"]
    assert lines[6:] == [
        "5,400 J in 12 s together",
        "76 unit-seconds held for jobs that have ended",
        "! train is [slow]",
    ]


def test_what_is_not_known_is_told_with_its_reason_and_time() -> None:
    """In the table and in the line; a job that stalls is told likewise."""
    jobs = (
        replace(
            JOBS[0], rate=None, relative_speed=None, unread="the page is gone.",
            unread_since="2026-01-31T12:03:10.000+00:00",
        ),
        replace(JOBS[1], stalled_since="2026-01-31T12:01:00.000+00:00"),
    )  # fmt: skip
    status = replace(STATUS, jobs=jobs, unwatched_s=1.25)
    lines = drawn(status)
    assert "train: not known since 12:03:10: the page is gone." in lines
    assert "infer: stalled: no progress since 12:01:00" in lines
    assert "1.2 s between two looks at the jobs beyond 2 s" in lines
    assert "(not known since 12:03:10: the page is gone.)" in line(status)
    over = replace(status, state="finished", whole_energy_j=9000.0, starts_energy_j=600.0)
    assert "9,000 J in all, 600 of them before jobs ran" in drawn(over)


def test_what_was_observed_stays_when_it_is_over() -> None:
    """Means in the place of the last seconds, beside what was predicted."""
    ended = tuple(
        replace(job, outcome="finished", rate=None, relative_speed=None, mean_rate=90,
                mean_speed=0.45)
        for job in JOBS
    )  # fmt: skip
    status = replace(
        STATUS, state="finished", jobs=ended, power_w=None, energy_saved=None,
        mean_power_w=510, mean_energy_saved=0.1,
    )  # fmt: skip
    lines = drawn(status)
    assert "mean" in lines[1].split()
    rows = {text.split()[0]: text.split() for text in lines[2:6]}
    assert rows["train"][7:] == ["90", "images/s", "100", "-10%", "45", "%", "12,345"]
    assert rows["power"] == ["power", "510", "W", "500", "+2%"]
    assert rows["energy"] == ["energy", "saved", "10.0", "%", "12.0", "%"]


def test_a_narrow_terminal_cuts_no_number_off() -> None:
    """On 80 columns names wrap, and two columns are missing."""
    long = replace(JOBS[0], job="resnet50-train-b2", share_percent=100, rate=321.4)
    lines = drawn(replace(STATUS, jobs=(long, JOBS[1])), 80)
    assert max(map(len, lines)) <= 80
    heads, text = lines[1].split(), " ".join(lines[2].split())
    assert heads == ["share", "state", "now", "predicted", "off", "speed", "progress"]
    assert text.endswith("100 % running 321.4 images/s 100 +221% 40 % 12,345"), text
    assert "".join(row.split(" ", 1)[0] for row in lines[2:4]) == long.job


def test_who_joined_and_who_left_is_told_with_the_time() -> None:
    """In the table and in one line; what was predicted of those that began says nothing then."""
    came, went = "2026-01-31T12:00:05.100+00:00", "2026-01-31T12:00:03.100+00:00"
    left = replace(JOBS[1], outcome="finished", ended_at=went)
    third = replace(JOBS[0], job="third", joined_at=came, predicted_rate=None)
    status = replace(STATUS, jobs=(JOBS[0], left, third), predicted_power_w=None)
    lines = drawn(status)
    assert lines[9:11] == ["12:00:03 infer left: finished", "12:00:05 third joined with 30 %"]
    assert lines[6].split() == ["energy", "saved", "8.0", "%", "-"]
    assert "third 30 % (38 units) (joined 12:00:05) running" in line(status)
    over = replace(status, state="stopped", jobs=(JOBS[0], left))
    assert not any("left" in text for text in drawn(over))


def test_the_proven_bound_of_memory_is_shown() -> None:
    """Beside the units; what has not started has none yet, and none is said to be none."""
    jobs = (replace(JOBS[0], memory_limit_mib=2512), JOBS[1])
    train, infer = drawn(replace(STATUS, jobs=jobs))[2:4]
    assert "2,512 MiB" in train
    assert "limit" not in infer


def test_launch_that_never_ran_is_drawn_too() -> None:
    """Without jobs, forecast and readings there is still the cause."""
    assert "busy: GPU 0 is taken" in drawn(FAILED)
    assert line(FAILED).endswith("busy: GPU 0 is taken")


def test_lines_say_what_changed(capsys: Any) -> None:
    """The same again is not said again; the last status comes back."""
    assert show_lines(iter([STATUS, STATUS, FAILED])) is FAILED
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2
    assert "train 30 % (38 units) running 80 images/s = 40 % | infer 70 % waiting" in said[0]


def test_live_view_ends_with_the_last_status(capsys: Any) -> None:
    """It is what stays on the screen."""
    assert show_live(iter([STATUS, FAILED])) is FAILED
    assert "GPU 0 is taken" in capsys.readouterr().out


def pair(infer: dict[str, Any], train: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What two jobs did together, of which little was read."""
    rates = {"rate": None, "predicted_rate": None, "ended_first": False}
    return {
        "jobs": [{"job": "infer", **rates, **infer}, {"job": "train", **rates, **train}],
        "energy_j": 5400.0, "power_w": None, "predicted_power_w": None, "stranded_unit_s": 0.0,
        **more,
    }  # fmt: skip


def test_summary_says_how_good_the_prediction_was() -> None:
    """Where there was one; readings that are not there are left out."""
    seen = pair(
        {"rate": 44.0},
        {"rate": 80.0, "predicted_rate": 100.0},
        overlap_s=12.0,
        stranded_unit_s=76.0,
        predicted_power_w=500.0,
    )
    assert list(summary(FAILED, [seen])) == [
        "infer + train: 12.0 s together, 5,400 J",
        "  rate of train: -20.0% against the prediction",
        "  76 unit-seconds were held for jobs that had ended",
    ]


def test_summary_says_whose_energy_it_was() -> None:
    """Of each job with its bounds, and as a mean power."""
    infer, train = (
        {"energy_j": energy_j, "energy_low_j": energy_j - 100, "energy_high_j": energy_j + 100}
        for energy_j in (400.0, 5000.0)
    )
    seen = pair(infer, train, overlap_s=10.0)
    assert list(summary(FAILED, [seen])) == [
        "infer + train: 10.0 s together, 5,400 J",
        "  of that infer, estimated: 400 J (300 to 500), 40 W",
        "  of that train, estimated: 5,000 J (4,900 to 5,100), 500 W",
    ]


def test_summary_says_what_was_saved_and_what_the_end_cost() -> None:
    """For the same work, observed next to predicted, and to the end of the last job."""
    seen = pair(
        {"ended_first": True}, {}, overlap_s=3600.0, energy_j=1.8e6, power_w=500.0,
        energy_saved=0.123, predicted_energy_saved=0.14, rest_s=1800.0, rest_energy_j=630_000.0,
        rest_energy_saved=-0.09, predicted_rest_energy_saved=-0.08, energy_saved_to_end=0.05,
    )  # fmt: skip
    assert list(summary(FAILED, [seen])) == [
        "infer + train: 3600.0 s together, 1,800,000 J, 500 W",
        "  energy for the same work, against one after the other: 12.3 % less (14.0 % less was "
        "predicted)",
        "  then train went on for 1800.0 s with 630,000 J; energy for that work, against the whole "
        "GPU: 9.0 % more (8.0 % more was predicted)",
        "  energy for all of the work, to the end: 5.0 % less",
    ]
