"""What `advisor colocate` says at its end."""

from dataclasses import asdict
from typing import Any

from advisor.core.flags import DOUBTFUL
from advisor.core.records import PairPoint, SoloPoint
from advisor.formats.rows import to_row
from advisor.validity.degenerate import with_pair_flags, with_solo_flags
from advisor_cli.measure.testbeds import bundled_points
from advisor_cli.shared.console import plain_console
from advisor_cli.shared.say import as_json_text, say
from advisor_data import Store
from advisor_profiling.campaign.campaign import Cost
from advisor_profiling.campaign.colocation import Campaign, PlannedSplit
from advisor_profiling.reports import campaign as pair_report
from advisor_profiling.reports import sets as set_report

ReportJson = dict[str, Any]
"""A report as JSON."""


def show_campaign(answer: ReportJson, campaign: Campaign, before: int, *, as_json: bool) -> None:
    """Print the run's points of pairs or sets, of which it had so many before: a table, or JSON."""
    run, store, has_sets = campaign.plan.name, campaign.store, campaign.plan.has_sets
    profiles = _profiles(answer, store)
    points = with_pair_flags(store.pair_points(run=run), with_solo_flags(profiles))
    # For jobs without a rate in the run, of other runs on such GPUs.
    solo = pair_report.references(store.solo_points(run=run), profiles)
    sets = set_report.set_results(points, solo) if has_sets else []
    if as_json:
        rows = [to_row(point) for point in points]
        found = [asdict(result) for result in sets]
        say(as_json_text({"run": run, **answer, "sets": found, "points": rows}))
        return
    console = plain_console(least=pair_report.WIDTH)
    note = " (replay of recorded points)" if answer["replay"] else ""
    console.print(f"run {run} on {answer['gpu_model']}{note}")
    pairs = pair_report.table(pair_report.summarise(points, solo))
    if campaign.dry_run:
        pairs = pair_report.planned_table(
            [PlannedSplit(**planned) for planned in answer["planned"]]
        )
    console.print(set_report.set_table(sets) if has_sets and not campaign.dry_run else pairs)
    nothing = pair_report.nothing_to_do_text(
        answer["windows"], answer["to_measure"], dry_run=campaign.dry_run
    )
    new, what = measured_pairs(campaign) - before, "set" if has_sets else "pair"
    for line in (
        *pair_report.unknown_alone_text(points, solo),
        nothing or pair_report.cost_text(Cost(**answer["cost"]), new, what),
        pair_report.left_out_text(points, set_report.LEFT_OUT if has_sets else DOUBTFUL),
    ):
        if line:
            console.print(line, highlight=False)


def _profiles(answer: ReportJson, store: Store) -> list[SoloPoint]:
    """All jobs alone on such GPUs."""
    model = answer["gpu_model"]
    stored = store.solo_points(gpu_model=model)
    bundled = (p for p in bundled_points() if isinstance(p, SoloPoint)) if answer["replay"] else ()
    return stored + [point for point in bundled if point.gpu_model == model]


def measured_pairs(campaign: Campaign) -> int:
    """How many windows of pairs the run has; marked points of jobs that failed are none."""
    points: list[PairPoint] = campaign.store.pair_points(run=campaign.plan.name)
    return sum("failed" not in point.flags for point in points)
