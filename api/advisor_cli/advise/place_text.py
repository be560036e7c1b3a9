"""A planned queue for a person: what it saves, who shares with whom, when and where."""

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from advisor.core.gpu import Vendor
from advisor.core.units import vendor_of
from advisor.core.wording import count_of
from advisor.decide.reasons import percent
from advisor.formats.moments import duration_text
from advisor.place.problem import JobGroup
from advisor.place.schedule import Schedule, Slot
from advisor_advice.placing import Planned, environments, way
from advisor_cli.shared.console import plain_console, plain_table

_WIDTH = 110

_LIMITS: dict[Vendor, str] = {"nvidia": "MPS percentages", "amd": "HSA_CU_MASK"}
"""What the first variable of a job's limit says."""

_GPUS = 12
"""GPUs whose jobs are listed; there can be thousands, and --json has all."""


def show(planned: Planned) -> None:
    """Print it."""
    console = plain_console(highlight=False, least=_WIDTH)
    console.print(Text(_headline(planned), style="bold"))
    for line in _first_lines(planned):
        console.print(Text(line), soft_wrap=True)
    console.print(_groups(planned))
    console.print(Text("the whole queue to its end", style="bold"))
    console.print(_comparison(planned))
    console.print(Text("when and where", style="bold"))
    for line in (*_gpus(planned), *_remarks(planned)):
        console.print(Text(line), soft_wrap=True)
    console.print(
        f"predicted by model {planned.manifest.version}; docs/place.md explains all of this",
        style="dim",
    )


def _headline(planned: Planned) -> str:
    jobs = len(planned.problem.queue)
    shared = sum(len(slot.numbers) for slot in planned.plan.slots if slot.group.split)
    gpus = f"{planned.problem.gpus} x {planned.gpu_model}"
    return (
        f"{count_of(jobs, 'job')} on {gpus}: {count_of(shared // 2, 'pair')} share a GPU, "
        f"{count_of(jobs - shared, 'job')} alone"
    )


def _first_lines(planned: Planned) -> Iterator[str]:
    found, others = planned.plan.schedule, planned.others.items()
    energy = [
        f"{_change(found.energy_j, other.energy_j, 'less', 'more')} than {name}"
        for name, other in others
    ]
    sooner = [
        f"{_change(found.makespan_s, other.makespan_s, 'sooner', 'later')} than {name}"
        for name, other in others
    ]
    yield f"  energy  {'; '.join([_kwh(found.energy_j), *energy])}"
    yield f"  time    {'; '.join([f'all done in {duration_text(found.makespan_s)}', *sooner])}"
    job, speed = found.slowest.job, found.slowest.speed
    yield f"  speed   the slowest is {job.name}, {percent(speed)} of its speed alone"


def _groups(planned: Planned) -> Table:
    limits = _LIMITS[vendor_of(planned.gpu_model)]
    known = ("times", "jobs", "split", limits, "speeds", "time", "W", "energy saved", "time saved")
    rows = ((str(count), *_cells(planned, group)) for group, count in planned.groups.items())
    return plain_table(known, rows)


def _cells(planned: Planned, group: JobGroup) -> tuple[str, ...]:
    names = " + ".join(job.name for job in group.jobs)
    time, power = duration_text(group.time_s), f"{group.power_w:.0f}"
    if group.split is None:
        return names, way(group), "-", "-", time, power, "-", "-"
    return (
        names,
        way(group),
        " and ".join(next(iter(limit.values())) for limit in environments(planned, group)),
        " and ".join(percent(speed) for speed in group.speeds),
        time,
        power,
        percent(group.energy_saved, 1),
        percent(group.time_saved, 1),
    )


def _comparison(planned: Planned) -> Table:
    names = ("", "energy", "of it idle", "all done in", "mean job ends after", "slowest job")
    plans = {"this plan": planned.plan.schedule, **planned.others}
    return plain_table(names, ((name, *_totals(found)) for name, found in plans.items()))


def _totals(found: Schedule) -> Iterator[str]:
    yield from (_kwh(found.energy_j), _kwh(found.idle_j))
    yield from (duration_text(found.makespan_s), duration_text(found.mean_completion_s))
    yield percent(found.slowest.speed)


def _gpus(planned: Planned) -> Iterator[str]:
    gpus: dict[int, list[Slot]] = {}
    for slot in planned.plan.slots:
        gpus.setdefault(slot.gpu, []).append(slot)
    for gpu in sorted(gpus)[:_GPUS]:
        yield f"  GPU {gpu:<3} {', then '.join(_slot_text(slot) for slot in gpus[gpu])}"
    if len(gpus) > _GPUS:
        yield f"  and so on for {count_of(len(gpus) - _GPUS, 'more GPU')}: --json has every job"


def _slot_text(slot: Slot) -> str:
    names = " + ".join(job.name for job in slot.group.jobs)
    split = f" at {way(slot.group)}" if slot.group.split else ""
    return f"{names}{split} until {duration_text(slot.start_s + slot.group.time_s)}"


def _remarks(planned: Planned) -> Iterator[str]:
    yield "speed 100 %: as alone on a whole GPU; a job whose neighbour has ended keeps its limit"
    yield "energy counts idle GPUs until the last job has ended"
    yield "savings are predicted, and of many pairs those are taken that look best: expect less"
    if planned.plan.timed_out:
        yield f"the search ended at its time limit, {planned.request.time_limit_s:g} s"
    if planned.bundled:
        profiles = count_of(len(planned.bundled), "bundled profile")
        yield f"{profiles} of jobs with random input; power depends on it"
    yield from planned.warnings


def _change(this: float, other: float, less: str, more: str) -> str:
    part = this / other - 1
    if abs(part) < 5e-4:
        return f"no {less}"
    return f"{percent(abs(part), 1)} {less if part < 0 else more}"


def _kwh(joules: float) -> str:
    return f"{joules / 3.6e6:,.4g} kWh"
