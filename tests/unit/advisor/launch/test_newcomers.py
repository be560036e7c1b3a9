"""Who asks to join a set that runs, on a clock of its own."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from joining import to_join
from scripted_jobs import FAULT, GPU, Script, ScriptedJob, Watch, at_once, proving

from advisor.core.gpu import MemoryFit, Split, without_limits
from advisor.core.job import Job
from advisor.core.objectives import Interval
from advisor.errors import AdvisorError, LimitNotProvenError
from advisor.launch import supervise
from advisor.launch.folder import ask_join, create_folder, join_status, withdraw
from advisor.launch.spec import Forecast, JobForecast, JobStatus, LaunchPart
from advisor.launch.supervise import Newcomers
from advisor.runtime.backend import Backend
from advisor.runtime.processes import RunInBackground

THIRD = LaunchPart(job=Job(name="c", command=("true",)), min_speed=0.3)


RATE = Interval(50, 40, 60)


FORECAST = Forecast(
    model_version="m", jobs=(JobForecast(rate=RATE, solo_rate=100.0),) * 3,
    power_w=Interval(500, 450, 550), work_per_joule=Interval(0.002, 0.001, 0.003), coverage=0.9,
)  # fmt: skip


class Door:
    """Where one asks to join the jobs of a watch.

    Attributes:
        started: Newcomers that were started.
        warnings: What could not be said to who asked.
    """

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        root: Path,
        watch: Watch,
        script: Script | None = None,
        run: RunInBackground = at_once,
    ) -> None:
        self.watch, self.started, self.warnings = watch, list[ScriptedJob](), list[str]()
        prove = proving(watch.clock, {"c": script or Script()}, self.started)
        patch.setattr(supervise, "prove", prove)
        self.folder = create_folder(root / "home" / "launches", watch.spec)
        backend = cast("Backend", watch.backend)
        self.newcomers = Newcomers(
            self.folder, 0, watch.monitor, backend, {}, self.warnings.append, run
        )

    def ask(
        self,
        part: LaunchPart = THIRD,
        share_percent: float = 30.0,
        forecast: Forecast | None = None,
        looks: int = 5,
        meanwhile: Callable[[str], object] = str,
        *,
        is_low: bool = False,
    ) -> JobStatus:
        """What it is told after so many looks, half a second apart."""
        beside = self.watch.spec.pairs[0].parts
        request = to_join(
            part, *beside, share_percent=share_percent, forecast=forecast, is_low=is_low
        )
        name = ask_join(self.folder, request)
        for look in range(looks):
            if look == 2:
                meanwhile(name)
            self.newcomers.look()
            self.watch.go_on(0.5)
        return join_status(self.folder, name, request)


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Door:
    return Door(monkeypatch, tmp_path, Watch(monkeypatch))


def test_newcomer_that_has_finished_before_it_was_ready_has_joined(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    door = Door(monkeypatch, tmp_path, Watch(monkeypatch), Script(ends_s=0))
    assert door.ask().joined_at
    assert door.watch.outcomes == ["running", "running", "finished"]


def test_jobs_that_run_are_watched_while_a_limit_is_proven(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    proofs = list[Future[Any]]()

    def run(_: Callable[[], Any], /) -> Future[Any]:
        proofs.append(Future())
        return proofs[-1]

    door = Door(monkeypatch, tmp_path, Watch(monkeypatch), run=run)
    said = door.ask()
    assert (len(proofs), bool(door.newcomers.coming), said.outcome) == (1, True, "waiting")
    assert door.watch.monitor.account.unwatched_s == 0
    proofs[0].set_exception(LimitNotProvenError("another SM count"))
    for _ in range(2):
        door.newcomers.look()
    assert (door.newcomers.coming, len(door.watch.monitor.jobs)) == (None, 2)


def test_what_is_expected_is_of_those_that_run(door: Door) -> None:
    assert door.ask(forecast=FORECAST).predicted_rate == RATE
    assert [one.expected for one in door.watch.monitor.jobs] == [RATE] * 3
    stale = door.ask(forecast=FORECAST)
    assert (stale.code, stale.predicted_rate) == (None, None)
    assert [one.expected for one in door.watch.monitor.jobs] == [None] * 4


def test_a_newcomer_may_run_below_normal_priority(door: Door) -> None:
    assert door.ask(is_low=True).below_normal
    assert door.started[0].share.below_normal
    assert door.watch.monitor.pair.split.below_normal == (2,)


def third(**job: Any) -> LaunchPart:
    return replace(THIRD, job=replace(THIRD.job, **job))


TURNS = {"split": without_limits("time-sliced", 2), "backend": {"mode": "time-sliced"}}
LARGE = replace(GPU, memory_mib=10_000)
SEVEN = {"split": Split((50.0,) * 7), "jobs": (THIRD.job,) * 7}


@pytest.mark.parametrize(
    ("running", "script", "part", "share_percent", "code", "words"),
    [
        # The server holds all to the largest share; without limits there is none to be had.
        ({}, Script(), THIRD, 50.1, "bad-input", "a share of 50.1 % cannot join"),
        (TURNS, Script(), THIRD, 30.0, "bad-input", "a limit of 30 % cannot join"),
        (SEVEN, Script(), THIRD, 10.0, "no-split", "7 jobs run together already"),
        ({"backend": {"gpu": replace(GPU, vendor="amd"), "mode": "cu_mask"}}, Script(), THIRD,
         30.0, "bad-input", "not possible on an AMD GPU"),
        ({"backend": {"max_clients": 0}}, Script(), THIRD, 30.0, "no-split",
         "no place for another client"),
        ({"backend": {"gpu": LARGE}}, Script(), third(memory_mib=9_990), 30.0, "no-split",
         "a, b and c need 0 + 0 + 9990 MiB of memory"),
        ({}, Script(), third(workdir=Path("/nonexistent")), 30.0, "bad-input", "no such folder"),
        ({}, Script(start=LimitNotProvenError("it saw 26")), THIRD, 30.0, "limit-not-proven", "26"),
        ({}, Script(limit=LimitNotProvenError("no client")), THIRD, 30.0, "limit-not-proven", "no"),
        ({}, Script(ends_s=0, status=7), THIRD, 30.0, "job", "c ended with status 7"),
        ({}, Script(ready_s=99), third(start_timeout_s=1), 30.0, "job", "did not come to its gate"),
    ],
)  # fmt: skip
def test_who_is_refused_leaves_all_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    running: dict[str, Any],
    script: Script,
    part: LaunchPart,
    share_percent: float,
    code: str,
    words: str,
) -> None:
    scripts = [Script() for _ in running.get("jobs", "ab")]
    door = Door(monkeypatch, tmp_path, Watch(monkeypatch, *scripts, **running), script)
    said = door.ask(part, share_percent)
    assert (said.outcome, said.code, words in (said.error or "")) == ("refused", code, True)
    assert door.watch.outcomes == ["running"] * len(scripts)
    assert (door.newcomers.coming, door.warnings) == (None, [])
    assert [job.stops for job in door.started] == [1] * len(door.started)


@pytest.mark.parametrize(
    ("split", "share_percent"), [(Split((50.0, 50.0)), 50.0), (TURNS["split"], 100.0)]
)
@pytest.mark.parametrize("is_limited", [True, False])
def test_a_newcomer_has_the_share_and_the_memory_that_the_others_leave(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    split: Split,
    share_percent: float,
    is_limited: bool,
) -> None:
    jobs = tuple(Job(name=name, command=("true",), memory_mib=1000) for name in "ab")
    watch = Watch(monkeypatch, jobs=jobs, split=split, backend={"gpu": LARGE, "max_clients": 1})
    door = Door(monkeypatch, tmp_path, watch)
    said = door.ask(replace(third(memory_mib=2000), limit_memory=is_limited), share_percent)
    left = MemoryFit((1000, 1000, 2000), 10_000).limit_mib(2)
    assert (said.outcome, said.share_percent) == ("running", share_percent)
    assert said.memory_limit_mib == (left if is_limited else None)
    assert (watch.pair.split.sharing, door.started[0].is_open) == (split.sharing, True)
    assert watch.monitor.pair.split.shares == (*split.shares, share_percent)


@pytest.mark.parametrize(
    ("is_withdrawn", "variables", "code", "words"),
    [
        (True, None, "bad-input", "was withdrawn"),
        (False, LimitNotProvenError("c has no limit"), "limit-broken", "c has no limit"),
    ],
)
def test_a_newcomer_that_starts_may_still_be_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    is_withdrawn: bool,
    variables: AdvisorError | None,
    code: str,
    words: str,
) -> None:
    """Also for a limit that it breaks while it loads: those that run are none the worse for it."""
    door = Door(monkeypatch, tmp_path, Watch(monkeypatch), Script(ready_s=60, variables=variables))
    said = door.ask(meanwhile=lambda name: is_withdrawn and withdraw(door.folder, name), looks=8)
    assert (said.outcome, said.code, words in (said.error or "")) == ("refused", code, True)
    assert (door.started[0].stops, door.watch.outcomes) == (1, ["running"] * 2)
    assert (door.watch.monitor.limit_broken, door.watch.monitor.newcomer_error) == (False, None)


def test_who_is_taken_down_while_it_starts_is_told_of_the_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It then tries again elsewhere: it is to blame for nothing."""
    faults = [Script(ends_s=second, status=1, tail=FAULT) for second in (1, 2)]
    door = Door(monkeypatch, tmp_path, Watch(monkeypatch, *faults), Script(ends_s=1, status=1))
    said = door.ask(looks=8)
    assert door.watch.outcomes == ["taken-down", "taken-down"]
    assert (said.code, "a fault on the MPS server ended the start" in (said.error or "")) == (
        "partition", True
    )  # fmt: skip


def test_an_answer_that_cannot_be_written_is_a_warning(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(supervise, "answer", full)
    assert (door.ask().outcome, len(door.watch.monitor.jobs)) == ("waiting", 3)
    assert door.warnings == ["the answer to c, which asked to join: No space left on device"]


def test_who_asks_what_cannot_be_read_is_told(door: Door) -> None:
    """As of a command of another version; who asked after it has its turn."""
    request = to_join(THIRD, *door.watch.spec.pairs[0].parts, share_percent=30.0)
    name = ask_join(door.folder, request)
    (door.folder.path / "joins" / f"{name}.asked.json").write_text("{")
    assert door.ask().outcome == "running"
    said = join_status(door.folder, name, request)
    assert (said.outcome, said.code) == ("refused", "bad-input")
    assert "the request to join cannot be read" in (said.error or "")
