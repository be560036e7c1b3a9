"""What a person sees of a launch while it runs, in lists and at its end: recorded texts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from advised import settings_of
from command_line import Advisor
from golden import Golden

from advisor.core.gpu import Split
from advisor.core.job import Job
from advisor.core.objectives import NO_PRICES, POLICY, Interval, Policy, Prices
from advisor.core.records import Observation, ObservedPart
from advisor.launch.run_queue import (
    EndedJob,
    LaunchedJob,
    LaunchView,
    QueueFile,
    QueueRecord,
    open_queue,
)
from advisor.launch.spec import (
    Drift,
    Forecast,
    JobForecast,
    JobStatus,
    LaunchPart,
    LaunchSet,
    LaunchSpec,
    LaunchStatus,
)
from advisor_advice.queue import QueueLook, QueueRun
from advisor_cli.console import plain_console, print_screen
from advisor_cli.launches import (
    end_screens,
    line,
    show_lines,
    show_live,
    table,
)
from advisor_cli.run import end_screen, event_lines, run_state

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
BEGAN = LaunchSet(
    split=Split((50.0, 50.0)),
    parts=(
        LaunchPart(job=Job(name="train", command=("train",)), min_speed=POLICY.min_speed),
        LaunchPart(
            job=Job(name="score", command=("score",), offered_rate=9.0, max_p99_ms=50.0),
            min_speed=0.977, max_p99_ms=50.0,
        ),
    ),
)  # fmt: skip
SPEC = LaunchSpec(launch_id="L", gpu="0", pairs=(BEGAN,) * 3)
FOLDER = Mock(**{"read_spec.return_value": SPEC})
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
        for screen in end_screens(of, observed, Policy(prices=prices), FOLDER):
            print_screen(screen)
    lines: Iterator[str] = (text.rstrip() for text in capsys.readouterr().out.splitlines())
    return "".join(f"{text}\n" for text in lines)


@pytest.mark.parametrize("scene", SCENES)
def test_scene(
    scene: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    GOLDEN.check(scene, shown(scene, capsys))


def test_again_repeats_the_limits_that_were_given() -> None:
    """Beside defaults, the demand of a server and the promise of its job file."""
    parts = (
        replace(BEGAN.parts[0], min_speed=0.5, max_power_w=500.0),
        replace(BEGAN.parts[1], max_p99_ms=20.0),
    )
    spec = replace(SPEC, pairs=(replace(BEGAN, parts=parts),), power_limit_w=600.0)
    folder = Mock(**{"read_spec.return_value": spec})
    (screen,) = end_screens(OVER, [SEEN], POLICY, folder)
    assert dict(screen.lines)["Again"] == (
        "advisor launch train score --split 50/50 --min-speed train=0.5 --max-p99 score=20ms "
        "--max-power 500 --power-limit 600"
    )


def test_lines_are_said_at_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_lines(iter([RUNS, RUNS, FAILED])) is FAILED
    assert capsys.readouterr().out == f"{line(RUNS)}\n{line(FAILED)}\n"


def test_live_view_ends_with_the_last_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_live(iter([RUNS, FAILED])) is FAILED
    assert "GPU 0 is taken" in capsys.readouterr().out


# A queue as people and programs see it, and how its record is taken up.


NAMES = ("a", "a", "b", "server")

JOBS = {
    name: Job(name=name, command=("true",), offered_rate=10.0 if name == "server" else None)
    for name in NAMES
}

FINISHED = EndedJob(
    job="a", launch_id="l1", came="finished", steps=1000.0, alone_s=100.0, alone_j=30_000.0
)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[QueueFile]:
    with open_queue(tmp_path / "home", tmp_path, NAMES) as file:
        yield file


def queue_of(file: QueueFile, folder: Path, works_s: dict[str, float] | None = None) -> QueueRun:
    return QueueRun([JOBS[name] for name in NAMES], (), file, settings_of(folder), None, works_s)


def running(*names: str, steps: float, speed: float) -> LaunchView:
    return LaunchView(
        launch_id="l2",
        gpu="GPU-0",
        status=LaunchStatus(launch_id="l2", state="running", updated_at=""),
        jobs=tuple(
            LaunchedJob(
                LaunchPart(job=JOBS[name], solo_rate=10.0),
                JobStatus(
                    job=name,
                    rate_unit="steps",
                    share_percent=50.0,
                    outcome="running",
                    steps=steps,
                    relative_speed=speed,
                ),
            )
            for name in names
        ),
        refused=frozenset(),
        joining=False,
        stop_requested=False,
    )


def test_what_is_left_follows_from_work_and_pace(file: QueueFile, tmp_path: Path) -> None:
    """An equal job needs as much as the one before it; a server has no end of its own."""
    launch = running("a", "server", steps=400.0, speed=0.5)
    file.write(record := QueueRecord(ended=(FINISHED,)))
    look = QueueLook(record=record, launches=(launch,), waiting=("b",))
    known = run_state(queue_of(file, tmp_path, {"b": 20.0}), look)
    assert [(job.job, job.state, job.progress) for job in known.jobs] == [
        ("a", "done", 1.0),
        ("a", "running", 0.4),
        ("b", "waiting", None),
        ("server", "running", None),
    ]
    assert known.left_s == (60 + 20) / 0.5
    assert run_state(queue_of(file, tmp_path), look).left_s is None
    assert known.headline == "1 of 4 jobs done, 2 running, 1 waiting; about 3 min left"


def test_lines_tell_what_has_changed(file: QueueFile, tmp_path: Path) -> None:
    queue = queue_of(file, tmp_path)
    before = run_state(queue, QueueLook(record=QueueRecord(), launches=(), waiting=NAMES))
    launch = running("b", steps=0.0, speed=0.5)
    look = QueueLook(record=QueueRecord(), launches=(launch,), waiting=("a", "a", "server"))
    assert [*event_lines(before, run_state(queue, look))] == [
        "b running (0 of 4 jobs done, 1 running, 3 waiting)"
    ]
    hurried = QueueRun(
        [JOBS["b"]], (), file, settings_of(tmp_path), None, {"b": 120.0}, {"b": 60.0}
    )
    waits = QueueLook(record=QueueRecord(), launches=(), waiting=("b",))
    (late,) = event_lines(None, run_state(hurried, waits))
    assert late.startswith("b cannot be done in time: 2 min alone, ")
    sliced = replace(launch, status=replace(launch.status, sharing="time-sliced"))
    queue.cards = (Mock(gpu=Mock(uuid="GPU-0", index=3), expected=Mock(return_value=None)),)
    (turn,) = event_lines(before, run_state(queue, replace(look, launches=(sliced,))))
    assert turn.startswith("b running on GPU 3, time-sliced (")


def test_the_end_stands_beside_each_job_alone(file: QueueFile, tmp_path: Path) -> None:
    """The server was ended, so its work counts as well; what failed is named with its launch."""
    failed = EndedJob(job="b", launch_id="l1", came="failed", error="no such file")
    server = EndedJob(
        job="server", launch_id="l1", came="ended", steps=500.0, alone_s=50.0, alone_j=10_000.0
    )
    record = QueueRecord(
        ended=(FINISHED, FINISHED, failed, server), held_s=150.0, energy_j=60_000.0
    )
    queue, look = queue_of(file, tmp_path), QueueLook(record=record, launches=(), waiting=())
    state = run_state(queue, look)
    assert (state.state, state.alone_s, state.alone_j) == ("failed", 250.0, 70_000.0)
    lines = dict(end_screen(state).lines)
    assert lines["GPU use"] == "3 min instead of 4 min for each job alone: 40 % less"
    assert lines["Energy"].endswith("instead of 19.4 Wh for each job alone: 14 % less")
    assert lines["Failed"] == "b: no such file; advisor launches show l1"
    elsewhere = replace(record, ended=(*record.ended, replace(FINISHED, alone_j=None)))
    unknown = run_state(queue, replace(look, record=elsewhere))
    assert "saving unknown" in dict(end_screen(unknown).lines)["GPU use"]
    file.write(record)
    queue.finish(look)
    assert file.read() == record


def test_a_launch_that_was_noted_and_never_made_is_forgotten(
    file: QueueFile, tmp_path: Path
) -> None:
    file.write(QueueRecord(launches=("20260131-120000-3f2a91",), ended=(FINISHED,)))
    queue = queue_of(file, tmp_path)
    queue.take_up()
    look = queue.look()
    assert (look.launches, look.waiting) == ((), ("a", "b", "server"))
    assert file.read().launches == ()
    assert not queue.done(look)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("one/a.yaml", "two/b.yaml"), "in 2 folders"),
        (("empty",), "empty has no job files"),
        (("one/a.yaml", "b"), "'one/a.yaml' is not a valid job name"),
    ],
)
def test_job_files_are_of_one_folder(
    advisor: Advisor, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    for folder in ("one", "two", "empty"):
        (tmp_path / folder).mkdir()
    (tmp_path / "one" / "a.yaml").write_text("command: 'true'")
    (tmp_path / "two" / "b.yaml").write_text("command: 'true'")
    refused = advisor("run", *words)
    assert (refused.code, said in refused.err) == (2, True), refused
