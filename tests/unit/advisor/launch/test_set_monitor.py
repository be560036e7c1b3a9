"""A pair that is watched on a clock of its own: who ended how, and what was said about it."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import astuple, replace
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st
from scripted_jobs import FAULT, GPU, Script, Watch, pid_of

from advisor.core import records
from advisor.core.gpu import Split, without_limits
from advisor.core.job import Job, Reported, ResultsSettings
from advisor.core.objectives import Interval
from advisor.core.records import DOUBTFUL, PAUSED, SETTLE_S, UNCOUNTED
from advisor.errors import (
    AdvisorError,
    JobError,
    LimitBrokenError,
    LimitNotProvenError,
    PartitionError,
)
from advisor.launch import account as accounts, set_monitor
from advisor.launch.account import LEAST_REQUESTS, WINDOW_S, WINDOWS, P99Watch
from advisor.launch.observe import observe, pace_news, shown, unsaid
from advisor.launch.spec import Forecast, JobForecast, LaunchSet
from advisor.progress import LATENCY_BUCKETS, latency_bucket
from advisor.runtime import running_job
from advisor.runtime.backend import Sight, named_in_faults
from advisor.runtime.running_job import RunningJob

FAILS: dict[str, Any] = {"status": 1, "tail": FAULT}


SAID = ((48, 10.0),)


WRONG = Reported(SAID, count=3, not_finite=1, last=float("nan"))


RIGHT, DIFFERS = Reported(SAID, count=1, last=10.0), Reported(((48, 11.0),), count=1, last=11.0)


SILENT = PartitionError("the daemon does not answer")


class Later:
    def __init__(self) -> None:
        self.calls: list[tuple[Callable[[], Any], Future[Any]]] = []

    def __call__(self, call: Callable[[], Any], /) -> Future[Any]:
        self.calls.append((call, Future()))
        return self.calls[-1][1]

    def answer(self) -> None:
        for call, answer in self.calls:
            try:
                answer.set_result(call())
            except AdvisorError as error:
                answer.set_exception(error)
        self.calls = []


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


def test_gates_open_and_both_are_counted(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, Script(rate=50), Script(rate=80))
    assert all(job.is_open for job in watch.jobs)
    monitor = watch.monitor
    assert monitor.jobs[0].rate() is None
    watch.go_on(0.5)
    assert [one.rate() for one in monitor.jobs] == [pytest.approx(50), pytest.approx(80)]
    watch.go_on(19.5)
    assert (monitor.over, watch.outcomes, monitor.mode) == (False, ["running", "running"], "mps")
    assert monitor.work_per_joule() == pytest.approx(1.3 / 400)
    assert monitor.account.trial().work_per_joule == pytest.approx(1.3 / 400)
    assert (monitor.account.first.overlap_s, monitor.first_ended) == (pytest.approx(20), ())
    assert monitor.alarms() == []
    assert not any(job.stops for job in watch.jobs)


def test_one_ends_and_the_other_goes_on(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, Script(units=92, ends_s=10), Script(units=40, rate=80, ends_s=30))
    watch.go_on(20)
    assert watch.monitor.work_per_joule() == pytest.approx(0.8 / 400)
    watch.go_on(40)
    assert watch.monitor.over
    assert (watch.outcomes, watch.monitor.first_ended) == (["finished", "finished"], (0,))
    first, _ = watch.monitor.jobs
    assert (first.exit_code, first.code, first.error) == (0, None, None)
    assert ([job.stops for job in watch.jobs], watch.monitor.work_per_joule()) == ([1, 1], None)


# hangs, and counts that cannot be read


def test_a_job_that_makes_no_progress_hangs(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, Script(hangs_s=10, tail="stuck"), hang_s=30.0)
    watch.go_on(39.5)
    assert watch.outcomes == ["running", "running"]
    watch.go_on(1.5)
    assert watch.outcomes == ["hung", "running"]
    first, _ = watch.monitor.jobs
    assert (first.code, first.error) == (
        "job-hung",
        "a made no progress for 30 s; its output is in /launch/a/output.log; the end of it:\nstuck",
    )
    assert [job.stops for job in watch.jobs] == [1, 0]


def test_a_server_that_nobody_asks_does_not_hang(patch: pytest.MonkeyPatch) -> None:
    for hangs_s in (0, 10):
        watch = Watch(patch, Script(hangs_s=hangs_s, idle=True), hang_s=30.0)
        watch.go_on(400)
        assert watch.outcomes == ["running", "running"]


def test_a_job_that_never_began_has_its_time_to_start(patch: pytest.MonkeyPatch) -> None:
    slow = Job(name="a", command=("true",), start_timeout_s=60)
    watch = Watch(
        patch, Script(hangs_s=0), hang_s=5.0, jobs=(slow, Job(name="b", command=("true",)))
    )
    watch.go_on(60)
    assert watch.outcomes[0] == "running"
    watch.go_on(1)
    assert watch.outcomes[0] == "hung"
    assert (watch.monitor.jobs[0].error or "").endswith("the end of it:\n(nothing)")


def test_progress_that_cannot_be_read_is_unknown_until_it_can(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, Script(broken_s=(20, 40)), hang_s=5.0)
    account = watch.monitor.account
    watch.go_on(19.5)
    assert account.recent_energy_saved() is not None
    assert account.first.flags == set()
    watch.go_on(10)
    assert watch.outcomes == ["running", "running"]
    first, second = (one.status() for one in watch.monitor.jobs)
    assert (first.rate, first.relative_speed) == (None, None)
    assert first.unread == "the progress of a cannot be read."
    assert first.unread_since is not None
    assert (second.unread, second.unread_since) == (None, None)
    assert (account.recent_energy_saved(), account.ledger()) == (None, None)
    assert account.energy_saved_to_end() is None
    assert UNCOUNTED in account.first.flags
    watch.go_on(12)
    first = watch.monitor.jobs[0].status()
    assert (first.rate, first.unread, first.unread_since) == (pytest.approx(50), None, None)
    assert account.first.rates() == (pytest.approx(50), pytest.approx(50))
    assert account.ledger() is not None


def test_slow_count_that_fails_is_tried_seldom(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch)
    tries: list[float] = []

    def count(**_: object) -> float:
        tries.append(watch.clock.now_s)
        watch.clock.sleep(1.0)
        raise JobError("the pattern took more than 1 s")

    patch.setattr(watch.jobs[0], "count", count)
    watch.go_on(30)
    assert watch.outcomes == ["running", "running"]
    assert all(later - earlier >= 10 for earlier, later in pairwise(tries))
    assert watch.monitor.account.unwatched_s == 0


def test_results_that_cannot_be_read_end_nothing(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, stop_on_wrong_results=True)

    def reported() -> Reported:
        raise JobError("the pattern is too slow")

    patch.setattr(watch.jobs[0], "reported", reported)
    watch.go_on(10)
    first = watch.monitor.jobs[0].status()
    assert (first.outcome, first.unread) == ("running", "the pattern is too slow.")
    assert first.rate == pytest.approx(50)
    assert UNCOUNTED in watch.monitor.account.first.flags


def test_a_job_without_progress_is_stalled_until_it_moves(patch: pytest.MonkeyPatch) -> None:
    """After two minutes, and nothing ends it: an evaluation or a checkpoint takes longer."""
    watch = Watch(patch, Script(hangs_s=10))
    watch.go_on(129.5)
    assert watch.monitor.jobs[0].status().stalled_since is None
    watch.go_on(1000)
    assert watch.outcomes == ["running", "running"]
    assert watch.monitor.jobs[0].status().stalled_since is not None
    watch.jobs[0].script.hangs_s = float("inf")
    watch.go_on(1)
    assert watch.monitor.jobs[0].status().stalled_since is None


def test_time_limit_ends_its_job_alone(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, parts={"time_limit_s": 30.0})
    watch.go_on(20)
    watch.join(Script(), time_limit_s=60.0)
    watch.go_on(15)
    assert watch.outcomes == ["failed", "failed", "running"]
    first = watch.monitor.jobs[0]
    assert (first.code, first.error) == ("time-limit", "a reached its limit of 30 s")
    assert [job.stops for job in watch.jobs] == [1, 1, 0]
    watch.go_on(60)
    assert watch.outcomes == ["failed", "failed", "failed"]
    assert watch.clock.now_s == pytest.approx(1080.5)


# the end


def test_what_is_left_to_be_read_is_counted_at_the_end(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, Script(ends_s=10, unfinished=7), Script(unfinished=9))
    watch.go_on(20)
    watch.clock.sleep(0.2)
    watch.monitor.stop()
    assert watch.outcomes == ["finished", "stopped"]
    assert [one.steps for one in watch.monitor.jobs] == [507, pytest.approx(1019)]
    assert all(job.is_closed for job in watch.jobs)
    ledger = watch.monitor.account.ledger()
    assert ledger is not None
    assert (ledger.alone_s, ledger.alone_j) == (pytest.approx(15.26), pytest.approx(15.26 * 300))


def test_nothing_that_waits_blocks_the_look(patch: pytest.MonkeyPatch) -> None:
    run = Later()
    watch = Watch(patch, Script(ends_s=5, unfinished=3), run=run)
    watch.go_on(60)
    # One question each to the server and to the clients, and the end of one job.
    assert (len(run.calls), watch.outcomes) == (3, ["finished", "running"])
    assert watch.monitor.jobs[1].steps == pytest.approx(3000)
    assert watch.monitor.account.unwatched_s == 0
    assert (watch.monitor.jobs[0].steps, watch.jobs[0].is_closed) == (250, False)
    run.answer()
    watch.go_on(0.5)
    assert (watch.monitor.jobs[0].steps, watch.jobs[0].is_closed) == (253, True)


def test_a_limit_that_does_not_hold_is_found_when_the_answer_is_there(
    patch: pytest.MonkeyPatch,
) -> None:
    limit = LimitNotProvenError("not under its limit")
    run = Later()
    watch = Watch(patch, Script(limit=limit, ends_s=17), Script(limit=limit), run=run)
    watch.go_on(16)
    run.answer()
    with pytest.raises(LimitBrokenError) as raised:
        watch.go_on(0.5)
    assert raised.value.jobs == frozenset({"a"})
    ended = Watch(patch, Script(limit=limit, ends_s=17), run=(late := Later()))
    ended.go_on(16.5)
    ended.clock.sleep(1)
    late.answer()
    ended.go_on(20)
    assert ended.outcomes == ["finished", "running"]


def test_breach_that_may_be_a_newcomer_is_asked_for_again(patch: pytest.MonkeyPatch) -> None:
    """It started while the driver was asked, which then took it for a stranger."""
    run = Later()
    watch = Watch(patch, run=run)

    def broken(_: object, **_options: object) -> None:
        raise LimitBrokenError("process 9 is a client of the MPS server and of no job")

    patch.setattr("advisor.launch.set_monitor.check_limits", broken)
    watch.go_on(1)
    watch.monitor.expect(cast("RunningJob", watch.jobs[0]))
    run.answer()
    watch.go_on(1)
    assert watch.outcomes == ["running", "running"]
    run.answer()
    with pytest.raises(LimitBrokenError):
        watch.go_on(0.5)


# faults


A, B, STRANGER = pid_of("a"), pid_of("b"), 7


GONE, ENDED, AT_11 = Script(ends_s=10, **FAILS), Script(ends_s=3), Script(ends_s=11, **FAILS)


OWN = Script(ends_s=4, status=1, tail="out of disk")


NOBODY_KNOWS = "which one caused it the driver does not tell"


@pytest.mark.parametrize(
    ("scripts", "backend", "outcomes", "said"),
    [
        # Two failures within seconds are a fault only where both speak of the GPU.
        ((replace(GONE, tail="no such file"), AT_11), {}, "failed failed", ""),
        ((GONE, replace(AT_11, tail="out of disk")), {}, "failed failed", ""),
        ((GONE, Script(ends_s=11, tail="cuda is done")), {}, "failed finished", ""),
        # Who had ended before is what it was, well or not.
        ((ENDED, OWN, GONE, AT_11), {}, "finished failed taken-down taken-down", "took c and d"),
        # The last one: a fault of the server, and one of its own.
        (
            (ENDED, Script()),
            {"faults_s": (10.0, 20.0)},
            "finished taken-down",
            "took b down, which had the GPU for itself",
        ),
        ((ENDED, GONE), {}, "finished failed", ""),
        # A fault that the server shows takes down who has not noticed it, whatever they say.
        (
            (replace(GONE, tail="?"), Script()),
            {"faults_s": (11.0, 20.0)},
            "taken-down taken-down",
            "the end of its output:\n(nothing)",
        ),
        # Without MPS there is no server to fault.
        ((GONE, GONE), {"mode": "cu_mask"}, "failed failed", ""),
        # Who is named alone has caused it; a process of no job is nobody.
        ((GONE, GONE), {"named": {B}}, "taken-down failed", "a fault of b took a down with it"),
        ((GONE, GONE), {"named": {B, STRANGER}}, "taken-down failed", f"names its process {B}"),
        ((GONE, GONE), {"named": {A, B}}, "taken-down taken-down", NOBODY_KNOWS),
        ((GONE, GONE), {"named": {STRANGER}}, "taken-down taken-down", NOBODY_KNOWS),
        ((GONE, GONE), {"named": set[int]()}, "taken-down taken-down", NOBODY_KNOWS),
    ],
)
def test_who_is_taken_down_by_whom(
    scripts: tuple[Script, ...],
    backend: dict[str, Any],
    outcomes: str,
    said: str,
    patch: pytest.MonkeyPatch,
) -> None:
    watch = Watch(patch, *scripts, split=Split((50.0,) * len(scripts)), backend=backend)
    watch.go_on(20)
    last = watch.monitor.jobs[-1]
    assert (watch.outcomes, said in (last.error or "")) == (outcomes.split(), True)
    assert (last.code == "mps-fault") == bool(said)


def test_a_job_that_ended_well_waits_for_no_fault(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, Script(ends_s=10))
    watch.go_on(10)
    assert (watch.backend.asked, watch.clock.now_s) == (10, 1010.0)


# limits


def test_one_answer_that_comes_too_late_ends_nothing(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, backend={"errors": [SILENT, None, SILENT, None]})
    watch.go_on(10)
    assert watch.outcomes == ["running", "running"]
    again = Watch(patch, backend={"errors": [SILENT, SILENT]})
    with pytest.raises(PartitionError):
        again.go_on(10)
    assert again.clock.now_s == pytest.approx(1002.0)


def test_limits_are_proven_until_what_holds_them_answered_last(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, Script(ends_s=3), backend={"errors": [None] * 6 + [SILENT, SILENT]})
    patch.setattr(set_monitor, "now_text", lambda: f"12:00:{watch.clock.now_s - 1000:02.0f}")
    with pytest.raises(PartitionError):
        watch.go_on(10)
    watch.monitor.lose_limits()
    for _ in range(2):
        ended, runs = (one.status() for one in watch.monitor.jobs)
        assert (ended.proven, ended.proof, ended.error) == (True, "set", None)
        assert (runs.proven, runs.proof) == (False, None)
        assert runs.error is not None
        assert "was proven until 12:00:06" in runs.error
        watch.monitor.stop()
    assert watch.outcomes == ["finished", "stopped"]


def test_a_limit_that_somebody_lifts_ends_the_pair(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, split=Split((30.0, 50.0)), backend={"given": 50.0})
    watch.go_on(5)
    watch.backend.given = 51.0
    with pytest.raises(LimitBrokenError, match="gives 51 % to what starts now, and was set to 50"):
        watch.go_on(5)
    assert watch.monitor.limit_broken
    assert watch.outcomes == ["running", "running"]
    watch.monitor.stop()
    assert all(job.stops for job in watch.jobs)


def test_a_job_that_changed_its_variables_has_failed(patch: pytest.MonkeyPatch) -> None:
    error = LimitNotProvenError("process 7 has no limit", why="why", fix="fix")
    watch = Watch(patch, b=Script(variables=error))
    with pytest.raises(LimitBrokenError) as raised:
        watch.go_on(5)
    assert raised.value.jobs == frozenset({"b"})
    assert [one.status().proven for one in watch.monitor.jobs] == [True, False]
    assert (raised.value.what, raised.value.why) == ("process 7 has no limit", "why")
    assert raised.value.fix == "fix"
    assert (watch.outcomes, watch.monitor.jobs[1].code) == (["running", "failed"], "limit-broken")
    assert watch.monitor.limit_broken


def test_limits_are_asked_for_once_in_fifteen_seconds(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch)
    asked: list[float] = []
    patch.setattr(watch.jobs[0], "check_client", lambda: asked.append(watch.clock.now_s))
    watch.go_on(35)
    assert asked == [1015.0, 1030.0]


def test_a_job_that_is_faster_than_its_share_lets_it_be_is_not_proven(
    patch: pytest.MonkeyPatch,
) -> None:
    """It may have changed its limit before its first context; only its profile tells."""
    watch = Watch(patch, Script(rate=60), Script(rate=70), parts={"share_rate": 50.0})
    watch.go_on(2)
    assert list(pace_news(watch.monitor)) == []
    watch.go_on(20)
    told = set[str]()
    (said,) = unsaid(pace_news(watch.monitor), told)
    assert said.startswith("b runs at 1.4 times the rate of its profile at 50 %")
    assert [(one.status().proven, one.status().proof) for one in watch.monitor.jobs] == [
        (True, "set"), (False, None)
    ]  # fmt: skip
    assert unsaid(pace_news(watch.monitor), told) == []


@pytest.mark.parametrize(("whole", "proven"), [(70.0, False), (65.0, True)])
def test_speed_tells_of_a_limit_only_where_more_sms_give_more(
    patch: pytest.MonkeyPatch, whole: float, proven: bool
) -> None:
    parts = {"share_rate": 50.0, "solo_rate": whole}
    watch = Watch(patch, Script(rate=60), Script(rate=80), parts=parts)
    watch.go_on(22)
    assert bool([*pace_news(watch.monitor)]) is not proven
    assert watch.monitor.jobs[1].status().proven is proven


def test_jobs_that_nvml_does_not_name_are_said_once(patch: pytest.MonkeyPatch) -> None:
    """After five seconds: one that is ready may have no context yet."""
    watch = Watch(patch, backend={"seen": Sight(frozenset(), None)})
    watch.go_on(5)
    assert watch.monitor.alarms() == []
    watch.go_on(1)
    (said,) = watch.monitor.alarms()
    assert said.startswith("NVML names no process of these jobs")
    watch.go_on(30)
    assert watch.monitor.alarms() == []


def test_a_stranger_on_the_gpu_is_told_once_and_ends_a_strict_launch(
    patch: pytest.MonkeyPatch,
) -> None:
    """Two seconds of somebody else cost nobody days; what is seen meanwhile teaches nothing."""
    patch.setattr(running_job, "has_memory", {STRANGER}.__contains__)
    seen = {"seen": Sight(frozenset({A, B, STRANGER}), None)}
    watch = Watch(patch, backend=seen)
    watch.go_on(20)
    (said,) = watch.monitor.alarms()
    assert (said.split()[:2], "belongs to no job" in said) == (["process", f"{STRANGER}"], True)
    assert watch.monitor.account.first.flags == {records.STRANGER}
    assert [one.status().proven for one in watch.monitor.jobs] == [True, True]
    with pytest.raises(LimitBrokenError, match="is of no job"):
        Watch(patch, backend=seen, strict=True).go_on(5)


def test_a_job_of_several_clients_is_said_when_there_are_more(patch: pytest.MonkeyPatch) -> None:
    """MPS gives each client the whole percentage, so together they may take more than it."""
    counts = [[1, 1], [3, 1], [3, 1], [2, 1]]

    def counted(_: object) -> list[int]:
        return counts.pop(0)

    patch.setattr("advisor.launch.set_monitor.clients_of", counted)
    watch = Watch(patch)
    watch.go_on(14)
    assert watch.monitor.alarms() == []
    watch.go_on(40)
    (said,) = watch.monitor.alarms()
    assert said.startswith("a has 3 clients of MPS, and its 50 % are of each: together they may")
    assert "may take 100 % (132 units) of the GPU" in said


# results


def test_wrong_results_are_said_once(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, Script(reported=WRONG), parts={"reported": "48=10"})
    watch.go_on(5)
    assert watch.monitor.alarms() == [
        "a at 50 % (66 units) reported a result that is not finite (nan)"
    ]
    assert (watch.monitor.alarms(), watch.outcomes) == ([], ["running", "running"])
    assert watch.monitor.jobs[0].results == "wrong"


def test_wrong_results_end_the_pair_where_that_was_asked_for(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(
        patch, Script(reported=WRONG), stop_on_wrong_results=True, backend={"mode": "uncapped"}
    )
    watch.go_on(5)
    assert watch.outcomes == ["failed", "stopped"]
    first, _ = watch.monitor.jobs
    assert first.code == "wrong-results"
    assert first.error == "a at 50 % (66 units) reported a result that is not finite (nan)"
    assert watch.monitor.first_ended == (0,)
    assert all(job.stops for job in watch.jobs)


def test_a_job_that_ended_with_wrong_results_has_ended(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, Script(reported=RIGHT, ends_s=5), stop_on_wrong_results=True)
    watch.go_on(4.5)
    watch.jobs[0].script.reported = WRONG
    watch.go_on(2)
    assert (watch.outcomes, len(watch.monitor.alarms())) == (["finished", "running"], 1)


def test_results_are_held_against_those_on_the_whole_gpu(patch: pytest.MonkeyPatch) -> None:
    loose = Job(name="b", command=("true",), results=ResultsSettings(tolerance=0.2))
    jobs = (Job(name="a", command=("true",)), loose)
    both = (Script(reported=DIFFERS), Script(reported=DIFFERS))
    watch = Watch(patch, *both, jobs=jobs, parts={"reported": "48=10"})
    watch.go_on(1)
    assert watch.monitor.alarms() == [
        "the results of a at 50 % (66 units) differ from those on the whole GPU by 10 %, more "
        "than its tolerance of 1 %"
    ]
    assert [one.results for one in watch.monitor.jobs] == ["differ", "right"]


# what is written down


def test_libraries_are_read_once_after_some_seconds(patch: pytest.MonkeyPatch) -> None:
    read: list[float] = []

    def libraries(_: object) -> str:
        read.append(watch.clock.now_s)
        return "torch 2"

    patch.setattr(set_monitor, "loaded_libraries", libraries)
    watch = Watch(patch, Script(ends_s=1))
    watch.go_on(20)
    assert (read, [one.libraries for one in watch.monitor.jobs]) == ([1003.0], [None, "torch 2"])


def test_the_look_that_finds_an_end_is_in_no_mean(patch: pytest.MonkeyPatch) -> None:
    watch = Watch(patch, Script(ends_s=10.1), Script(rate=80))
    watch.go_on(10)
    before = watch.monitor.account.first.rates()
    watch.go_on(10)
    assert watch.monitor.account.first.rates() == before
    assert watch.monitor.account.first.power_w() == pytest.approx(400)


@pytest.mark.parametrize("stalls", [1, 4, 20])
@pytest.mark.parametrize("job", [True, False])
def test_stop_of_the_watch_between_clock_and_counters_makes_no_power(
    patch: pytest.MonkeyPatch, *, stalls: int, job: bool
) -> None:
    """A busy host stops it anywhere: with the time taken before, 0.5 s made 514 W of 400 W."""
    watch = Watch(patch, Script(rate=50), Script(rate=80))
    watch.go_on(4.5, 0.25)
    (watch.jobs[0] if job else watch.meter).stalls_s += [0.5] * stalls
    watch.go_on(0.25, 0.25)
    account = watch.monitor.account
    assert (account.power_w(), account.first.power_w()) == (pytest.approx(400), pytest.approx(400))
    assert account.first.rates() == (pytest.approx(50), pytest.approx(80))
    assert watch.monitor.work_per_joule() == pytest.approx(1.3 / 400)
    # Where nobody knows when it was read last, nobody knows how much it was at the end.
    assert account.first.energy_j == (
        pytest.approx(400 * account.first.overlap_s) if stalls < 5 else None
    )
    watch.meter.stalls_s, watch.jobs[0].stalls_s = [], []
    watch.go_on(0.25, 0.25)
    assert account.first.energy_j == pytest.approx(400 * account.first.overlap_s)
    assert watch.monitor.work_per_joule() == pytest.approx(1.3 / 400)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 99_999))))
def test_only_lines_about_faults_count(lines: list[tuple[bool, int]]) -> None:
    """That a client has connected says nothing of it; nor does the number of the server."""
    what = {True: "encountered a memory fault", False: "connected"}
    log = "\n".join(f"[.. Server 5] Client {{PID: {pid}}} {what[bad]}" for bad, pid in lines)
    assert named_in_faults(log) == {pid for bad, pid in lines if bad}
    assert named_in_faults("[.. Server 12] Server encountered a fatal exception") == set()


SERVER = Job(name="serve", command=("true",), max_p99_ms=50)


TRAIN, SCORE = (Job(name=name, command=("true",)) for name in ("train", "score"))


OTHER = Job(name="other", command=("true",), offered_rate=10.0)


SLOW, FAST = Script(late_ms=(80.0,)), Script(late_ms=(20.0,))


LONG_S = 3 + WINDOWS * (WINDOW_S + 1)


def watched(patch: pytest.MonkeyPatch, server: Script, *jobs: Job, **spec: Any) -> Watch:
    return Watch(patch, server, *[Script() for _ in jobs[1:]], jobs=jobs, **spec)


def test_a_promise_that_is_broken_for_some_windows_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = watched(monkeypatch, SLOW, SERVER, TRAIN)
    watch.go_on(3 + WINDOW_S + 1)
    assert watch.monitor.jobs[0].status().latency_p99_ms == pytest.approx(80, rel=0.03)
    assert watch.monitor.alarms() == []
    watch.go_on(LONG_S)
    (said, *_) = watch.monitor.alarms()
    assert "the p99 of serve is 8" in said
    assert f"above the 50 ms that are promised, in {WINDOWS} windows in a row" in said
    assert watch.outcomes == ["running", "running"]
    watch.monitor.stop()
    seen = observe(watch.monitor, GPU, launch_id="l", started_at="", state="stopped")[0]
    assert "p99-broken" in seen.flags


@pytest.mark.parametrize(
    ("bounds_ms", "said"),
    [
        ((40.0, 60.0, 100.0), "the p99 of serve is between 60 and 100 ms, above the 50 ms"),
        ((40.0, 60.0, float("inf")), "the p99 of serve is above 60 ms, above the 50 ms"),
        ((40.0, 100.0), "the p99 of serve is between 40 and 100 ms, the bounds"),
    ],
)
def test_a_promise_within_a_bucket_of_the_server_is_not_known_to_be_broken(
    monkeypatch: pytest.MonkeyPatch, bounds_ms: tuple[float, ...], said: str
) -> None:
    """Requests of a wide bucket are spread over it, so its p99 is anywhere in it."""
    watch = watched(monkeypatch, replace(SLOW, bounds_ms=bounds_ms), SERVER, TRAIN)
    watch.go_on(LONG_S)
    (told,) = watch.monitor.alarms()
    assert told.startswith(said)


def test_the_newest_batch_job_is_ended_where_that_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = watched(
        monkeypatch, SLOW, SERVER, TRAIN, SCORE, OTHER, when_p99_breaks="end-newest",
        when_one_ends="stop", split=without_limits("uncapped", 4),
    )  # fmt: skip
    watch.go_on(LONG_S)
    assert watch.outcomes == ["running", "running", "stopped", "running"]
    one = watch.monitor.jobs[2].status()
    assert "ended since the p99 of serve is 8" in (one.error or "")
    assert (one.ended_at is not None, watch.monitor.jobs[2].code) == (True, None)
    assert watch.monitor.alarms()[0].startswith("score was ended: the p99 of serve")
    watch.go_on(LONG_S)
    assert watch.outcomes == ["running", "stopped", "stopped", "running"]
    watch.go_on(LONG_S)
    assert watch.outcomes == ["running", "stopped", "stopped", "running"]
    assert watch.monitor.alarms()[-1].startswith("the p99 of serve is")
    watch.monitor.stop()
    seen = observe(watch.monitor, GPU, launch_id="l", started_at="", state="stopped")
    assert [len(one.parts) for one in seen] == [4, 3, 2]
    assert all("p99-broken" in one.flags for one in seen)
    assert not any(part.ended_first for part in seen[0].parts)


ASKED = Job(name="serve", command=("true",), offered_rate=60.0, max_p99_ms=50)


def cold(now_s: float) -> float:
    """60 a second arrive; it begins after 15 s, and answers up to 72: until 90 s."""
    return max(0.0, min(60 * now_s, 72 * (now_s - 15)))


def test_a_server_that_catches_up_teaches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its rate nor that of who runs beside it, nor its p99, before its queue is empty."""
    script = replace(SLOW, rate=60.0, steps=cold)
    watch = watched(monkeypatch, script, ASKED, TRAIN, parts={"solo_rate": 60.0})
    watch.go_on(30)
    monitor, seen = watch.monitor, set[float | None]()
    for _ in range(58):
        watch.go_on(1)
        seen |= {*monitor.account.first.rates(), monitor.account.first.power_w()}
    assert (seen, monitor.alarms()) == ({None}, [])
    watch.go_on(30)
    assert monitor.account.first.rates() == (pytest.approx(60), pytest.approx(50))
    assert len(monitor.alarms()) == 1, "its p99 is watched from then on"
    last = observe(monitor, GPU, launch_id="l", started_at="", state="stopped")[0]
    assert "backlog" not in last.flags
    assert last.settled_s == pytest.approx(118 - 90 - 6, abs=4)


def test_a_server_that_does_not_catch_up_in_two_minutes_is_flagged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = watched(monkeypatch, Script(rate=76.5), replace(ASKED, max_p99_ms=None), TRAIN)
    watch.go_on(110)
    assert watch.monitor.account.first.rates() == (None, None)
    watch.go_on(30)
    seen = observe(watch.monitor, GPU, launch_id="l", started_at="", state="stopped")[0]
    assert ("backlog" in seen.flags, seen.parts[0].rate) == (True, pytest.approx(76.5))


def falls(now_s: float) -> float:
    """60 requests/s arrive for 200 s, and 20 after that."""
    return 60 * min(now_s, 200) + 20 * max(0.0, now_s - 200)


LESS = Forecast(
    model_version="m",
    jobs=(JobForecast(rate=Interval(20.0, 19.0, 21.0), solo_rate=20.0),) * 2,
    power_w=Interval(250.0, 240.0, 260.0),
    work_per_joule=Interval(0.005, 0.004, 0.006),
    coverage=0.9,
)


@pytest.mark.parametrize(
    ("choice", "broken", "outcome"),
    [
        ("tell", "b", "running"),
        ("end-newest", "b", "stopped"),
        ("end-newest", "", "running"),
        ("end-newest", "fails", "running"),
    ],
)
def test_another_demand_renews_once_what_is_expected(
    monkeypatch: pytest.MonkeyPatch, choice: str, broken: str, outcome: str
) -> None:
    asked = list[Any]()

    def renew(pair: LaunchSet, demands: Sequence[float | None]) -> tuple[Forecast, tuple[str, ...]]:
        asked.append((len(pair.parts), list(demands)))
        if broken == "fails":
            raise RuntimeError("no model")
        return LESS, ("serve breaks its promise",) if broken else ()

    script = replace(FAST, rate=60.0, steps=falls)
    watch = watched(
        monkeypatch, script, ASKED, TRAIN, renew=renew, when_p99_breaks=choice,
        parts={"solo_rate": 60.0},
    )  # fmt: skip
    watch.go_on(300)
    assert (asked, watch.monitor.jobs[0].status().demand) == ([], None)
    watch.go_on(300)
    assert asked == [(2, [pytest.approx(20), None])]
    if broken == "fails":
        assert watch.monitor.alarms()[-1] == "no forecast since another demand arrives: no model"
        return
    server = watch.monitor.jobs[0].status()
    assert (server.demand, server.relative_speed) == (pytest.approx(20), pytest.approx(1))
    assert (server.predicted_rate, watch.outcomes) == (LESS.jobs[0].rate, ["running", outcome])
    told = watch.monitor.alarms()
    assert told[0].startswith("20 steps/s arrive at serve, which declares 60")
    assert (len(told), "serve breaks its promise" in told[-1]) == (1 + bool(broken), bool(broken))
    seen = observe(watch.monitor, GPU, launch_id="l", started_at="", state="stopped")[0]
    assert "other-demand" in seen.flags


def promised(rate: float, work_per_joule: float = 0.0025, jobs: int = 2) -> Forecast:
    """Of jobs that each make 100 steps per second alone."""
    each = JobForecast(rate=Interval(rate, 0.9 * rate, 1.1 * rate), solo_rate=100.0)
    worth = Interval(work_per_joule, 0.8 * work_per_joule, 1.2 * work_per_joule)
    return replace(LESS, jobs=(each,) * jobs, work_per_joule=worth)


def drifts(watch: Watch) -> tuple[Any, ...]:
    now = shown(watch.monitor)
    jobs = [job.drift and round(job.drift.ratio, 2) for job in now["jobs"]]
    both = [one and round(one.ratio, 2) for one in (now["speed_drift"], now["work_drift"])]
    return *jobs, *both, now["promise_renewed"]


def test_the_last_minutes_and_all_work_are_held_against_what_was_promised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One job runs at its promise, the other for 600 s; then at 40 of the 50 steps per second."""
    slower = Script(steps=lambda s: 50 * min(s, 600) + 40 * max(0.0, s - 600))
    watch = Watch(monkeypatch, None, slower, forecast=promised(50.0))
    watch.go_on(6)
    assert drifts(watch) == (None, None, None, None, None)
    watch.go_on(594)
    assert drifts(watch) == (1, 1, 1, 1, None)
    watch.go_on(400)
    assert drifts(watch) == (1, 0.8, 0.9, 0.96, None)
    assert astuple(shown(watch.monitor)["speed_drift"]) == pytest.approx((0.9, 0.9, 1.1), rel=0.01)
    watch.monitor.stop()
    # It stays, as what the launch came to.
    assert drifts(watch)[:4] == (1, 0.8, 0.9, 0.96)


def test_nothing_is_held_against_a_promise_while_a_job_is_paused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are slow before; the other one has the GPU for itself meanwhile."""
    stopped = Script(steps=lambda s: 25 * min(s, 100) + 50 * max(0.0, s - 200))
    beside = Script(steps=lambda s: 25 * min(s, 100) + 90 * min(100, max(0.0, s - 100))
                    + 50 * max(0.0, s - 200))  # fmt: skip
    watch = Watch(monkeypatch, stopped, beside, forecast=promised(50.0))
    watch.go_on(100)
    assert drifts(watch) == (0.5, 0.5, 0.5, 0.5, None)
    monkeypatch.setattr(accounts, "is_stopped", frozenset({pid_of("a")}).__contains__)
    watch.go_on(99)
    assert drifts(watch) == (None, None, None, None, "a job was paused")
    assert [job.paused for job in shown(watch.monitor)["jobs"]] == [True, False]
    monkeypatch.setattr(accounts, "is_stopped", frozenset[int]().__contains__)
    watch.go_on(30)
    assert drifts(watch) == (1, 1, 1, 1, "a job was paused")


def test_no_mean_has_the_time_in_which_a_job_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whom a signal stops for 10 of 60 s; the other one is faster, and all draw less meanwhile."""
    stopped = Script(steps=lambda s: 50 * min(s, 30) + 50 * max(0.0, s - 40), late_ms=(5.0,))
    beside = Script(steps=lambda s: 50 * s + 40 * min(10, max(0.0, s - 30)), late_ms=(5.0,))
    watch = Watch(monkeypatch, stopped, beside)
    watch.go_on(30)
    monkeypatch.setattr(accounts, "is_stopped", frozenset({pid_of("a")}).__contains__)
    watch.go_on(2)
    assert [job.paused for job in shown(watch.monitor)["jobs"]] == [True, False]
    watch.go_on(8)
    monkeypatch.setattr(accounts, "is_stopped", frozenset[int]().__contains__)
    watch.go_on(20)
    stretch = watch.monitor.account.first
    assert stretch.rates() == (pytest.approx(50, rel=0.01), pytest.approx(50, rel=0.01))
    assert (stretch.power_w(), stretch.flags) == (pytest.approx(400), {PAUSED})
    assert stretch.settled_s() == pytest.approx(60 - SETTLE_S - 10, abs=1)
    assert stretch.latency_ms(0, 99) == pytest.approx(5.0, rel=0.03)
    assert PAUSED in DOUBTFUL


def test_a_job_that_goes_on_though_a_process_of_it_is_stopped_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As under a shell that is; each of its steps takes longer than a look."""
    watch = Watch(monkeypatch, Script(steps=lambda s: float(int(s))))
    monkeypatch.setattr(accounts, "is_stopped", frozenset({pid_of("a")}).__contains__)
    watch.go_on(60)
    assert not watch.monitor.jobs[0].paused
    assert watch.monitor.account.first.rates()[0] == pytest.approx(1, rel=0.03)


def test_who_is_left_has_a_promise_once_it_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Any]()

    def renew(pair: LaunchSet, demands: Sequence[float | None]) -> tuple[Forecast, tuple[str, ...]]:
        asked.append((pair.split.shares, list(demands)))
        return promised(50.0), ()

    watch = Watch(
        monkeypatch, Script(ends_s=100), None, Script(), renew=renew,
        split=Split((50.0, 30.0, 20.0)), forecast=promised(25.0, 0.00375, jobs=3),
    )  # fmt: skip
    watch.go_on(90)
    assert drifts(watch) == (2, 2, 2, 2, 1, None)
    watch.go_on(20)
    assert (asked, drifts(watch)) == ([((30, 20), [None, None])], (None, 1, 1, 1, 1, "a left"))
    assert watch.monitor.jobs[1].expected == promised(25.0).jobs[0].rate


@pytest.mark.parametrize("tells", [True, False])
def test_a_server_that_is_starved_has_no_other_demand(
    monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    """It answers a third, each one later; or tells no latencies, so that nobody knows."""
    watch = watched(monkeypatch, Script(rate=60.0, steps=falls), ASKED, TRAIN)

    def latencies() -> tuple[int, ...]:
        newest = latency_bucket(0.02 + 0.05 * max(0.0, watch.clock.now_s - 1000))
        return tuple(1000 * (bucket <= newest) for bucket in range(LATENCY_BUCKETS * tells))

    monkeypatch.setattr(watch.jobs[0], "latencies", latencies)
    watch.go_on(600)
    assert watch.monitor.jobs[0].demand is None


@given(
    st.lists(st.lists(st.sampled_from([20.0, 49.0, 54.0, 80.0]), min_size=10, max_size=10)),
    st.integers(1, 400),
)
def test_only_whole_windows_in_a_row_break_it(windows: list[list[float]], each: int) -> None:
    counts = [0] * LATENCY_BUCKETS

    class Server:
        def latencies(self) -> tuple[int, ...]:
            return tuple(counts)

        def latency_bounds_ms(self) -> tuple[float, ...]:
            return ()

    watch, now_s = P99Watch(cast("RunningJob", Server()), 50.0, 0.0), 3.0
    assert not watch.look(now_s)
    row, asked, late = 0, 0, 0
    for window in windows:
        for late_ms in window:
            counts[latency_bucket(late_ms / 1000)] += each
            asked += each
            late += each * (late_ms > 50)
        now_s += WINDOW_S
        told = watch.look(now_s)
        if asked < LEAST_REQUESTS:
            assert not told
            continue
        row = row + 1 if asked - late < 0.99 * asked else 0
        assert told == (row > 0 and row % WINDOWS == 0)
        asked = late = 0
