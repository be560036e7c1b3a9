"""A planned queue for a person: what it saves, who shares with whom, when and where."""

from collections.abc import Collection, Iterator

from rich.table import Table
from rich.text import Text

from advisor.core.gpu import Vendor, vendor_of
from advisor.core.objectives import Prices
from advisor.core.wording import count_of, less_or_more
from advisor.decide.reasons import percent
from advisor.formats.moments import duration_text
from advisor.place.problem import JobGroup
from advisor.place.schedule import Schedule, Slot
from advisor_advice.placing import APART, Planned, environments, way
from advisor_advice.words.pair import basis
from advisor_advice.words.price import price_text
from advisor_cli.shared.console import plain_table, print_table
from advisor_cli.shared.screen import Screen, print_folded, print_screen

_WIDTH = 110

_SAME = 0.005
"""Part of a time that a person takes for none."""


_LIMITS: dict[Vendor, str] = {"nvidia": "MPS percentages", "amd": "HSA_CU_MASK"}
"""What the first variable of a job's limit says."""

_GPUS = 12
"""GPUs whose jobs are listed; there can be thousands, and --json has all."""


def show(planned: Planned, prices: Prices, details: Collection[str] = ()) -> None:
    """Print the first lines, and what is asked for of `pairs`, `schedule` and `notes`."""
    console = print_screen(Screen(_headline(planned), _lines(planned, prices)))
    if "pairs" in details:
        console.print(Text("who with whom", style="bold"))
        print_table(_groups(planned), _WIDTH)
    if "schedule" in details:
        console.print(Text("the whole queue to its end", style="bold"))
        print_table(_comparison(planned), _WIDTH)
        console.print(Text("when and where", style="bold"))
        for line in _gpus(planned):
            console.print(Text(line), soft_wrap=True)
    if "notes" in details:
        console.print(Text("notes", style="bold"))
        for note in _remarks(planned):
            print_folded(console, "  ! ", note)


def _headline(planned: Planned) -> str:
    found, problem = planned.plan.schedule, planned.problem
    return (
        f"{count_of(len(problem.queue), 'job')} on {problem.gpus} x {planned.gpu_model}: done in "
        f"{duration_text(found.makespan_s)}, {_kwh(found.energy_j)}, "
        f"{_hours(found.busy_s)} GPU hours. {basis(None, planned.one_window)}"
    )


def _lines(planned: Planned, prices: Prices) -> Iterator[tuple[str, str]]:
    """Name and text of each line."""
    found = planned.plan.schedule
    for n, (name, other) in enumerate(planned.others.items()):
        yield "" if n else "Against", f"{name}: {_against(found, other)}"
    if (apart := planned.others.get(APART)) and prices.are_set:
        own, other = ((s.busy_s, s.energy_j) for s in (found, apart))
        yield "Price", price_text(prices, own, other)
    yield "Pairs", _pairs(planned)
    job, speed = found.slowest.job, found.slowest.speed
    yield "Slowest", f"{job.name}, {percent(speed)} of its speed alone"
    yield "Worth", _worth(planned)
    notes = len([*_remarks(planned)])
    yield "More", f"--pairs (who with whom) --schedule (when and where) --notes ({notes}) --json"


def _against(found: Schedule, other: Schedule) -> str:
    if found.runs == other.runs:
        return "the same"
    sooner_s = other.makespan_s - found.makespan_s
    end = f"{duration_text(abs(sooner_s))} {'sooner' if sooner_s > 0 else 'later'}"
    end += f" ({percent(abs(sooner_s) / other.makespan_s)})"
    if abs(sooner_s) < _SAME * other.makespan_s:
        end = "done at the same time"
    energy, held = 1 - found.energy_j / other.energy_j, 1 - found.busy_s / other.busy_s
    return f"{end}, {less_or_more(energy)} energy, {less_or_more(held)} GPU time"


def _pairs(planned: Planned) -> str:
    """How many share, and how many more would for less."""
    pairs, alone = planned.plan.pairs, len(planned.problem.queue) - 2 * planned.plan.pairs
    verb = "shares" if pairs == 1 else "share"
    share = f"{pairs or 'none'} {verb} a GPU, {count_of(alone, 'job')} alone"
    eager, least = planned.eager, percent(planned.problem.min_gain)
    if eager is None:
        return share
    if eager.pairs <= pairs:
        return f"{share}; --min-gain 0 adds none"
    saved = 1 - eager.schedule.energy_j / planned.plan.schedule.energy_j
    return (
        f"{share}; pairs that gain under {least} stay apart: --min-gain 0 shares {eager.pairs}, "
        f"for {less_or_more(saved)} energy"
    )


def _worth(planned: Planned) -> str:
    """Whether it pays, and which jobs make it so."""
    names = [job.name for job in planned.problem.queue]
    filling = sum(name in planned.filling for name in names)
    why = (
        f"{filling} of {count_of(len(names), 'job')} {'fills' if filling == 1 else 'fill'} the card"
    )
    if planned.worth == "no":
        return f"no: no pair gains enough; {why}; what pays is servers and small jobs"
    # Those that save most of a GPU's time are what to have more of.
    best = max(planned.groups, key=lambda group: (group.split is not None, group.time_saved))
    saved = f"{less_or_more(best.energy_saved, 0)} energy, {less_or_more(best.time_saved, 0)}"
    pays = f"{' + '.join(job.name for job in best.jobs)} pays most: {saved} GPU time"
    return f"{planned.worth}: {why}, the others pay; {pays}"


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
    yield f"model {planned.manifest.version}"


def _hours(seconds: float) -> str:
    return f"{float(f'{seconds / 3600:.3g}'):,g}"


def _kwh(joules: float) -> str:
    return f"{joules / 3.6e6:,.4g} kWh"
