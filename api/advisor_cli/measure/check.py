"""`advisor check`: at which numbers of SMs the libraries of this host compute right results."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from advisor.core.gpu import SM_QUANTUM, Gpu, Share, percent_for_units
from advisor.core.job import check_single_gpu
from advisor.core.wording import count_of, in_rows
from advisor.errors import InputError
from advisor.files import open_home
from advisor.formats.job_file import find_job
from advisor.formats.wire import to_plain
from advisor.settings import Settings, read_settings
from advisor.validity.safe_counts import CHECKS, CheckedCounts, check_for, keep_check
from advisor_cli.console import AsJson, as_json_text, plain_console, say_lines
from advisor_cli.measure.profile import numbers
from advisor_cli.measure.testbeds import open_testbed, stoppable
from advisor_data import open_store
from advisor_power.data.of_job import with_fingerprint
from advisor_profiling import reports
from advisor_profiling.campaign.campaign import new_run, plan, sweep
from advisor_profiling.counts import (
    CheckedGpu,
    CheckOutcome,
    check_counts,
    continues,
    counts_to_check,
    installed_libraries,
)
from advisor_profiling.testbed import PhaseLock, find_gpu, live_backend, with_units
from advisor_profiling.window import RESULTS_ONLY, Clock

# Operations that are named of those that were wrong at a count.
_NAMED = 3


def _check_lines(outcome: CheckOutcome) -> Iterator[str]:
    check = outcome.check
    versions = ", ".join(f"{name} {version}" for name, version in check.libraries.items())
    yield f"{check.gpu_model}, {check.units_total} SMs, driver {check.driver}, {versions}"
    yield f"safe      {_ranges(check.safe)}"
    yield f"unsafe    {_ranges(check.unsafe)}"
    for count in check.unsafe:
        names = check.wrong[count]
        named = ", ".join(names[:_NAMED]) + (", .." if len(names) > _NAMED else "")
        yield f"  {count:>4} SMs  {len(names)} of {len(check.operations)}: {named}"
    yield from (
        f"  {count:>4} SMs  not known: {reason}"
        for count, reason in sorted(outcome.unknown.items())
    )
    yield from (f"  not tried: {name}: {reason}" for name, reason in outcome.skipped.items())
    yield (
        f"{count_of(len(check.checked), 'count')}, {count_of(len(check.operations), 'operation')} "
        f"each, {check.seconds:.0f} s, {check.checked_at[:10]}"
    )
    yield (
        f"From now on no job is given {_ranges(check.unsafe)} SMs."
        if check.unsafe
        else "Every count that was checked may be given to a job."
    )


def _ranges(counts: Iterable[int]) -> str:
    """Counts in a row as one: 8-16 is every even count from 8 to 16."""
    rows = in_rows(counts, SM_QUANTUM)
    return " ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in rows) or "none"


def _check_job(
    name: str, gpu_name: str, counts: Sequence[int], gpu: Gpu, settings: Settings, as_json: bool
) -> None:
    """Run a job that reports results at each count, long enough to read them.

    The points are kept: their results decide where the job may run, and no profile has their rates.

    Raises:
        InputError: there is no such job.
        JobError: the job does not run, or reports nothing on the whole GPU.
    """
    job = with_fingerprint(find_job(name, settings.jobs_dir))
    check_single_gpu(name, job.gpus)
    console = plain_console(stderr=True)
    total, run = gpu.units_total or 0, new_run(Clock().utc())
    shares = [Share(percent_for_units(count, total)) for count in {*counts, total}]
    with (
        stoppable(console),
        open_testbed(settings, gpu_name, None, "mps", run) as testbed,
        open_store(settings.database_url, settings.home) as store,
    ):
        targets = plan(job, shares, 1, run)
        result = sweep(targets, run, testbed, store, reports.ConsoleReporter(console), RESULTS_ONLY)
    by_verdict: dict[str, list[int]] = {key: [] for key in ("right", "wrong", "differ", "silent")}
    for point in sorted(result.points, key=lambda p: p.units_granted or 0):
        by_verdict[point.results or "silent"].append(point.units_granted or 0)
    failed = {f"{f.target.specs[0].share}": f.reason for f in result.failures}
    answer = {"job": job.name, "gpu_model": gpu.model, **by_verdict, "failed": failed}
    say_lines([as_json_text(answer)] if as_json else _lines(answer, len(shares)))
    if total in by_verdict["silent"]:
        raise InputError(
            f"{job.name} reported nothing that can be compared",
            why="it reports no values, or none in its first second",
            fix="let it report its loss or a checksum: docs/job-file.md, Results",
        )
    if result.failures:
        raise typer.Exit(5)


def _lines(answer: dict[str, Any], count: int) -> Iterator[str]:
    yield f"{answer['job']} on {answer['gpu_model']}, {count} SM counts"
    yield f"right     {_ranges(answer['right'])}"
    yield from (
        f"{key:9} {_ranges(answer[key])}: {meaning}"
        for key, meaning in (
            ("wrong", "a result was not finite"),
            ("differ", "results are not those on the whole GPU"),
            ("silent", "nothing was reported that can be compared"),
        )
        if answer[key]
    )
    yield from (f"failed at {share} %: {reason}" for share, reason in answer["failed"].items())
    if avoided := [*answer["wrong"], *answer["differ"]]:
        yield f"From now on {answer['job']} is not given {_ranges(sorted(avoided))} SMs."


def check(
    gpu: Annotated[str, typer.Option(help="Index or UUID")] = "0",
    counts: Annotated[str, typer.Option(help="SM counts, such as 66,92 (default: all)")] = "",
    python: Annotated[str, typer.Option(help="Python interpreter with PyTorch")] = "python3",
    job: Annotated[
        str | None, typer.Option(help="Check the results of this job instead of the libraries")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Check known counts again")] = False,
    as_json: AsJson = False,
) -> None:
    """Find the numbers of SMs at which libraries of this host compute right results.

    Matrix products, convolutions, attention and more are computed at each count and compared with
    the whole GPU. After Ctrl-C or a crash the same command goes on.

    Example: advisor check --gpu 0
    """
    settings, console = read_settings(), plain_console(stderr=True)
    card = with_units(find_gpu(gpu), settings)
    if card.vendor != "nvidia":
        raise InputError(
            f"{card.model} is not checked",
            why="wrong results were found under NVIDIA MPS only",
            fix="choose an NVIDIA GPU with --gpu",
        )
    wanted = counts_to_check(numbers("counts", counts, int), card)
    if job is not None:
        _check_job(job, gpu, wanted, card, settings, as_json)
        return
    libraries = installed_libraries(python, settings.job_environment())
    kept = _kept(card, wanted, libraries, settings, fresh, console)
    if kept is not None and set(wanted) <= set(kept.checked):
        console.print("all of these were checked before; --fresh checks them again")
        outcome = CheckOutcome(kept, {}, {})
    else:
        outcome = _run(gpu, wanted, python, kept, settings, console)
    say_lines([as_json_text(_as_json(outcome))] if as_json else _check_lines(outcome))
    if outcome.unknown:
        raise typer.Exit(5)


def _kept(
    gpu: Gpu,
    wanted: Sequence[int],
    libraries: Mapping[str, str],
    settings: Settings,
    fresh: bool,
    console: Console,
) -> CheckedCounts | None:
    """What an earlier check found and still holds."""
    if (kept := check_for(gpu.model, CHECKS.read(settings.home))) is None:
        return None
    if not continues(kept, gpu, libraries):
        changed = kept.differs_from(gpu.driver or "", libraries) or f"on card {kept.gpu_uuid}"
        console.print(f"checked before, but {changed}: all is checked again", soft_wrap=True)
        return None
    left = kept.without(wanted) if fresh else kept
    return left if left.checked else None


def _run(
    gpu: str,
    wanted: Sequence[int],
    python: str,
    kept: CheckedCounts | None,
    settings: Settings,
    console: Console,
) -> CheckOutcome:
    folder = open_home(settings.home, "logs", f"check-{Clock().utc().replace(':', '')}")
    with (
        stoppable(console),
        live_backend(settings, gpu, "mps") as backend,
        PhaseLock(settings.lock_dir).starting(),
    ):
        console.print("  the reference on the whole GPU ...", highlight=False)
        return check_counts(
            wanted,
            python,
            CheckedGpu(backend, settings.job_environment(), folder),
            kept,
            keep=lambda check: keep_check(check, settings.home),
            report=lambda step: console.print(f"  {step}", highlight=False, soft_wrap=True),
        )


def _as_json(outcome: CheckOutcome) -> dict[str, object]:
    check = outcome.check
    return {
        **to_plain(check),
        "safe": list(check.safe),
        "unsafe": list(check.unsafe),
        "not_known": outcome.unknown,
        "skipped": outcome.skipped,
    }
