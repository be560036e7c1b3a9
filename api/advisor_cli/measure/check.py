"""`advisor check`: at which numbers of SMs the libraries of this host compute right results."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console

from advisor.core.gpu import Gpu
from advisor.errors import InputError
from advisor.files.home import open_home
from advisor.formats.wire import to_plain
from advisor.settings import Settings, read_settings
from advisor.validity.checks import CHECKS, CountCheck, check_for, keep_check
from advisor_cli.measure.check_job import check_job
from advisor_cli.measure.check_text import check_lines, step_line
from advisor_cli.measure.profile_request import numbers
from advisor_cli.shared.console import plain_console
from advisor_cli.shared.options import AsJson
from advisor_cli.shared.say import as_json_text, say
from advisor_cli.shared.stopping import stoppable
from advisor_profiling.counts import (
    CheckedGpu,
    CheckOutcome,
    CheckStep,
    Script,
    check_counts,
    continues,
    counts_to_check,
    installed_libraries,
    library_script,
)
from advisor_profiling.testbed.live import find_gpu, live_backend, with_units
from advisor_profiling.testbed.testbed import HostPhaseLock
from advisor_profiling.window.clock import LiveClock


def check(
    gpu: Annotated[str, typer.Option(help="Index or UUID")] = "0",
    counts: Annotated[str, typer.Option(help="SM counts, such as 66,92; else all")] = "",
    python: Annotated[str, typer.Option(help="Interpreter that has PyTorch")] = "python3",
    job: Annotated[
        str | None, typer.Option(help="Check this job, which reports results, not the libraries")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Check known counts again")] = False,
    as_json: AsJson = False,
) -> None:
    """At which numbers of SMs do the libraries of this host compute right results?

    Matrix products, convolutions, attention and more are computed at each count and compared with
    the whole GPU. After Ctrl-C or a crash the same command goes on.

    Example: advisor check --gpu 0
    """
    settings, script, console = read_settings(), library_script(python), plain_console(stderr=True)
    found = _mps_gpu(gpu, settings)
    wanted = counts_to_check(numbers("counts", counts, int), found)
    if job is not None:
        check_job(job, gpu, wanted, found, settings, as_json)
        return
    libraries = installed_libraries(script, settings.job_environment())
    kept = _kept(found, wanted, libraries, settings, fresh, console)
    if kept is not None and set(wanted) <= set(kept.checked):
        console.print("all of these were checked before; --fresh checks them again")
        outcome = CheckOutcome(kept, {}, {})
    else:
        outcome = _run(gpu, wanted, script, kept, settings, console)
    for line in [as_json_text(_as_json(outcome))] if as_json else check_lines(outcome):
        say(line)
    if outcome.not_known:
        raise typer.Exit(5)


def _mps_gpu(name: str, settings: Settings) -> Gpu:
    gpu = with_units(find_gpu(name), settings)
    if gpu.vendor != "nvidia":
        raise InputError(
            f"{gpu.model} is not checked",
            why="what is looked for was seen under NVIDIA MPS",
            fix="choose an NVIDIA GPU with --gpu",
        )
    return gpu


def _kept(
    gpu: Gpu,
    wanted: Sequence[int],
    libraries: Mapping[str, str],
    settings: Settings,
    fresh: bool,
    console: Console,
) -> CountCheck | None:
    """What an earlier check found and still holds."""
    kept = check_for(gpu.model, CHECKS.read(settings.home))
    if kept is None:
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
    script: Script,
    kept: CountCheck | None,
    settings: Settings,
    console: Console,
) -> CheckOutcome:
    def keep(check: CountCheck) -> None:
        keep_check(check, settings.home)

    def report(step: CheckStep) -> None:
        console.print(f"  {step_line(step)}", highlight=False, soft_wrap=True)

    run = f"check-{LiveClock().utc().replace(':', '')}"
    folder = open_home(settings.home, "logs", run)
    with (
        stoppable(console),
        live_backend(settings, gpu, "mps") as backend,
        HostPhaseLock(settings.lock_dir).starting(),
    ):
        console.print("  the reference on the whole GPU ...", highlight=False)
        place = CheckedGpu(backend, settings.job_environment(), folder)
        return check_counts(wanted, script, place, kept, keep, report)


def _as_json(outcome: CheckOutcome) -> dict[str, object]:
    check = outcome.check
    return {
        **to_plain(check),
        "safe": list(check.safe),
        "unsafe": list(check.unsafe),
        "not_known": outcome.not_known,
        "skipped": outcome.skipped,
    }
