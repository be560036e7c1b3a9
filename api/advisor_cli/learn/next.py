"""`advisor next`: which jobs to profile and which pairs to measure within some GPU minutes."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from advisor.core.gpu import named_model, vendor_of
from advisor.core.records import Observation, PairPoint, SoloPoint
from advisor.errors import StoreError
from advisor.files import PUBLIC_FILE, replace_file
from advisor.formats.job_file import sound_jobs
from advisor.settings import Settings, read_settings
from advisor_advice.conditions import checks_of, experience_of
from advisor_cli.console import AsJson, Columns, as_json_text, print_table, say, say_lines, table_of
from advisor_data import is_begun, open_store
from advisor_data.bundled import GPU_MODEL, checked_counts
from advisor_models.registry import Registry
from advisor_profiling.campaign.plan import DEFAULT_SPLITS, plan_from_options, to_yaml
from advisor_training.next import MeasuredSoFar, NextStep, measured_so_far, next_steps
from advisor_training.rows import MEASURED_HERE, PointsSource, with_all_bundled

# Under this name the command would hide Python's own `next`.
app = typer.Typer(invoke_without_command=True)

_COLUMNS: Columns[NextStep] = (
    ("what", lambda step: f"{step.kind} {' + '.join(step.jobs)}".strip()),
    ("minutes", lambda step: f"{step.minutes:.1f}"),
    ("total", lambda step: f"{step.total_minutes:.1f}"),
    ("why", lambda step: step.why),
)


@app.callback()
def show_next(
    minutes: Annotated[float, typer.Option(min=1, help="Budget of GPU time, minutes")] = 30,
    gpu_model: Annotated[
        str | None, typer.Option(help="GPU model to measure on (default: the most measured one)")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Write the pairs as a plan for advisor colocate")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the jobs to profile and the pairs to measure next, the most useful first.

    Measures nothing itself; it ends with the commands that do.

    Example: advisor next --minutes 30 --plan next.yaml
    """
    settings = read_settings()
    pairs, solos, observations, drifting = _read_local(settings)
    points = with_all_bundled(pairs, solos, PointsSource(MEASURED_HERE, len(pairs), len(solos)))
    # That of most points here; of the bundled ones where there are none.
    of_points = Counter(record.gpu_model for record in (*pairs, *solos, *observations))
    most = max(of_points, key=lambda name: of_points[name], default=GPU_MODEL)
    model = named_model(gpu_model or most, {point.gpu_model for point in points.profiled})
    sound, faults = sound_jobs(settings.jobs_dir)
    say_lines((f"! {fault}" for fault in faults), err=True)
    so_far = measured_so_far(
        points.pairs,
        points.profiled,
        points.references,
        observations,
        gpu_model=model,
        jobs=[job.name for job in sound],
        checked=vendor_of(model) != "nvidia" or checked_counts(settings.home, model) is not None,
        drifting=drifting,
    )
    steps = next_steps(so_far, minutes)
    written = _write_plan(steps, plan)
    answer = {
        "gpu_model": so_far.gpu_model,
        "minutes": minutes,
        "steps": [{**asdict(step), "command": step.command} for step in steps],
        "plan": str(written) if written else None,
    }
    say(as_json_text(answer)) if as_json else _print(so_far, steps, minutes, written)
    if plan and not (written or as_json):
        say(f"{plan} is not written: no pair is among these")


def _read_local(
    settings: Settings,
) -> tuple[list[PairPoint], list[SoloPoint], list[Observation], set[str]]:
    """Pairs, jobs alone and launches that were measured here, and the jobs that drift."""
    if not is_begun(settings.database_url, settings.home):
        return [], [], [], set()
    with open_store(settings.database_url, settings.home) as store:
        predictor = Registry(settings.home / "models").open_champion()
        experience = experience_of(store, predictor, checks_of(settings), settings.home)
        drifting = {drift.job for drift in experience.drifts}
        return store.pair_points(), store.solo_points(), store.observations(), drifting


def _write_plan(steps: Sequence[NextStep], path: Path | None) -> Path | None:
    """The file that was written; None where none was wanted or there is no pair.

    Raises:
        StoreError: it cannot be written.
    """
    pairs = ",".join("+".join(step.jobs) for step in steps if step.kind == "pair")
    if path is None or not pairs:
        return None
    text = to_yaml(plan_from_options("", pairs, DEFAULT_SPLITS))
    with StoreError.instead_of(
        OSError, f"the plan {path} cannot be written", fix="give another file with --plan"
    ):
        return replace_file(path, text.encode(), PUBLIC_FILE)


def _print(
    so_far: MeasuredSoFar, steps: Sequence[NextStep], minutes: float, plan: Path | None
) -> None:
    if not steps:
        say(f"nothing to measure on {so_far.gpu_model} in {minutes:g} minutes")
        return
    say(f"to measure on {so_far.gpu_model}, {minutes:g} GPU minutes at most:")
    print_table(table_of(_COLUMNS, steps))
    profiles = [step for step in steps if step.kind != "pair"]
    commands = list(dict.fromkeys(step.command for step in profiles))
    if pairs := ",".join("+".join(step.jobs) for step in steps if step.kind == "pair"):
        commands.append(f"advisor colocate {plan or f'--pairs {shlex.quote(pairs)}'}")
    say("run:")
    say_lines(f"  {command}" for command in commands)
