"""A placement for a person: what each GPU does, who waits, and what simpler ways would give."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from advisor.gpu import PERCENTAGE
from advisor.place import Placement, Use
from advisor.reasons import STARVED, percent
from advisor.wording import count_of
from advisor_models.placing import Planned, environments, way

_WIDTH = 110

_NAMED = 5
"""How many waiting types are named; there can be hundreds."""


def show(planned: Planned) -> None:
    """Print it."""
    console = Console(highlight=False)
    # Headings are never cut off: on a narrow terminal lines wrap.
    console.width = max(console.width, _WIDTH)
    console.print(Text(_headline(planned), style="bold"))
    console.print(_uses(planned))
    console.print(Text("beside what simpler ways would give", style="bold"))
    console.print(_comparison(planned))
    for line in _remarks(planned):
        console.print(Text(line), soft_wrap=True)
    console.print(
        f"predicted by model {planned.manifest.version}; docs/place.md explains all of this",
        style="dim",
    )


def _headline(planned: Planned) -> str:
    placement = planned.solution.placement
    jobs = f"{placement.jobs} of {count_of(len(planned.wanted.queue), 'job')}"
    return f"{jobs} on {placement.gpus_used} of {placement.gpus} x {planned.gpu_model}"


def _uses(planned: Planned) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name, right in (
        ("GPUs", True),
        ("jobs", False),
        ("split", True),
        ("MPS percentages", True),
        ("speeds", True),
        ("W each", True),
    ):
        table.add_column(name, justify="right" if right else "left")
    for use in planned.solution.placement.uses:
        table.add_row(*map(Text, _cells(use)))
    if idle := planned.solution.placement.gpus - planned.solution.placement.gpus_used:
        table.add_row(str(idle), "idle", "", "", "", f"{planned.problem.idle_power_w:.0f}")
    return table


def _cells(use: Use) -> tuple[str, ...]:
    limits = [environment.get(PERCENTAGE, "-") for environment in environments(use)]
    return (
        str(use.gpus),
        " + ".join(use.jobs),
        way(use),
        " and ".join(limits) if use.split else "-",
        " and ".join(percent(speed) for speed in use.speeds),
        f"{use.power_w:.0f}",
    )


def _comparison(planned: Planned) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("")
    for name in ("work", "power, W", "work per kJ", "waiting", "GPUs used", "gain over it"):
        table.add_column(name, justify="right")
    table.add_row("the placement", *_totals(planned.solution.placement), "")
    for name, other in planned.others.items():
        gain = planned.gain_over(other)
        table.add_row(name, *_totals(other), "-" if gain is None else f"{100 * gain:+.1f} %")
    return table


def _totals(placement: Placement) -> tuple[str, ...]:
    return (
        f"{placement.work:.4g}",
        f"{placement.power_w:.0f}",
        f"{1000 * placement.work_per_joule:.4g}",
        str(sum(placement.waiting.values())),
        str(placement.gpus_used),
    )


def _remarks(planned: Planned) -> Iterator[str]:
    yield "work 1: what a job does alone on a whole GPU; power is of all GPUs, idle ones too"
    yield from _waiting(planned.solution.placement)
    yield from _proof(planned)
    yield from _starved(planned.solution.placement)
    yield from planned.warnings
    if planned.bundled:
        profiles = count_of(len(planned.bundled), "bundled profile")
        yield f"{profiles} of jobs with random input; power depends on it"
    yield from planned.warnings


def _waiting(placement: Placement) -> Iterator[str]:
    if not placement.waiting:
        return
    most = sorted(placement.waiting.items(), key=lambda item: (-item[1], item[0]))
    names = [f"{name} ({count})" for name, count in most[:_NAMED]]
    more = [f"{len(most) - _NAMED} types more"] if len(most) > _NAMED else []
    full = placement.gpus_used == placement.gpus
    why = "no GPU is left" if full else "nothing keeps their limits"
    yield f"waiting, since {why}: {', '.join(names + more)}"


def _proof(planned: Planned) -> Iterator[str]:
    solution = planned.solution
    if solution.timed_out:
        yield f"the search ended at its time limit, {planned.wanted.time_limit_s:g} s"
        if solution.most_jobs > solution.placement.jobs:
            yield f"up to {solution.most_jobs} jobs might have a place"
    yield f"no placement of so many jobs is more than {_more(solution.gap)} better"


def _more(gap: float) -> str:
    return percent(max(gap, 1e-4), 2)


def _starved(placement: Placement) -> Iterator[str]:
    slow = sum(use.gpus * sum(speed < STARVED for speed in use.speeds) for use in placement.uses)
    if slow:
        jobs = "1 job runs" if slow == 1 else f"{slow} jobs run"
        yield f"{jobs} below {percent(STARVED)} of the full speed; --min-speed protects them"
