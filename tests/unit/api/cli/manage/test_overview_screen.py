"""The overview in a terminal."""

from dataclasses import replace

import pytest
from rich.console import Console
from rich.text import Text

from advisor.core.objectives import Interval
from advisor.launch.folder import CardNow, Overview
from advisor.launch.spec import (
    Drift,
    Forecast,
    History,
    JobForecast,
    JobHistory,
    JobStatus,
    LaunchStatus,
    Ledger,
    Saved,
)
from advisor_cli.top import ASCII, BLOCKS, Letters, Scrolled, letters_of, overview_screen

AT = "2026-01-31T12:00:00+00:00"
SAVED = Saved(
    since=AT, launches=3, uncounted=1, gpu_hours=2,
    gpu_hours_unread=0, kwh=1, gpu_hours_saved=1.5, kwh_saved=0.25,
    kwh_saved_idle=None, idle_known=0, cost_saved=None,
)  # fmt: skip
JOBS = (
    JobStatus(
        job="a-server-with-a-rather-long-name", rate_unit="requests", share_percent=30,
        units_granted=38, outcome="running", rate=90, relative_speed=0.9, latency_p99_ms=21.0,
        max_p99_ms=20.0,
    ),
    JobStatus(job="train", rate_unit="steps", share_percent=70, outcome="finished", mean_speed=0.5),
)  # fmt: skip
LAUNCH = LaunchStatus(
    launch_id="20260131-110000-3f2a91", state="running", updated_at=AT, gpu_uuid="GPU-1",
    jobs=JOBS, started_at="2026-01-31T11:00:00+00:00",
    ledger=Ledger(held_s=1, energy_j=3600, alone_s=2, alone_j=7200, freed_idle_j=None),
    forecast=Forecast(
        model_version="m", coverage=0.9, power_w=Interval(300, 280, 320),
        work_per_joule=Interval(1, 1, 1),
        jobs=tuple(JobForecast(rate=Interval(80, 70, 90), solo_rate=100) for _ in JOBS),
    ),
    host="here", speed_drift=Drift(0.89, 0.79, 1.58),
)  # fmt: skip


def drawn(launch: LaunchStatus = LAUNCH, letters: Letters = BLOCKS, **changes: object) -> list[str]:
    history = History(
        started_at=AT, step_s=1, power_w=(300.0,) * 9,
        jobs=tuple(JobHistory(job=job.job, speeds=(0.5,) * 8 + (0.9,)) for job in JOBS),
    )  # fmt: skip
    card = CardNow(
        host="here", gpu_uuid="GPU-1", gpu_model="NVIDIA H100 80GB HBM3", units_total=132,
        power_w=350.0, power_limit_w=700.0, launch_id=launch.launch_id,
    )  # fmt: skip
    seen = Overview(
        at=AT, gpus=(card, replace(card, gpu_uuid="GPU-2", power_w=None, launch_id=None)),
        running=(replace(launch, history=history),),
        ended=(replace(launch, state="failed"),),
        today=SAVED, week=SAVED,
    )  # fmt: skip
    console = Console(width=80)
    with console.capture() as captured:
        console.print(overview_screen(replace(seen, **changes), "here", letters))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_it_fits_80_columns_and_says_what_it_rests_on() -> None:
    """Speed beside what was predicted, p99 beside its promise, watts beside the limit."""
    lines = drawn()
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for words in (
        "350 W of 700 W", "30 % 38 SMs", "90 % (80)", "p99 21/20 ms", "finished", "50 % (80)",
        "power not read  free", "(1 h 0 min) · 1 Wh saved · drift -11%", "1 not counted", "250 Wh",
        "█████·····", "▁▁▁▁▁▁▁█", "train: failed",
    ):  # fmt: skip
        assert words.replace("(1 h 0 min)", "(1 h)") in text, words
    assert "not known" not in text
    dark = " ".join(drawn(week=replace(SAVED, gpu_hours_unread=0.5)))
    assert "energy not known for 30 min, not saved" in dark
    assert "replayed" not in text
    assert "replayed" in drawn(replayed=True)[0]


def test_the_second_gpu_of_a_launch_is_not_free() -> None:
    both = replace(LAUNCH, beside=("GPU-2",))
    card = CardNow(
        host="here", gpu_uuid="GPU-2", gpu_model="H100", units_total=132, power_w=300.0,
        power_limit_w=700.0, launch_id=LAUNCH.launch_id,
    )  # fmt: skip
    line, *_ = (line for line in drawn(both, gpus=(card,)) if "300 W of 700 W" in line)
    assert line.endswith("300 W of 700 W  with 1")


def test_a_terminal_that_is_too_low_shows_a_part_and_says_so() -> None:
    console, screen = Console(width=40, height=5), Scrolled(Text("\n".join("abcdefgh")))

    def seen(*keys: str) -> str:
        for key in keys:
            screen.press(key)
        with console.capture() as captured:
            console.print(screen, end="")
        return captured.get().replace("\n", "").partition(":")[0]

    assert seen() == "abcdlines 1 to 4 of 8"
    assert seen("j", "\x1b[B", "k") == "bcdelines 2 to 5 of 8"
    assert seen(" ", " ") == "efghlines 5 to 8 of 8"
    assert seen("b", "b") == seen("x") == "abcdlines 1 to 4 of 8"
    screen.whole = Text("short")
    assert seen() == "short"


@pytest.mark.parametrize("sharing", ["uncapped", "time-sliced"])
def test_who_has_no_limit_is_said_to_have_none(sharing: str) -> None:
    said = {"uncapped": "no limit", "time-sliced": "time-sliced"}[sharing]
    assert any(said in line for line in drawn(replace(LAUNCH, sharing=sharing)))


def test_without_blocks_there_are_plain_letters() -> None:
    assert letters_of("ascii") is ASCII
    assert letters_of("utf-8") is BLOCKS
    assert all(line.isascii() for line in drawn(letters=ASCII))
