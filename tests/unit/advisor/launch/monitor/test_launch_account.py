"""Energy for the same work of a launched pair: together, after one job has ended, to the end."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_results import pair_result

from advisor.core.job import Job
from advisor.core.objectives import Rest, Work, finish, one_after_the_other
from advisor.core.split import EQUAL, UNCAPPED, Split
from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, Readings, TelemetrySource
from advisor.errors import SourceError
from advisor.launch.account import Account, energy_saved
from advisor.launch.job_monitor import JobMonitor
from advisor.launch.meter import CardMeter, Metered, Moment
from advisor.launch.spec import LaunchPart, LaunchSet
from advisor.runtime.running_job import RunningJob

A, B = Job(name="a", command=("a",)), Job(name="b", command=("b",))
_RATES = st.floats(0.05, 1.0)
_POWERS = st.floats(90, 700)


def pair(
    split: Split = EQUAL, solo_power_a_w: float | None = 150, solo_power_b_w: float | None = 600
) -> LaunchSet:
    """Both do one step a second alone."""
    powers_w = solo_power_a_w, solo_power_b_w
    parts = (
        LaunchPart(job=job, solo_rate=1, solo_power_w=power_w, idle_power_w=70)
        for job, power_w in zip((A, B), powers_w, strict=True)
    )
    return LaunchSet(split=split, parts=tuple(parts))


class Run:
    """Two jobs and a source whose readings a test sets; ten looks a second."""

    def __init__(self, of: LaunchSet, *, metered: bool = True, counts: bool = True) -> None:
        self.now_s, self.total_j, self.metered = 0.0, 0.0, metered
        self.counts, self.power_w, self.silent = counts, 0.0, False
        self._steps = {A.name: 0.0, B.name: 0.0}
        self.jobs = (self._watched(A), self._watched(B))
        self._meter = CardMeter(cast("TelemetrySource", self))
        self.account = Account(of, self.jobs, self._metered(), Moment(0.0))

    def read(self, names: Collection[str]) -> Readings:
        if self.silent or not self.metered:
            raise SourceError("nothing answers")
        told = {ENERGY_GPU: self.total_j if self.counts else None, POWER_GPU: self.power_w}
        return {name: told[name] for name in names}

    def go_on(self, seconds: float, speed_a: float, speed_b: float, power_w: float) -> None:
        """Both run, or the one that is not over."""
        for _ in range(10):
            running = [one for one in self.jobs if not one.over]
            self.now_s += seconds / 10
            self.power_w = power_w
            self.total_j += power_w * seconds / 10
            for one, job, speed in zip(self.jobs, (A, B), (speed_a, speed_b), strict=True):
                self._steps[job.name] += speed * seconds / 10
                if not one.over:
                    one.look(Moment(self.now_s), one.count(lambda: self.now_s), None)
            self.account.add(Moment(self.now_s), self._metered(), running)

    def _metered(self) -> Metered | None:
        return self._meter.add(self._meter.read(), Moment(self.now_s))

    def _watched(self, job: Job) -> JobMonitor:
        def count(*, last: bool) -> float:
            return self._steps[job.name] + 0 * last

        running = SimpleNamespace(
            job=job, count=count, exit_code=None, latencies=tuple,
            proof=lambda: "set",
            granted=SimpleNamespace(units=66),
            beats=lambda: 0, uncounted=None,
        )  # fmt: skip
        return JobMonitor(cast("RunningJob", running), 0.0, 1.0, None)


@given(_RATES, _RATES, _POWERS, _RATES, _POWERS, st.floats(10, 1000), st.floats(10, 1000))
def test_it_is_what_the_arithmetic_of_two_jobs_to_their_end_says(
    speed_a: float, speed_b: float, power_w: float, rest: float, rest_w: float, first_s: float,
    rest_s: float,
) -> None:  # fmt: skip
    """advisor.core.objectives predicts the numbers that the watch then adds up."""
    run = Run(pair())
    run.go_on(first_s, speed_a, speed_b, power_w)
    run.jobs[0].end("finished")
    run.go_on(rest_s, 0, rest, rest_w)
    result = pair_result(
        rate_a=speed_a, rate_b=speed_b, solo_rate_a=1, solo_rate_b=1, solo_power_a_w=150,
        solo_power_b_w=600, power_w=power_w,
    )  # fmt: skip
    work = Work((speed_a * first_s, speed_b * first_s + rest * rest_s))
    whole = finish(result, work, (Rest(1, 1), Rest(rest, rest_w)))
    saved = 1 - whole.energy_j / one_after_the_other(result, work).energy_j
    assert run.account.overlap_s + run.account.rest_s == pytest.approx(whole.time_s)
    assert run.account.energy_saved_to_end() == pytest.approx(saved, abs=1e-6)
    apart, ledger = one_after_the_other(result, work), run.account.ledger()
    assert ledger is not None
    assert (ledger.held_s, ledger.energy_j) == (
        pytest.approx(whole.time_s), pytest.approx(whole.energy_j)
    )  # fmt: skip
    assert (ledger.alone_s, ledger.alone_j) == (
        pytest.approx(apart.time_s), pytest.approx(apart.energy_j)
    )  # fmt: skip
    # One card was free while both ran, and none afterwards.
    assert ledger.freed_idle_j == pytest.approx(70 * first_s)


def test_what_is_not_known_is_none() -> None:
    """Without energy, or a profile of either job, nothing is said; never 0."""
    for run in (Run(pair(), metered=False), Run(pair(solo_power_b_w=None))):
        run.go_on(20, 0.5, 0.5, 400)
        run.jobs[1].end("finished")
        run.go_on(20, 0.5, 0, 200)
        found = run.account
        assert found.recent_energy_saved() is None
        assert found.rest_energy_saved() is None
        assert found.energy_saved_to_end() is None
        assert found.ledger() is None
        assert found.rest_s == pytest.approx(20)


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("silent", [(20, 40), (0, 20), (40, 60)])
def test_energy_that_was_missed_is_not_saved(*, counts: bool, silent: tuple[int, int]) -> None:
    """A third of the time nothing answers; together they draw what they draw apart."""
    run = Run(pair(), counts=counts)
    for begin_s in range(0, 60, 5):
        run.silent = silent[0] <= begin_s < silent[1]
        run.go_on(5, 0.5, 0.5, 375)
    found, ledger = run.account, run.account.ledger()
    # A counter that answers again has gone on meanwhile.
    bridged = counts and silent[1] < 60
    assert ledger is not None
    assert ledger.alone_j - ledger.energy_j == pytest.approx(0, abs=200)
    assert ledger.unread_s == pytest.approx(0 if bridged else 20, abs=0.6)
    assert (ledger.held_s, ledger.alone_s) == (pytest.approx(60), pytest.approx(60))
    assert ledger.freed_idle_j == pytest.approx(70 * (60 - ledger.unread_s))
    # While it is silent nothing is said of now, and nothing of all of it unless that is known.
    assert found.power_w() == (None if run.silent else pytest.approx(375))
    assert found.settled_power_w() == pytest.approx(375)
    whole_j = pytest.approx(60 * 375) if bridged else None
    assert found.energy_j == whole_j
    assert found.energy_saved_to_end() == (pytest.approx(0, abs=1e-6) if bridged else None)


def test_without_a_rest_there_is_none() -> None:
    """The end is then that of the time together."""
    run = Run(pair())
    run.go_on(20, 0.5, 0.5, 300)
    assert (run.account.rest_s, run.account.rest_energy_j) == (0, None)
    assert run.account.rest_energy_saved() is None
    assert run.account.energy_saved_to_end() == pytest.approx(1 - 300 / 375)


def test_a_job_that_is_over_does_nothing() -> None:
    """The last seconds are those of the other one."""
    run = Run(pair())
    run.go_on(20, 0.5, 0.5, 300)
    assert run.account.recent_energy_saved() == pytest.approx(0.2)
    run.jobs[0].end("finished")
    run.go_on(20, 0, 0.8, 600)
    assert run.account.recent_energy_saved() == pytest.approx(-0.25)


def test_nothing_is_stranded_without_limits() -> None:
    """The other job has the whole GPU then."""
    run = Run(pair(UNCAPPED))
    run.go_on(10, 0.5, 0.5, 300)
    run.jobs[0].end("finished")
    run.go_on(10, 0, 1, 600)
    assert run.account.stranded_unit_s == 0
    assert run.account.rest_energy_saved() == pytest.approx(0)


def test_nothing_done_saves_nothing() -> None:
    """No division by nothing."""
    assert energy_saved(100.0, (0.0, 0.0), pair().parts) is None
    assert energy_saved(None, (1.0, 1.0), pair().parts) is None
    assert energy_saved(100.0, (None, 1.0), pair().parts) is None
    assert energy_saved(300.0, (0.5, 0.5), pair().parts) == pytest.approx(0.2)
