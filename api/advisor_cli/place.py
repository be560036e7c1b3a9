"""`advisor place`: a queue of jobs on several GPUs, who shares with whom, when and where."""

import re
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.table import Table
from rich.text import Text

from advisor.core.gpu import Vendor, vendor_of
from advisor.core.objectives import AIMS, DEFAULT_OBJECTIVE, Prices
from advisor.core.wording import count_of, less_or_more
from advisor.decide.limits import Request
from advisor.decide.reasons import percent
from advisor.errors import InputError
from advisor.formats.moments import duration_text, read_duration
from advisor.place.problem import SAVES_ENERGY, JobGroup
from advisor.place.schedule import Schedule, Slot
from advisor.settings import Settings, read_settings
from advisor.wire.answers import Said
from advisor.wire.placement import SeatedSet, SetPlacement
from advisor.wire.requests import (
    MOST_PLACED,
    WORK_S,
    PlacementRequest,
    QueuedJobs,
    by_name,
)
from advisor_advice.conditions import read_known
from advisor_advice.options import longest_p99_ms, min_speeds, read_works
from advisor_advice.placing import (
    APART,
    Planned,
    RunningRequest,
    environments,
    limits_of,
    place_jobs,
    plan,
    sets_to_wire,
    to_wire,
    way,
)
from advisor_advice.price import price_text
from advisor_advice.profiles import find_profiles
from advisor_advice.words import basis
from advisor_cli.console import Columns, print_list, print_screen, print_table, table_of
from advisor_cli.options import (
    AsJson,
    Cores,
    GpuUuidOption,
    LimitOptions,
    MinGain,
    Notes,
    grouped,
    job_names,
)
from advisor_cli.progress import progress
from advisor_cli.say import as_json_text, say

PATIENCE_S = 2.0
"""After this long a person is shown how far it is."""


MAX_JOBS = 100_000
"""A larger number is no cluster but a slip of the keyboard."""

_ENTRY = re.compile(r"([^:*\s]+)(?:[:*]([0-9]{1,9}))?(?:\s+(\S+))?")


Entry: TypeAlias = tuple[str, int, float | None]
"""Name of equal jobs, how many they are, and seconds of work of each; None: not given."""


def read_entries(texts: Sequence[str], file: Path | None) -> list[Entry]:
    """Jobs in the order in which they were given.

    Args:
        texts: `NAME`, `NAME:40` for forty of them, and `NAME:40 3h` for forty that take 3 h alone.
        file: The same, one on each line; empty lines and what follows a # do not count.

    Raises:
        InputError: no job, both ways at once, what is no name, count and time, or a file that
            cannot be read.
    """
    if file and texts:
        raise InputError("jobs were given twice", fix="name them, or give a file with --jobs")
    places = [("", text) for text in texts]
    if file:
        lines = enumerate(_file_text(file).splitlines(), start=1)
        stripped = ((f"{file}:{n}: ", line.partition("#")[0].strip()) for n, line in lines)
        places = [(place, text) for place, text in stripped if text]
    entries = [_entry(place, text) for place, text in places]
    if not entries:
        raise InputError("there are no jobs", fix="name them, such as: advisor place gemm:2 triad")
    if sum(count for _, count, _ in entries) > MAX_JOBS:
        raise InputError(f"these are more than {MAX_JOBS} jobs", fix="check the counts")
    return entries


def _entry(place: str, text: str) -> Entry:
    found = _ENTRY.fullmatch(text)
    if not found or (count := int(found[2] or 1)) < 1:
        raise _no_entry(place, text)
    try:
        return found[1], count, read_duration(found[3]) if found[3] else None
    except InputError as error:
        raise InputError(f"{place}{text}: {error.what}", fix=error.fix) from error


def _no_entry(place: str, text: str) -> InputError:
    name, colon, count = text.partition(":")
    if name and colon:
        return InputError(
            f"{place}{text} has no count: {count!r} is not a whole number above 0",
            fix=f"write {name}:40 for forty of {name}",
        )
    return InputError(
        f"{place}{text} is not a job",
        fix="write NAME, NAME:40 for forty of it, or NAME:40 3h with what each takes alone",
    )


def _file_text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text", fix="save it as UTF-8") from error
    except OSError as error:
        raise InputError(
            f"{file} cannot be read", why=error.strerror or str(error), fix="check its name"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet(LimitOptions):
    """The jobs and the GPUs, and what counts."""

    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of profiled jobs, NAME:40 for forty of them",
            metavar="JOBS",
            autocompletion=job_names,
        ),
    ] = None
    gpus: Annotated[int, typer.Option(help="How many GPUs there are", min=1, max=MOST_PLACED)]
    file: Annotated[
        Path | None,
        typer.Option("--jobs", help="File of jobs: NAME, NAME:40 or NAME:40 3h on each line"),
    ] = None
    work: Annotated[
        list[str] | None,
        typer.Option(help="Time that a job takes alone, JOB=3h or 3h for all; 1h if not given"),
    ] = None
    also: Annotated[
        list[str] | None,
        typer.Option(help="More GPUs, of another model: 'NVIDIA H100 80GB HBM3=16'; sets only"),
    ] = None
    objective: Annotated[
        str,
        typer.Option(
            help="Of a queue: energy-efficiency, throughput (done soonest). Of jobs that run "
            "together, in sets: fewest-cards, least-energy, cost"
        ),
    ] = DEFAULT_OBJECTIVE
    deadline: Annotated[
        str | None, typer.Option(help="When all work is to be done, 8h: of sets")
    ] = None
    host_cores: Cores = None
    min_gain: MinGain = None
    gpu_uuid: GpuUuidOption = None
    time_limit: Annotated[float, typer.Option(help="Most seconds of searching", min=0.0)] = 10.0

    def queue(self) -> tuple[QueuedJobs, ...]:
        """Every job with its work: what its line says, else --work, else an hour.

        Raises:
            InputError: a line, a work or a speed that cannot be meant.
        """
        entries = read_entries(self.jobs or (), self.file)
        names = list(dict.fromkeys(name for name, _, _ in entries))
        works = read_works(self.work or (), names)
        speeds = min_speeds(self.min_speed or (), names)
        return tuple(
            QueuedJobs(
                job=name,
                count=count,
                work_s=work_s or works.get(name, WORK_S),
                min_speed=speeds.get(name),
            )
            for name, count, work_s in entries
        )


@grouped
def place(
    fleet: _Fleet,
    pairs: Annotated[bool, typer.Option("--pairs", help="Who shares with whom, and how")] = False,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="When and where, and simpler ways to the end")
    ] = False,
    notes: Notes = False,
    as_json: AsJson = False,
) -> None:
    """Plan a queue: who shares a GPU, at which split, and when; or who runs together.

    Every job is done; a pair that gains less than --min-gain does not share. Exit code 10: not
    every job can be placed within the limits.

    Example: advisor place bert-infer-b2:4 vit-train:3 triad:3 --gpus 4
    """
    wanted = {"pairs": pairs, "schedule": schedule, "notes": notes}
    details = [name for name, is_wanted in wanted.items() if is_wanted]
    settings = read_settings()
    if fleet.objective in AIMS:
        found = sets_to_wire(place_jobs(_running(fleet, settings), settings, fleet.profiles))
        say(as_json_text(found)) if as_json else _show(found, settings.prices, details)
        return
    planned = _planned(fleet, settings)
    if fleet.gpu_uuid is not None and planned.card is None:
        say(f"nothing is known of what the card {fleet.gpu_uuid} draws beside others", err=True)
    if as_json:
        say(as_json_text(to_wire(planned)))
    else:
        _show(planned, settings.prices, details)


def _running(fleet: _Fleet, settings: Settings) -> RunningRequest:
    """Jobs that run together from now on."""
    _refuse(fleet.objective, {"--gpu-uuid": fleet.gpu_uuid})
    jobs = fleet.queue()
    by_job, of_all = longest_p99_ms(fleet.max_p99 or (), list(dict.fromkeys(j.job for j in jobs)))
    return RunningRequest(
        jobs=jobs,
        gpus={fleet.gpu_model: fleet.gpus, **_more_gpus(fleet.also or (), fleet.gpu_model)},
        objective=fleet.objective,
        limits=Request(
            min_speed=by_name((job.job, job.min_speed) for job in jobs),
            policy=settings.policy,
            max_p99_ms=by_job,
            default_max_p99_ms=of_all,
            max_power_w=fleet.max_power,
            memory_mib=fleet.memory,
            host_cores=fleet.host_cores,
        ),
        deadline_s=None if fleet.deadline is None else read_duration(fleet.deadline),
        time_limit_s=fleet.time_limit,
    )


def _planned(fleet: _Fleet, settings: Settings) -> Planned:
    """A queue in pairs, over time."""
    of_sets = {"--also": fleet.also, "--deadline": fleet.deadline, "--max-p99": fleet.max_p99}
    _refuse(fleet.objective, of_sets | {"--host-cores": fleet.host_cores})
    asked = PlacementRequest(
        jobs=fleet.queue(),
        gpus=fleet.gpus,
        objective=fleet.objective,
        max_power_w=fleet.max_power,
        memory_mib=fleet.memory,
        min_gain=fleet.min_gain,
        gpu_model=fleet.gpu_model,
        gpu_uuid=fleet.gpu_uuid,
        time_limit_s=fleet.time_limit,
    )
    with _progress("predicting pairs") as on_progress:
        found = find_profiles(asked.names, settings, asked.gpu_model, fleet.profiles)
        limits = limits_of(asked, settings.policy)
        known = read_known(found, settings, asked.gpu_uuid, any_of=True)
        return plan(known, asked, limits, on_progress)


def _refuse(objective: str, options: Mapping[str, object]) -> None:
    """Options that an objective does not know.

    Raises:
        InputError: one of them was given.
    """
    if given := [name for name, value in options.items() if value]:
        queues = ", ".join(SAVES_ENERGY)
        raise InputError(
            f"{', '.join(given)} is not for --objective {objective}",
            why=f"{queues} plan a queue in pairs, {', '.join(AIMS)} sets that run together",
            fix="name another objective, or leave it out",
        )


def _more_gpus(texts: Sequence[str], first: str | None) -> dict[str | None, int]:
    """Cards of further GPU models.

    Raises:
        InputError: no model and number, or the first model has no name.
    """
    found: dict[str | None, int] = {}
    for text in texts:
        name, _, count = text.rpartition("=")
        if not (name and count.isdecimal() and int(count)) or not first or name in (first, *found):
            raise InputError(
                f"--also {text} is no further GPU model",
                fix="name both: --gpu-model 'NVIDIA H200' --also 'NVIDIA H100 80GB HBM3=16'",
            )
        found[name] = int(count)
    return found


@contextmanager
def _progress(what: str) -> Generator[Callable[[int, int], None]]:
    """A bar on a terminal where something takes long, nothing elsewhere."""
    shown_at = time.monotonic() + PATIENCE_S
    with progress() as bar:
        task = bar.add_task(what, visible=False)
        yield lambda done, total: bar.update(
            task, completed=done, total=total, visible=time.monotonic() > shown_at
        )


_WIDTH = 110

_SAME = 0.005
"""Part of a time that a person takes for none."""


_LIMITS: dict[Vendor, str] = {"nvidia": "MPS percentages", "amd": "HSA_CU_MASK"}
"""What the first variable of a job's limit says."""

_GPUS = 12
"""GPUs whose jobs are listed; there can be thousands, and --json has all."""


def _show(found: Planned | SetPlacement, prices: Prices, details: Collection[str]) -> None:
    """Print the first lines, and the wanted details: `pairs`, `schedule` and `notes`."""
    if isinstance(found, Planned):
        headline, lines = _queue_headline(found), _queue_lines(found, prices)
        pairs, schedule, notes = _groups(found), "when and where", [*_queue_remarks(found)]
    else:
        headline, lines = _sets_headline(found), _sets_lines(found)
        pairs, schedule = table_of(_SET_COLUMNS, found.sets), "launches"
        notes = [*_sets_remarks(found)]
    options = f"--pairs (who with whom) --schedule ({schedule}) --notes ({len(notes)}) --json"
    console = print_screen(Said(headline=headline, lines=(*lines, ("More", options))))
    if "pairs" in details:
        console.print(Text("who with whom", style="bold"))
        print_table(pairs, _WIDTH)
    if "schedule" in details:
        if isinstance(found, Planned):
            console.print(Text("the whole queue to its end", style="bold"))
            plans = {"this plan": found.plan.schedule, **found.others}
            print_table(table_of(_PLAN_COLUMNS, plans.items()), _WIDTH)
        console.print(Text(schedule, style="bold"))
        for line in _gpus(found) if isinstance(found, Planned) else _launches(found):
            console.print(Text(line), soft_wrap=True)
    if "notes" in details:
        print_list(console, "notes", "!", notes)


def _queue_headline(planned: Planned) -> str:
    found, problem = planned.plan.schedule, planned.problem
    return (
        f"{count_of(len(problem.queue), 'job')} on {problem.gpus} x {planned.gpu_model}: done in "
        f"{duration_text(found.makespan_s)}, {_kwh(found.energy_j)}, "
        f"{float(f'{found.busy_s / 3600:.3g}'):,g} GPU hours. {basis(None, planned.one_window)}"
    )


def _queue_lines(planned: Planned, prices: Prices) -> Iterator[tuple[str, str]]:
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
    """Pairs and jobs alone; what belongs to sharing is empty of a job alone."""

    def shared(cell: Callable[[JobGroup], str]) -> Callable[[tuple[JobGroup, int]], str]:
        return lambda row: cell(row[0]) if row[0].split else "-"

    def limits(group: JobGroup) -> str:
        return " and ".join(next(iter(limit.values())) for limit in environments(planned, group))

    columns: Columns[tuple[JobGroup, int]] = (
        ("times", lambda row: row[1]),
        ("jobs", lambda row: " + ".join(job.name for job in row[0].jobs)),
        ("split", lambda row: way(row[0])),
        (_LIMITS[vendor_of(planned.gpu_model)], shared(limits)),
        ("speeds", shared(lambda group: " and ".join(map(percent, group.speeds)))),
        ("time", lambda row: duration_text(row[0].time_s)),
        ("W", lambda row: f"{row[0].power_w:.0f}"),
        ("energy saved", shared(lambda group: percent(group.energy_saved, 1))),
        ("time saved", shared(lambda group: percent(group.time_saved, 1))),
    )
    return table_of(columns, planned.groups.items())


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


def _queue_remarks(planned: Planned) -> Iterator[str]:
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


def _kwh(joules: float) -> str:
    return f"{joules / 3.6e6:,.4g} kWh"


_PLAN_COLUMNS: Columns[tuple[str, Schedule]] = (
    ("", lambda row: row[0]),
    ("energy", lambda row: _kwh(row[1].energy_j)),
    ("of it idle", lambda row: _kwh(row[1].idle_j)),
    ("all done in", lambda row: duration_text(row[1].makespan_s)),
    ("mean job ends after", lambda row: duration_text(row[1].mean_completion_s)),
    ("slowest job", lambda row: percent(row[1].slowest.speed)),
)


def _sets_headline(found: SetPlacement) -> str:
    pools = ", ".join(f"{pool.used} of {pool.gpus} x {pool.gpu_model}" for pool in found.gpus)
    seen = dict.fromkeys(job.job for one in found.sets for job in one.jobs if job.one_window)
    return (
        f"{count_of(found.seated, 'job')} on {count_of(found.cards, 'card')} ({pools}), "
        f"{found.power_w / 1000:,.4g} kW. {basis(None, seen)}"
    )


def _sets_lines(found: SetPlacement) -> Iterator[tuple[str, str]]:
    if found.waiting:
        waiting = ", ".join(f"{one.count} {one.job}" for one in found.waiting)
        is_full = all(pool.used == pool.gpus for pool in found.gpus)
        off = f"{waiting}: limits, or a profile that is missing, keep them off the free cards"
        yield "Waiting", f"no card is left for {waiting}" if is_full else off
    yield (
        "Against",
        f"a card each, the same work: {less_or_more(found.energy_saved)} energy with free cards "
        f"off, {less_or_more(found.energy_saved_idle)} with them idle, "
        f"{less_or_more(found.gpu_time_saved)} GPU time",
    )
    late = f", and {_number(found.waiting_cost)} for jobs that wait" if found.waiting else ""
    yield (
        "Bound",
        f"{found.objective}: {_own_cost(found)}{late}; no plan has less than "
        f"{_number(found.bound)} (at most {percent(max(found.gap, 0.0), 1)} less"
        f"{'; a longer --time-limit tells more' if found.timed_out else ''})",
    )
    slowest = min((job for one in found.sets for job in one.jobs), key=lambda job: job.speed)
    yield "Slowest", f"{slowest.job}, {percent(slowest.speed)} of its speed alone"


def _own_cost(found: SetPlacement) -> str:
    """Of jobs that have a card."""
    if found.objective == "fewest-cards":
        return count_of(found.cards, "card")
    unit = "W" if found.objective == "least-energy" else "an hour"
    return f"{_number(found.cost - found.waiting_cost)} {unit} with what jobs lag behind"


def _number(cost: float) -> str:
    """With three digits and more."""
    return f"{cost:,.0f}" if cost >= 100 else f"{cost:.4g}"


def _launches(found: SetPlacement) -> Iterator[str]:
    for one in found.sets:
        how = f"advisor launch {one.launch}" if len(one.jobs) > 1 else f"{one.launch} alone"
        yield from (f"  GPU {gpu:<5} {how}" for gpu in one.gpus)


def _tails(one: SeatedSet) -> str:
    return " ".join(f"{job.p99_ms:.3g}" for job in one.jobs if job.p99_ms is not None) or "-"


_SET_COLUMNS: Columns[SeatedSet] = (
    ("cards", lambda one: len(one.gpus)),
    ("GPU", lambda one: one.gpu_model),
    ("jobs, as of advisor launch", lambda one: one.launch),
    ("speeds", lambda one: " ".join(percent(job.speed) for job in one.jobs)),
    ("p99 ms, at most", _tails),
    ("W", lambda one: f"{one.power_w:.0f}"),
)


def _sets_remarks(found: SetPlacement) -> Iterator[str]:
    yield "jobs run together from now on; a queue to its end is planned in pairs: leave --objective"
    yield "savings are predicted, and of many sets those are taken that look best: expect less"
    if found.timed_out:
        yield "the search for sets ended at its time limit: the bound is further away"
    if found.bundled_profiles:
        count = count_of(len(found.bundled_profiles), "bundled profile")
        yield f"{count} of jobs with random input; power depends on it"
    yield from found.warnings
