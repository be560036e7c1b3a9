"""A sweep on a GPU of this host, or a replay, as `advisor profile` and `advisor.profile` ask it."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from advisor.core.gpu import Gpu, Share
from advisor.core.job import Job, ProgressKind
from advisor.core.records import SoloPoint
from advisor.formats.rows import to_row
from advisor.runtime.jobs.launcher import check_program
from advisor.settings import Settings, read_settings
from advisor.validity.degenerate import with_solo_flags
from advisor.validity.safe_counts import Safety
from advisor.validity.safe_splits import moved_text
from advisor.validity.usable import why_no_profile
from advisor.wire.frames import Tabular
from advisor_cli.measure.profile_request import ProfileRequest
from advisor_cli.measure.testbeds import known_timing, open_points, open_testbed, say_replay
from advisor_cli.shared.console import plain_console
from advisor_data import Store
from advisor_power.data.of_job import with_fingerprint
from advisor_profiling.campaign.outcome import Reporter
from advisor_profiling.campaign.safe_plan import check_asked_shares, counts_on, default_shares
from advisor_profiling.campaign.sweep import (
    DEFAULT_SHARES,
    SweepResult,
    new_run,
    plan,
    sweep,
    unfinished_run,
)
from advisor_profiling.reports.sweep import ConsoleReporter, problems
from advisor_profiling.testbed.live import Mode, SourceName
from advisor_profiling.testbed.testbed import Testbed
from advisor_profiling.window.clock import LiveClock
from advisor_profiling.window.rules import WindowRules, rules_for


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Profiled(Tabular):
    """What a sweep measured.

    Attributes:
        points: Those of the run, of an earlier call included that it went on with.
        lacking: Why these and what was stored make no profile yet; None: they make one.
    """

    job: Job
    gpu: Gpu
    points: tuple[SoloPoint, ...]
    result: SweepResult
    lacking: str | None

    @property
    def problems(self) -> list[str]:
        """What went wrong, in words; empty: nothing."""
        return problems(list(self.points), self.result, self.gpu.memory_mib)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The points, with the columns of docs/schema.md."""
        for point in sorted(self.points, key=lambda p: (p.share_percent, p.repeat)):
            yield {**to_row(point), "flags": ";".join(point.flags)}


def profile(
    *what: str,
    name: str | None = None,
    unit: str = "steps",
    progress: ProgressKind | None = None,
    pattern: str | None = None,
    shares: str | Sequence[float] = "",
    units: str | Sequence[int] = "",
    repeats: int = 1,
    window: float = 8,
    gpu: str | int = "0",
    source: SourceName | None = None,
    mode: Mode | None = None,
    noise: bool = False,
    allow_unsafe: bool = False,
    resume: bool = True,
) -> Profiled:
    """Measure a job alone at each share: rate, power and counters.

    Each point is kept as soon as it is measured; after Ctrl-C the same call goes on. How far it is
    stands on stderr, as of the command.

    Args:
        what: Name of a job, or its file; with `name` the words of a command.
        name: Of a job given as a command.
        unit: With `name`: what one step is.
        progress: With `name`: how progress is read; else found in the output.
        pattern: Of the output.
        shares: Percentages, such as `[10, 50, 100]`.
        units: Exact counts of SMs.
        repeats: Windows per share.
        window: Longest window, s.
        gpu: Index, UUID or `replay`.
        source: Telemetry; the vendor's if not given.
        mode: How shares are enforced.
        noise: Replay with the measured noise.
        allow_unsafe: Also at counts of SMs at which results are wrong.
        resume: Whether to go on with the last run.

    Raises:
        AdvisorError: as the command ends with.
    """
    asked = ProfileRequest(
        what=[*what],
        name=name,
        progress=progress,
        unit=unit,
        pattern=pattern,
        shares=_listed(shares),
        units=_listed(units),
        repeats=repeats,
        gpu=str(gpu),
        source=source,
        mode=mode,
        window=window,
        noise=noise,
        allow_unsafe=allow_unsafe,
        resume=resume,
    )
    asked.check()
    return measure(asked, read_settings(), plain_console(stderr=True))


def measure(asked: ProfileRequest, settings: Settings, console: Console) -> Profiled:
    """Run the sweep; the console is told how far it is."""
    job = asked.job(settings)
    if not asked.replayed:
        check_program(job, settings.job_environment())
        job = with_fingerprint(job)
    with _opened(asked, job, settings, console) as opened:
        shares = _shares(opened, _safety(opened, settings))
        points, result = _measure(opened, shares)
        gpu = opened.testbed.gpu
        stored = [p for p in opened.store.solo_points(job=job.name) if p.gpu_model == gpu.model]
    return Profiled(
        job=job,
        gpu=gpu,
        points=tuple(points),
        result=result,
        lacking=why_no_profile(stored or points),
    )


def _listed(values: str | Sequence[float]) -> str:
    return values if isinstance(values, str) else ",".join(f"{value:g}" for value in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep:
    """A job, and everything open that measuring it needs."""

    asked: ProfileRequest
    job: Job
    run: str
    testbed: Testbed
    store: Store
    rules: WindowRules
    reporter: Reporter
    console: Console


@contextmanager
def _opened(
    asked: ProfileRequest, job: Job, settings: Settings, console: Console
) -> Generator[_Sweep]:
    """The testbed, and the store that its points go to."""
    rules = rules_for(asked.window, known_timing(settings, asked.gpu, asked.source, console))
    run = new_run(LiveClock().utc())
    seed = run if asked.noise else None
    with open_testbed(settings, asked.gpu, asked.source, asked.mode, run, noise=seed) as testbed:
        if asked.replayed:
            say_replay(console, testbed.gpu.model, asked.noise)
        with open_points(settings, asked.gpu) as store:
            yield _Sweep(
                asked=asked,
                job=job,
                run=run,
                testbed=testbed,
                store=store,
                rules=rules,
                reporter=ConsoleReporter(console, replayed=asked.replayed),
                console=console,
            )


def _safety(opened: _Sweep, settings: Settings) -> Safety:
    """What is known of the counts of the GPU; nothing where none is to be avoided."""
    job, testbed = opened.job, opened.testbed
    # A replay computes nothing.
    any_count = opened.asked.allow_unsafe or opened.asked.replayed or testbed.mode != "mps"
    counts = counts_on(testbed.gpu, settings.home, allow_unsafe=any_count)
    return counts.safety(job.name, testbed.gpu, opened.store.solo_points(job=job.name))


def _shares(opened: _Sweep, safety: Safety) -> tuple[Share, ...]:
    """What is measured: what was asked for, else the default shares at safe counts."""
    testbed = opened.testbed
    if asked := opened.asked.sweep.shares_on(testbed.gpu, testbed.mode):
        check_asked_shares(asked, opened.job, safety)
        return asked
    if moved := moved_text([share.percent for share in DEFAULT_SHARES], safety):
        opened.console.print(moved, highlight=False)
    return default_shares(DEFAULT_SHARES, safety)


def _measure(opened: _Sweep, shares: Sequence[Share]) -> tuple[list[SoloPoint], SweepResult]:
    """All points of the run, those that it had before included, and what came of the rest."""
    run, kept = (_earlier(opened) if opened.asked.resume else None) or (opened.run, [])
    done = {(p.share_percent, p.repeat) for p in kept}
    planned = plan(opened.job, shares, opened.asked.sweep.repeats, run)
    targets = [t for t in planned if (t.specs[0].share.percent, t.repeat) not in done]
    if kept:
        opened.console.print(
            f"run {run} of {kept[-1].started_at[:10]} has {len(kept)} points, "
            f"{len(targets)} to go; --fresh measures again"
        )
    result = sweep(targets, run, opened.testbed, opened.store, opened.reporter, opened.rules)
    # Only a whole sweep shows which of its points drew too little power.
    return with_solo_flags([*kept, *result.points]), result


def _earlier(opened: _Sweep) -> tuple[str, list[SoloPoint]] | None:
    """The sweep to go on with; a campaign's points of the job alone are none."""
    job, testbed, store = opened.job, opened.testbed, opened.store
    points = store.solo_points(job=job.name)
    campaigns = {run for run in {p.run for p in points} if store.pair_points(run=run)}
    sweeps = [p for p in points if p.run not in campaigns]
    return unfinished_run(sweeps, job, testbed.gpu, testbed.mode)
