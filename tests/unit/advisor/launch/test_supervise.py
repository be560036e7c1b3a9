"""A launch from its first set to the end of its last, on a clock of its own, without a process."""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from functools import partial
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from joining import to_join
from scripted_jobs import GPU, Clock, Meter, Script, ScriptedBackend, ScriptedJob, proving

from advisor.core.gpu import EQUAL, Gpu, MemoryFit, Split, without_limits
from advisor.core.job import Job, ProgressSettings
from advisor.core.objectives import Interval
from advisor.core.records import Observation
from advisor.core.telemetry import POWER_GPU, ReadingGate, TelemetrySource
from advisor.errors import (
    BusyError,
    InputError,
    JobError,
    LimitNotProvenError,
    PartitionError,
    SurvivorsError,
)
from advisor.launch import folder as folders, observe, set_monitor, supervise
from advisor.launch.folder import LaunchFolder, ask_join, create_folder, join_status
from advisor.launch.set_monitor import Renew, SetMonitor
from advisor.launch.spec import (
    Forecast,
    JobForecast,
    LaunchPart,
    LaunchSet,
    LaunchSpec,
    LaunchStatus,
    Resplit,
    as_alone,
)
from advisor.launch.supervise import Better, LaunchContext, Newcomers, run_launch
from advisor.runtime import processes, running_job
from advisor.runtime.processes import at_once


def together(*names: str, split: Split = EQUAL, **job: Any) -> LaunchSet:
    jobs = (Job(name=name, command=("true",), **job) for name in names)
    parts = (LaunchPart(job=job, solo_rate=100.0, solo_power_w=300.0) for job in jobs)
    return LaunchSet(split=split, parts=tuple(parts))


class Launch:
    """A launch of sets of jobs that do as `scripts` says; seconds count from its start.

    Attributes:
        stop_s: When its user asks it to stop.
        events: What happens besides, by the second.
    """

    def __init__(self, patch: pytest.MonkeyPatch, root: Path) -> None:
        self.clock, self.backends = Clock(), list[ScriptedBackend]()
        for module in (supervise, set_monitor, observe, folders, processes, running_job):
            patch.setattr(module, "time", self.clock)
        self.jobs, self.remembered = list[ScriptedJob](), list[Any]()
        self.scripts: dict[str, Script] = {}
        for module in (set_monitor, supervise):
            patch.setattr(module, "prove", proving(self.clock, self.scripts, self.jobs))
        self.guard = Mock(**{"beat.return_value": False})
        patch.setattr(supervise, "ProcessGuard", Mock(return_value=self.guard))
        patch.setattr(supervise, "SetMonitor", partial(SetMonitor, run=at_once))
        patch.setattr(supervise, "Newcomers", partial(Newcomers, run=at_once))
        patch.setattr(supervise, "in_thread", at_once)
        self.stop_s, self.events = float("inf"), dict[float, Callable[[], object]]()
        self.gate = ReadingGate(GPU, lambda: 700.0)
        self.gpu, self.backend = GPU, dict[str, Any]()
        self.open_error, self.looks = cast("Exception | None", None), 0
        self.renew: Renew | None = None
        self.folder = LaunchFolder(root / "launches" / "l")
        self.better = cast("Better | None", None)
        self.written, self.draw = list[LaunchStatus](), Mock()
        write = LaunchFolder.write_status

        def written(of: LaunchFolder, status: LaunchStatus) -> None:
            # Each second of a launch takes a disk some milliseconds.
            if status.state not in self.states:
                write(of, status)
            self.written.append(status)

        patch.setattr(LaunchFolder, "write_status", written)
        patch.setattr(supervise, "write_history", self.draw)

    def run(self, *pairs: LaunchSet, **spec: Any) -> LaunchStatus:
        made = LaunchSpec(launch_id="l", gpu="0", pairs=pairs, **spec)
        folder = create_folder(self.folder.path.parent, made)
        return run_launch(folder, made, self._open, self._is_stopping)

    @property
    def states(self) -> list[str]:
        return [*dict.fromkeys(one.state for one in self.written)]

    @contextmanager
    def _open(self) -> Generator[LaunchContext]:
        if self.open_error:
            raise self.open_error
        yield LaunchContext(
            gpu=self.gpu,
            source=cast("TelemetrySource", Meter(self.clock, gates=[self.gate])),
            environment={"PATH": "/bin"},
            open_backend=self._open_backend,
            remember=self.remembered.append,
            renew=self.renew,
            better=self.better,
        )

    def _open_backend(self, sharing: str) -> Any:
        mode = {"limited": "mps"}.get(sharing, sharing)
        self.backends.append(ScriptedBackend(self.clock, mode, gpu=self.gpu, **self.backend))
        return self.backends[-1]

    def _is_stopping(self) -> bool:
        self.looks, now_s = self.looks + 1, self.clock.now_s - 1000.0
        assert self.looks < 20_000, "it never ends"
        for due_s in [second for second in self.events if second <= now_s]:
            self.events.pop(due_s)()
        return now_s >= self.stop_s


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Launch:
    return Launch(monkeypatch, tmp_path / "home")


def ends(second: float, **more: Any) -> Script:
    return Script(ends_s=second, **more)


FAILS, FOREVER = ends(10, status=1, tail="out of disk"), Script()
NOT_PROVEN, SILENT = LimitNotProvenError("no limit"), PartitionError("nobody answers")


@pytest.mark.parametrize(
    ("a", "b", "spec", "stop_s", "state", "code", "outcomes"),
    [
        (ends(10), ends(20), {}, None, "finished", None, "finished finished"),
        (FAILS, ends(20), {}, None, "failed", "job", "failed finished"),
        (ends(10), FOREVER, {"duration_s": 30.0}, None, "stopped", None, "finished stopped"),
        (FAILS, FOREVER, {"duration_s": 30.0}, None, "failed", "job", "failed stopped"),
        (ends(10), FOREVER, {"when_one_ends": "stop"}, None, "stopped", None, "finished stopped"),
        (FAILS, FOREVER, {"when_one_ends": "stop"}, None, "failed", "job", "failed stopped"),
        (FOREVER, FOREVER, {}, 20, "stopped", None, "stopped stopped"),
        (FAILS, FOREVER, {}, 20, "failed", "job", "failed stopped"),
        (Script(hangs_s=10), ends(60), {"hang_s": 20.0}, None, "failed", "job-hung",
         "hung finished"),
        (FAILS, Script(hangs_s=10), {"hang_s": 20.0}, None, "failed", "job", "failed hung"),
        # One that fails in the start has ended as well, and the other runs.
        (ends(1, status=1), ends(20, ready_s=2), {}, None, "failed", "job", "failed finished"),
        (FOREVER, ends(400, ready_s=300), {}, 320, "failed", "job", "stopped failed"),
    ],
)  # fmt: skip
def test_a_launch_ends_as_its_jobs_do_or_as_it_was_asked(
    launch: Launch,
    a: Script,
    b: Script,
    spec: dict[str, Any],
    stop_s: float | None,
    state: str,
    code: str | None,
    outcomes: str,
) -> None:
    launch.scripts |= {"a": a, "b": b}
    launch.stop_s = stop_s or float("inf")
    last = launch.run(together("a", "b"), **spec)
    assert (last.state, last.code, [job.outcome for job in last.jobs]) == (
        state, code, outcomes.split()
    )  # fmt: skip
    assert bool(last.cause) == bool(code)
    # Where it was told to, the end of one job ends the other; else the supervisor does.
    stops = ["stopping"] * ("stopped" in outcomes and "when_one_ends" not in spec)
    assert launch.states == ["starting", "running", *stops, state]
    assert all(job.stops and job.is_closed for job in launch.jobs)
    assert (launch.guard.close.called, launch.backends[0].is_closed) == (True, True)
    assert [seen.state for seen in launch.remembered] == [state]
    assert launch.folder.read_status() == last
    assert (last.started_at is not None, last.ended_at is not None) == (True, True)


@pytest.mark.parametrize(("duration_s", "together_s"), [(30.0, 30), (None, 45)])
def test_a_set_is_stopped_when_its_time_together_is_up(
    launch: Launch, duration_s: float | None, together_s: float
) -> None:
    """From the opening of its gates: to start is not to run."""
    launch.scripts |= {"a": Script(ready_s=5), "b": ends(50, ready_s=5)}
    launch.events[50.5] = lambda: launch.folder.ask_stop()
    last = launch.run(together("a", "b"), duration_s=duration_s)
    assert (last.state, last.overlap_s) == ("stopped", pytest.approx(together_s, abs=0.5))


def test_one_that_ended_while_its_supervisor_stood_still_is_never_shown_running(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As between the last look at those that stand ready and the opening of their gates."""
    launch.scripts |= {"a": ends(5, status=1), "b": ends(30)}

    def late(*args: Any, **more: Any) -> SetMonitor:
        launch.clock.sleep(10)
        return SetMonitor(*args, run=at_once, **more)

    monkeypatch.setattr(supervise, "SetMonitor", late)
    launch.run(together("a", "b"))
    assert {one.jobs[0].outcome for one in launch.written if one.state == "running"} == {"failed"}


@pytest.mark.parametrize(("stop_s", "started"), [(0, 0), (2, 2)])
def test_a_stop_before_its_jobs_ran_together_runs_nothing(
    launch: Launch, stop_s: float, started: int
) -> None:
    launch.scripts |= {name: Script(ready_s=5) for name in "abcd"}
    launch.stop_s = stop_s
    last = launch.run(together("a", "b"), together("c", "d"))
    assert (last.state, last.code, last.pair_number) == ("stopped", None, 0)
    assert [job.outcome for job in last.jobs] == ["stopped", "stopped"]
    assert [(job.stops, job.is_open) for job in launch.jobs] == [(1, False)] * started
    assert (launch.remembered, launch.guard.close.called) == ([], True)


@pytest.mark.parametrize(
    ("b", "errors", "code", "states", "proven"),
    [
        (Script(start=JobError("no such program")), [], "job", ["finished"], [True] * 2),
        (Script(start=SurvivorsError("one lives")), [], "survivors", [], [False] * 2),
        (Script(limit=NOT_PROVEN), [], "limit-not-proven", [], [False] * 2),
        (Script(variables=NOT_PROVEN), [], "limit-broken", ["failed"], [True, False]),
        (FOREVER, [None, SILENT, SILENT], "partition", ["failed"], [False] * 2),
    ],
)
def test_a_set_that_fails_lets_the_next_begin_where_the_gpu_can_be_shared(
    launch: Launch, b: Script, errors: list[Any], code: str, states: list[str], proven: list[bool]
) -> None:
    launch.scripts |= {"a": FOREVER, "b": b, "c": ends(10), "d": ends(20)}
    launch.backend = {"errors": errors}
    last = launch.run(together("a", "b"), together("c", "d"))
    assert (last.state, last.code, last.pair_number) == ("failed", code, int(code == "job"))
    assert [seen.state for seen in launch.remembered] == states
    assert [job.proven for job in last.jobs] == proven
    assert all(job.stops for job in launch.jobs)
    ended = [one for one in launch.written if one.pair_number == 0][-1]
    assert "running" not in {job.outcome for job in ended.jobs}


def test_impossible_readings_are_said_at_the_end(launch: Launch) -> None:
    """With their number; they end nothing."""
    launch.scripts |= {name: ends(20) for name in "ab"}
    launch.events[10] = lambda: [launch.gate.sift({POWER_GPU: 3.7e6}) for _ in range(3)]
    last = launch.run(together("a", "b"))
    assert last.state == "finished"
    assert [text for text in last.warnings if "3 impossible readings left out" in text]


def test_sets_run_one_after_the_other_and_add_up(launch: Launch) -> None:
    """What is of one set alone, such as its speeds, is that of the last."""
    launch.scripts |= {name: ends(20, ready_s=5) for name in "ab"}
    launch.scripts |= {name: ends(45, ready_s=25, rate=20) for name in "cde"}
    three = together("c", "d", "e", split=without_limits("time-sliced", 3))
    last = launch.run(together("a", "b", split=Split((30.0, 50.0))), three)
    assert (last.state, last.pair_number, last.sharing) == ("finished", 1, "time-sliced")
    assert (last.gpu_uuid, last.started_at) == ("GPU-1", launch.written[0].started_at)
    assert [(one.mode, one.capped) for one in launch.backends] == [
        ("mps", [50]), ("time-sliced", [100])
    ]  # fmt: skip
    places = sorted(path.name for path in launch.folder.path.glob("?-?"))
    assert places == ["0-a", "0-b", "1-a", "1-b", "1-c"]
    first, second = launch.remembered
    assert [part.rate for part in second.parts] == [pytest.approx(20)] * 3
    assert (last.overlap_s, last.mean_power_w) == (second.overlap_s, second.power_w)
    assert [job.mean_rate for job in last.jobs] == [pytest.approx(20)] * 3
    assert (last.power_w, last.jobs[0].rate) == (None, None)
    assert last.ledger is not None
    assert last.ledger.held_s == pytest.approx(first.overlap_s + second.overlap_s)
    assert last.ledger.energy_j == pytest.approx(400 * last.ledger.held_s)
    starts_s = launch.clock.now_s - 1000 - last.ledger.held_s
    assert starts_s == pytest.approx(10, abs=0.5)
    assert last.ledger.starts_s == pytest.approx(starts_s)
    assert (last.starts_energy_j, last.ledger.starts_j) == (pytest.approx(400 * starts_s),) * 2
    assert last.whole_energy_j == pytest.approx(400 * (launch.clock.now_s - 1000))


def test_where_it_stands_is_told_while_it_runs(launch: Launch) -> None:
    """About once a second; room for the last words is kept until these are written."""
    launch.scripts |= {"a": Script(units=66), "b": Script(units=40)}
    launch.gpu, launch.stop_s = replace(GPU, memory_mib=10_000), 20
    reserve, kept = launch.folder.path / "reserve", list[int]()
    launch.events[10] = lambda: kept.append(reserve.stat().st_size)
    free, bound = together("a", "b", memory_mib=1000).parts
    last = launch.run(LaunchSet(split=EQUAL, parts=(replace(free, limit_memory=False), bound)))
    assert (kept, reserve.exists()) == ([256 << 10], False)
    assert (last.gpu_uuid, last.gpu_model) == ("GPU-1", "Card")
    assert (last.units_total, last.power_limit_w) == (132, 700.0)
    begun, *_, starts = (one for one in launch.written if one.state == "starting")
    assert begun.started_at == last.started_at
    assert [(job.units_granted, job.memory_limit_mib, job.outcome) for job in starts.jobs] == [
        (66, None, "starting"), (40, MemoryFit((1000, 1000), 10_000).limit_mib(1), "starting")
    ]  # fmt: skip
    first, *running = (one for one in launch.written if one.state == "running")
    assert (first.overlap_s, len(running)) == (0, pytest.approx(19, abs=1))
    assert running[10].jobs[0].rate == pytest.approx(50)
    read_j = [one.whole_energy_j or 0.0 for one in running]
    assert all(more - less == pytest.approx(400) for less, more in pairwise(read_j))
    histories = [call.args[1] for call in launch.draw.call_args_list]
    assert [len(history.power_w) for history in histories] == [*range(1, 21)]
    assert [job.job for job in histories[-1].jobs] == ["a", "b"]


def test_a_supervisor_that_stood_still_and_a_guard_that_was_gone_are_told(launch: Launch) -> None:
    launch.scripts |= {"a": Script(), "b": Script()}
    launch.events[10] = lambda: launch.clock.sleep(34)
    launch.guard.beat.side_effect = chain(repeat(False, 99), [True], repeat(False))
    launch.stop_s = 60
    last = launch.run(together("a", "b"))
    assert [text.split(":")[0] for text in last.warnings] == [
        "this launch was not watched for 34 s",
        "the guard of this launch was killed or hung; another one watches now",
    ]
    assert last.unwatched_s == pytest.approx(32.25)


@pytest.mark.parametrize(
    ("error", "code", "cause"),
    [
        (BusyError("another launch holds the GPU"), "busy", "another launch holds the GPU."),
        (OSError(28, "No space left on device"), "system", "No space left on device"),
        (RuntimeError("surprise"), "internal", "RuntimeError: surprise"),
    ],
)
def test_whatever_fails_is_written_down(
    launch: Launch, error: Exception, code: str, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    launch.open_error = error
    last = launch.run(together("a", "b"))
    assert (last.state, last.code, launch.folder.read_status().state) == ("failed", code, "failed")
    assert cause in (last.cause or "")
    assert ("Traceback" in capsys.readouterr().err) == (code == "internal")


def test_sets_that_do_not_fit_into_the_memory_start_none(launch: Launch) -> None:
    launch.gpu = Gpu(uuid="GPU-1", model="Card", memory_mib=1000)
    last = launch.run(together("a", "b"), together("c", "d", memory_mib=600))
    assert (last.state, last.code, launch.backends) == ("failed", "no-split", [])


THIRD = LaunchPart(job=Job(name="c", command=("true",)), solo_rate=100.0, solo_power_w=300.0)


@pytest.mark.parametrize(
    ("a", "stop_s", "outcome", "state"),
    [
        (ends(10), None, "finished", "finished"),
        (FAILS, None, "refused", "failed"),
        (FOREVER, 30, "refused", "stopped"),
    ],
)
def test_who_is_coming_is_waited_for_where_the_others_end_well(
    launch: Launch, a: Script, stop_s: float | None, outcome: str, state: str
) -> None:
    """It may load for minutes; else it is told that nobody joins any more."""
    launch.scripts |= {"a": a, "b": ends(20), "c": ends(60, ready_s=40)}
    request = to_join(THIRD, share_percent=30.0)
    launch.events[5] = lambda: ask_join(launch.folder, request, "j")
    launch.stop_s = stop_s or float("inf")
    last = launch.run(together("a", "b"))
    said = join_status(launch.folder, "j", request)
    assert (last.state, len(last.jobs)) == (state, 3 if outcome == "finished" else 2)
    assert (said.outcome, said.join_id) == (outcome, "j")
    assert ("have ended" in (said.error or "")) == (outcome == "refused")
    assert [job.output.parent.name for job in launch.jobs if job.stops][2:] == ["0-joined-0"]


EXPECTED = Forecast(
    model_version="m", jobs=(JobForecast(rate=Interval(80.0, 60.0, 100.0), solo_rate=100.0),) * 2,
    power_w=Interval(400, 390, 410), work_per_joule=Interval(0.004, 0.003, 0.005), coverage=0.9,
)  # fmt: skip


def alone_first(*gates: bool, **part: Any) -> LaunchSet:
    """Jobs `a`, `b` and so on with profiles of another host, with and without a gate."""
    known: dict[str, Any] = {
        "solo_rate": 100.0, "solo_power_w": 300.0, "share_rate": 100.0, "idle_power_w": 100.0,
        "host_spread": 0.5, "window_spread": 0.17, **part,
    }  # fmt: skip
    return LaunchSet(
        split=EQUAL if len(gates) == 2 else without_limits("uncapped", len(gates)),
        parts=tuple(
            LaunchPart(
                job=Job(name=name, command=("true",), progress=ProgressSettings(gate=gate)), **known
            )
            for name, gate in zip("abc", gates, strict=False)
        ),
        forecast=EXPECTED if len(gates) == 2 else None,
        alone_s=6.0,
    )


def test_jobs_begin_alone_and_are_held_against_that(launch: Launch) -> None:
    """One gate is open at a time; a window of one host counts less the more windows differ."""
    launch.scripts |= {"a": Script(rate=143.0), "b": Script(rate=50.0)}
    last = launch.run(alone_first(True, True), duration_s=30.0)
    assert [job.moves for job in launch.jobs] == [[0.0, 6.0, 12.0], [6.0, 12.0, 12.0]]
    shown = (" ".join(job.outcome for job in one.jobs) for one in launch.written)
    assert [*dict.fromkeys(shown)][2:5] == [
        "running starting", "starting running", "running running"
    ]  # fmt: skip
    counts = 0.5**2 / (0.5**2 + 0.17**2)
    faster, slower = 1.43**counts, 0.5**counts
    kept, expected = launch.folder.read_spec().pairs[0], last.forecast
    assert (kept.forecast, kept.alone_s, expected is None) == (expected, None, False)
    assert [
        value
        for part, job, told in zip(
            kept.parts, expected.jobs if expected else (), last.jobs, strict=True
        )
        for value in (part.solo_rate, part.solo_power_w, job.rate.value, told.mean_speed)
    ] == pytest.approx([
        100 * faster, 100 + 200 * faster, 80 * faster, 1.43 / faster,
        100 * slower, 100 + 200 * slower, 80 * slower, 0.5 / slower,
    ])  # fmt: skip
    assert last.warnings[:3] == (
        "jobs with a gate run alone first, for 6 s each",
        f"a is {faster:.2f} times as fast here as was known",
        f"b is {slower:.2f} times as fast here as was known",
    )
    # What they did alone is no work that was shared.
    held = last.ledger and (last.ledger.held_s, last.ledger.starts_s)
    assert held == (pytest.approx(30, abs=0.5), 12.0)


@pytest.mark.parametrize("error", [None, InputError("no profile")])
def test_watts_are_expected_by_what_was_measured_alone(
    launch: Launch, error: InputError | None
) -> None:
    """Ranges of rates hold what windows differ by, and then it is a profile of this host."""
    launch.scripts |= {"a": Script(rate=143.0), "b": Script()}
    other = replace(EXPECTED, power_w=Interval(500, 490, 510))
    given = list[LaunchSet]()

    def renew(pair: LaunchSet, demands: Sequence[float | None]) -> tuple[Forecast, tuple[str, ...]]:
        given.append(pair)
        if error:
            raise error
        return other, ("b too slow",) * len([*filter(None, demands)])

    launch.renew = renew
    last = launch.run(alone_first(True, True), duration_s=20.0)
    (pair,) = given
    assert [part.host_spread for part in pair.parts] == pytest.approx([0.234] * 2, abs=0.001)
    assert pair.parts[0].solo_rate
    assert pair.parts[0].solo_rate > 130
    kept = launch.folder.read_spec().pairs[0]
    assert [part.host_spread for part in kept.parts] == [0.0, 0.0]
    assert last.forecast == kept.forecast == (pair.forecast if error else other)
    told = [text for text in last.warnings if "watts and energy" in text or "too slow" in text]
    assert told == ["watts and energy are expected as before: no profile."] * bool(error)


def test_a_job_without_a_gate_starts_when_the_others_have_been_alone(launch: Launch) -> None:
    launch.scripts |= {name: Script() for name in "abc"}
    last = launch.run(alone_first(True, False, True), duration_s=20.0)
    moves = {job.job.name: job.moves[:2] for job in launch.jobs}
    assert moves == {"a": [0.0, 6.0], "b": [12.0], "c": [6.0, 12.0]}
    assert "b was not measured alone: no gate, or a demand" in last.warnings
    parts = launch.folder.read_spec().pairs[0].parts
    assert [(part.job.name, part.host_spread) for part in parts] == [("a", 0), ("b", 0.5), ("c", 0)]


@pytest.mark.parametrize("stop_s", [4.0, 9.0])
def test_a_stop_while_a_job_is_alone_leaves_nothing_running(launch: Launch, stop_s: float) -> None:
    launch.scripts |= {"a": Script(), "b": Script()}
    launch.stop_s = stop_s
    last = launch.run(alone_first(True, True))
    assert (last.state, last.code, launch.remembered) == ("stopped", None, [])
    assert launch.clock.now_s - 1000 == pytest.approx(stop_s, abs=0.5)
    assert [(job.stops, job.is_open) for job in launch.jobs] == [(1, False)] * 2


@pytest.mark.parametrize(("a", "left"), [(ends(4), 50.0), (Script(holds=False), 100.0)])
def test_one_that_ends_or_cannot_be_held_keeps_nobody_from_running(
    launch: Launch, a: Script, left: float
) -> None:
    """Beside one that runs on nobody is alone."""
    launch.scripts |= {"a": a, "b": Script(rate=50.0)}
    last = launch.run(alone_first(True, True, host_spread=9.0), duration_s=30.0)
    ended = "finished" if left == 50 else "stopped"
    assert [job.outcome for job in last.jobs] == [ended, "stopped"]
    parts = launch.folder.read_spec().pairs[0].parts
    assert [part.solo_rate for part in parts] == pytest.approx([100.0, left], rel=0.01)
    assert any("no other job ran alone" in text for text in last.warnings) == (left == 100)


@pytest.mark.parametrize(
    ("part", "rate", "factor"),
    [
        # What was measured on this host already is as sure as the new window is.
        ({"host_spread": 0.0}, 121.0, 1.1), ({"window_spread": 0.0}, 121.0, 1.0), ({}, None, 1.0),
    ],
)  # fmt: skip
def test_what_is_not_known_of_a_job_stays(
    part: dict[str, Any], rate: float | None, factor: float
) -> None:
    pair, found = as_alone(alone_first(True, True, **part), 0, rate, 400.0)
    assert (found, pair.parts[0].solo_rate) == pytest.approx((factor, 100 * factor))
    assert pair.forecast
    assert astuple(pair.forecast.jobs[0].rate) == pytest.approx(
        (80 * factor, 60 * factor, 100 * factor)
    )


def ways(
    power_w: float = 1000.0, job: Mapping[str, Any] | None = None, **own: Any
) -> tuple[LaunchSet, ...]:
    """Two ways of two jobs, each of which would draw so much alone; they draw 400 W together."""
    made = [
        together("a", "b", split=split, **(job or {})) for split in (Split((40.0, 60.0)), EQUAL)
    ]
    return tuple(
        replace(way, parts=tuple(replace(part, solo_power_w=power_w, **own) for part in way.parts))
        for way in made
    )


WAYS = ways()


@pytest.mark.parametrize(
    ("a", "spec", "state", "outcomes"),
    [
        (ends(5), {}, "finished", "finished finished"),
        (ends(5), {"when_one_ends": "stop"}, "stopped", "finished stopped"),
        (ends(5, status=1), {}, "failed", "failed finished"),
        (FOREVER, {"stop_s": 15}, "stopped", "stopped stopped"),
    ],
)
def test_who_ends_in_a_trial_is_not_started_again(
    launch: Launch, a: Script, spec: dict[str, Any], state: str, outcomes: str
) -> None:
    """Who runs beside it is not ended for the trial: the way that is tried goes on."""
    launch.scripts |= {"a": a, "b": ends(40)}
    launch.stop_s = spec.pop("stop_s", math.inf)
    last = launch.run(*WAYS, try_s=10.0, **spec)
    number = int(launch.stop_s == 15)
    assert (last.state, last.pair_number, len(launch.jobs)) == (state, number, 2 * number + 2)
    assert [job.outcome for job in last.jobs] == outcomes.split()
    assert last.overlap_s + last.rest_s == pytest.approx(
        {"finished finished": 40, "failed finished": 40}.get(outcomes, 5), abs=0.5
    )


def test_of_a_trial_time_and_energy_count_and_no_work(launch: Launch) -> None:
    """Jobs begin again after it; nobody can join before one way is kept."""
    launch.scripts |= {name: ends(50) for name in "ab"}
    last = launch.run(*WAYS, try_s=10.0)
    assert (last.state, last.pair_number, last.ledger is None) == ("finished", 2, False)
    kept = launch.remembered[-1]
    assert last.ledger
    assert last.ledger.held_s == pytest.approx(50, abs=0.5)
    assert last.ledger.alone_s == pytest.approx(2 * 0.5 * kept.overlap_s, rel=0.05)
    shown = {(one.pair_number, one.try_s, one.standing) for one in launch.written}
    assert {(1, 10.0, "running, way 2 of 2 on trial"), (2, None, "running")} <= shown
    assert launch.folder.read_spec().pairs[last.pair_number] in WAYS


@pytest.mark.parametrize(
    ("first", "second", "limits", "number", "words"),
    [
        (Script(), Script(rate=60), {}, 1, "goes on"),
        (Script(rate=60), Script(), {}, 0, "goes on"),
        # What was not measured is known to be worth nothing.
        (Script(hangs_s=0), Script(), {}, 1, "40/60 not measured"),
        (Script(rate=60, late_ms=(90.0,)), Script(late_ms=(9.0,)), {"max_p99_ms": 50.0}, 1,
         "with a p99 of"),
        # A server that works off what has queued up does no more than is asked of it.
        (Script(rate=105), Script(rate=250), {"offered_rate": 100.0}, 0, "40/60 5 of work per kJ"),
    ],
)  # fmt: skip
def test_the_way_goes_on_that_keeps_most_and_does_most(
    launch: Launch, first: Script, second: Script, limits: dict[str, Any], number: int, words: str
) -> None:
    job = {name: value for name, value in limits.items() if name == "offered_rate"}
    own = {name: value for name, value in limits.items() if name != "offered_rate"}
    launch.scripts |= dict.fromkeys("ab", first)
    launch.events[9.9] = lambda: launch.scripts.update(dict.fromkeys("ab", second))
    launch.stop_s = 25
    (told,) = launch.run(*ways(job=job, **own), try_s=10.0).warnings
    assert (launch.folder.read_spec().pairs[2].split, words in told) == (WAYS[number].split, True)


def test_a_profile_of_another_host_is_told_once_of_all_ways(launch: Launch) -> None:
    launch.scripts |= dict.fromkeys("ab", Script(rate=150))
    launch.stop_s = 35
    last = launch.run(*ways(host_spread=0.5), try_s=10.0)
    assert last.pair_number == 2
    told = [text.partition(" ")[0] for text in last.warnings if "is of another host" in text]
    assert told == ["a", "b"]


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"min_speed": 0.9}, "keeps all limits"),
        ({"power_w": 300.0}, "saves energy"),
    ],
)
def test_jobs_that_no_way_suits_are_not_kept_together(
    launch: Launch, limits: dict[str, Any], why: str
) -> None:
    """A launch has one GPU for them: it ends, and says how to run them."""
    launch.scripts |= dict.fromkeys("ab", Script(rate=55))
    last = launch.run(*ways(**limits), try_s=10.0)
    assert (last.state, last.code, len(launch.jobs)) == ("failed", "no-split", 4)
    assert last.cause
    assert f"no way that was tried {why}. tried for 10 s each: 40/60 2.75" in last.cause
    assert last.cause.endswith("advisor launch a; advisor launch b.")


restartable = partial(together, restartable=True)


OFFER = Resplit(split="40/60", worth=Interval(1.2, 1.1, 1.3))


def offers(launch: Launch, offer: Resplit = OFFER, fails: str = "") -> list[Any]:
    """Lets another split be offered to whoever runs; what was asked about."""
    asked = list[Any]()

    def better(pair: LaunchSet, seen: Sequence[Observation]) -> tuple[Resplit, LaunchSet | None]:
        names = "+".join(job.name for job in pair.jobs)
        asked.append((round(launch.clock.now_s - 1000), names, [len(one.parts) for one in seen]))
        if fails:
            raise RuntimeError(fails)
        split = Split((40.0, 60.0)) if len(pair.jobs) > 1 else Split((100.0,))
        return replace(offer, split=str(split)), None if offer.refused else replace(
            pair, split=split
        )

    launch.better = better
    return asked


def test_jobs_start_again_at_another_split_where_somebody_asks_and_lose_nothing(
    launch: Launch,
) -> None:
    """In the same launch: its record, its time and what the jobs had done go on."""
    launch.scripts |= {"a": Script(saves_s=20.0), "b": Script()}
    asked = offers(launch)
    seen = list[LaunchStatus]()
    launch.events[90] = lambda: seen.append(launch.written[-1])
    launch.events[100] = lambda: launch.folder.resplit.write_text("40/60")
    # One counts from where it was, the other from its start.
    launch.events[110] = lambda: launch.scripts.update(b=Script(steps=lambda s: 30 * (s - 120)))
    last = launch.run(restartable("a", "b"), duration_s=300.0)
    assert seen[0].resplit == replace(OFFER, split="40/60")
    assert asked == [(30, "a+b", [2]), (150, "a+b", [2])]
    assert (last.state, last.pair_number, last.code) == ("stopped", 1, None)
    assert [job.share_percent for job in last.jobs] == [40, 60]
    first, second = launch.remembered
    assert [part.share_percent for part in second.parts] == [40, 60]
    # It stopped after 20 s that one took for its checkpoint; the rest of 300 s is of the second.
    assert [round(one.overlap_s) for one in (first, second)] == [120, 180]
    ended_s = launch.clock.now_s - 1000
    assert [job.steps for job in last.jobs] == pytest.approx(
        [50 * ended_s, 50 * 120 + 30 * (ended_s - 120)], rel=0.01
    )
    assert last.ledger
    assert last.ledger.held_s == pytest.approx(300, abs=1)
    assert last.ledger.alone_s == pytest.approx(
        0.01 * (50 * ended_s + 50 * 120 + 30 * 180), rel=0.02
    )
    assert "started again at 40/60, as was asked for" in last.warnings
    assert not launch.folder.resplit.exists()
    assert [len(job.moves) for job in launch.jobs] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("first", "asks", "known", "then", "said"),
    [
        (Script(saves_s=1e6), "40/60", ["a+b", "a+b"], {"a": 40, "b": 60},
         "a did not end within 60 s and was ended: what it did since"),
        (ends(50), "100", ["a+b", "b"], {"b": 100}, ""),
    ],
)  # fmt: skip
def test_who_is_there_starts_again(
    launch: Launch, first: Script, asks: str, known: list[str], then: dict[str, int], said: str
) -> None:
    """A job is ended if its checkpoint takes too long; the job that is left gets the whole GPU."""
    launch.scripts |= {"a": first, "b": Script()}
    asked = offers(launch)
    launch.events[100] = lambda: launch.folder.resplit.write_text(asks)
    last = launch.run(restartable("a", "b"), duration_s=300.0)
    assert [names for _, names, _ in asked][: len(known)] == known
    assert (last.state, last.pair_number) == ("stopped", 1)
    assert {job.job: job.share_percent for job in last.jobs} == then
    assert any(text.startswith(said) for text in last.warnings)
    assert launch.clock.now_s - 1000 == pytest.approx(300, abs=2)


@pytest.mark.parametrize(
    ("pair", "offer", "fails", "why"),
    [
        ({}, OFFER, "", None),
        ({}, Resplit(refused="nothing does more"), "", "nothing does more"),
        ({}, OFFER, "no model", "nothing is known of it: no model"),
        ({"restartable": False}, OFFER, "", "a and b: the job file does not say restartable: true"),
        ({"open_percent": 100.0}, OFFER, "", "`advisor run` places these jobs"),
    ],
)
def test_what_is_not_offered_starts_nobody_again(
    launch: Launch, pair: dict[str, Any], offer: Resplit, fails: str, why: str | None
) -> None:
    launch.scripts |= dict.fromkeys("ab", Script())
    offers(launch, offer, fails)
    seen = list[LaunchStatus]()
    asks = "40/60" if why else "30/70"
    launch.events[100] = lambda: launch.folder.resplit.write_text(asks)
    launch.events[110] = lambda: seen.append(launch.written[-1])
    made = together("a", "b", restartable=pair.get("restartable", True))
    made = replace(made, open_percent=pair.get("open_percent", 0.0))
    last = launch.run(made, duration_s=120.0)
    assert (last.state, last.pair_number, len(launch.jobs)) == ("stopped", 0, 2)
    assert last.warnings == (f"not started again at {asks}: it is not offered any more",)
    assert not launch.folder.resplit.exists()
    assert seen[0].resplit
    assert seen[0].resplit.refused == why


def test_an_offer_ends_nobody_and_is_looked_at_again_now_and_then(launch: Launch) -> None:
    launch.scripts |= dict.fromkeys("ab", Script())
    asked = offers(launch)
    last = launch.run(restartable("a", "b"), duration_s=1300.0)
    assert [second for second, _, _ in asked] == [30, 630, 1230]
    assert (last.state, last.pair_number, last.resplit) == ("stopped", 0, None)


def test_one_job_ends_as_was_asked_and_the_others_go_on(launch: Launch) -> None:
    """All copies of it; again nothing more happens. A job of a queue is left to its queue."""
    launch.scripts |= dict.fromkeys("ab", FOREVER)
    asked = list[bool]()

    def ask() -> None:
        asked.append(launch.folder.ask_end("a").exists())

    launch.events |= {50: ask, 100: ask}
    launch.events[60] = launch.events[110] = lambda: asked.append(
        (launch.folder.path / "ends/a").exists()
    )
    made = together("a", "a", "b", split=Split((25, 25, 50)))
    last = launch.run(made, duration_s=200.0)
    assert asked == [True, False, True, False]
    assert (last.state, last.code) == ("stopped", None)
    assert [round(job.steps / 50) for job in last.jobs] == [50, 50, 200]
    assert {job.error for job in last.jobs[:2]} == {"ended as was asked"}
    assert [round(one.overlap_s) for one in launch.remembered] == [50]
    with pytest.raises(InputError, match="there is no job c in l"):
        launch.folder.ask_end("c")
    launch.folder.write_spec(
        replace(launch.folder.read_spec(), pairs=(replace(made, open_percent=100.0),))
    )
    with pytest.raises(InputError, match="`advisor run` placed it"):
        launch.folder.ask_end("a")
