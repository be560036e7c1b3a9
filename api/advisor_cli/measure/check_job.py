"""`advisor check --job`: at which numbers of SMs does one job compute what it should?"""

from collections.abc import Iterator, Sequence
from typing import Any

import typer

from advisor.core.gpu import Gpu, Share, percent_for_units
from advisor.core.job import Job
from advisor.core.records import SoloPoint
from advisor.errors import InputError
from advisor.formats.job_file import find_job
from advisor.settings import Settings
from advisor_cli.measure.check_text import ranges
from advisor_cli.measure.testbeds import open_testbed
from advisor_cli.shared.console import plain_console
from advisor_cli.shared.say import as_json_text, say
from advisor_cli.shared.stopping import stoppable
from advisor_data import open_store
from advisor_power.data.of_job import with_fingerprint
from advisor_profiling.campaign.outcome import Failure
from advisor_profiling.campaign.sweep import new_run, plan, sweep
from advisor_profiling.reports import sweep as report
from advisor_profiling.window.clock import LiveClock
from advisor_profiling.window.rules import RESULTS_ONLY


def check_job(
    name: str, gpu_name: str, counts: Sequence[int], gpu: Gpu, settings: Settings, as_json: bool
) -> None:
    """Run a job that reports results at each count, long enough to read them.

    The points are kept: their results decide where the job may run, and no profile has their rates.

    Raises:
        InputError: there is no such job.
        JobError: the job does not run, or reports nothing on the whole GPU.
    """
    job = with_fingerprint(find_job(name, settings.jobs_dir))
    console = plain_console(stderr=True)
    total, run = gpu.units_total or 0, new_run(LiveClock().utc())
    shares = [Share(percent_for_units(count, total)) for count in {*counts, total}]
    with (
        stoppable(console),
        open_testbed(settings, gpu_name, None, "mps", run) as testbed,
        open_store(settings.database_url, settings.home) as store,
    ):
        targets = plan(job, shares, 1, run)
        found = sweep(targets, run, testbed, store, report.ConsoleReporter(console), RESULTS_ONLY)
    answer = _answer(job, gpu, found.points, found.failures)
    for line in [as_json_text(answer)] if as_json else _lines(answer, len(shares)):
        say(line)
    if total in answer["silent"]:
        raise InputError(
            f"{job.name} reported nothing that can be compared",
            why="it reports no values, or none in its first second",
            fix="let it report its loss or a checksum: docs/job-file.md, Results",
        )
    if found.failures:
        raise typer.Exit(5)


def _answer(
    job: Job, gpu: Gpu, points: Sequence[SoloPoint], failures: Sequence[Failure]
) -> dict[str, Any]:
    counts: dict[str, list[int]] = {key: [] for key in ("right", "wrong", "differ", "silent")}
    for point in sorted(points, key=lambda p: p.units_granted or 0):
        counts[point.results or "silent"].append(point.units_granted or 0)
    failed = {f"{f.target.specs[0].share}": f.reason or f.error for f in failures}
    return {"job": job.name, "gpu_model": gpu.model, **counts, "failed": failed}


def _lines(answer: dict[str, Any], asked: int) -> Iterator[str]:
    yield f"{answer['job']} on {answer['gpu_model']}, {asked} SM counts"
    yield f"right     {ranges(answer['right'])}"
    for key, meaning in (
        ("wrong", "a result was not finite"),
        ("differ", "results are not those on the whole GPU"),
        ("silent", "nothing was reported that can be compared"),
    ):
        if answer[key]:
            yield f"{key:9} {ranges(answer[key])}: {meaning}"
    for share, reason in answer["failed"].items():
        yield f"failed at {share} %: {reason}"
    if avoided := [*answer["wrong"], *answer["differ"]]:
        yield f"From now on {answer['job']} is not given {ranges(sorted(avoided))} SMs."
