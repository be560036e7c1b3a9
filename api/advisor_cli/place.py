"""`advisor place`: which jobs share a GPU, of a queue to its end or from now on."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.text import Text

from advisor.core.gpu import LIMIT_COMMANDS, vendor_of
from advisor.core.objectives import Aim, Prices
from advisor.core.wording import (
    count_of,
    energy_text,
    in_digits,
    less_or_more,
    listed,
    option_words,
    percent,
)
from advisor.errors import InputError, placed
from advisor.formats.moments import duration_text, read_duration
from advisor.settings import read_settings
from advisor.wire.answers import (
    PlacedJob,
    Placement,
    Queue,
    Said,
    SeatedJob,
    SeatedSet,
    SimplerSchedule,
    Totals,
)
from advisor.wire.requests import MOST_PLACED, PlacementRequest, QueuedJobs
from advisor_advice.options import longest_p99_ms, min_speeds, read_works
from advisor_advice.placing import place_jobs
from advisor_advice.words import basis
from advisor_cli.console import (
    AsJson,
    Columns,
    Cores,
    GpuUuidOption,
    LimitOptions,
    MinGain,
    Notes,
    PowerLimit,
    as_json_text,
    grouped,
    job_names,
    print_list,
    print_screen,
    print_table,
    say,
    table_of,
)

_ENTRY = re.compile(r"([^:*\s]+)(?:[:*]([0-9]{1,9}))?(?:\s+(\S+))?")


# Name of equal jobs, how many they are, and seconds of work of each; None: not given.
_Entry: TypeAlias = tuple[str, int, float | None]


def read_entries(texts: Sequence[str], file: Path | None) -> list[_Entry]:
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
        with (
            InputError.instead_of(
                UnicodeDecodeError, f"{file} is not UTF-8 text", why="", fix="save it as UTF-8"
            ),
            InputError.instead_of(OSError, f"{file} cannot be read", fix="check its name"),
        ):
            lines = enumerate(file.read_text("utf-8-sig").splitlines(), start=1)
        places = [
            (f"{file}:{n}: ", text) for n, line in lines if (text := line.partition("#")[0].strip())
        ]
    if not (entries := [_entry(place, text) for place, text in places]):
        raise InputError("there are no jobs", fix="name them, such as: advisor place gemm:2 triad")
    if sum(count for _, count, _ in entries) > MOST_PLACED:
        raise InputError(f"these are more than {MOST_PLACED} jobs", fix="check the counts")
    return entries


def _entry(place: str, text: str) -> _Entry:
    match = _ENTRY.fullmatch(text)
    if not match or (count := int(match[2] or 1)) < 1:
        raise InputError(
            f"{place}{text} is not a job",
            fix="write NAME, NAME:40 for forty of it, or NAME:40 3h with what each takes alone",
        )
    with placed(f"{place}{text}"):
        return match[1], count, read_duration(match[3]) if match[3] else None


@grouped
def place(
    *,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of profiled jobs; NAME:40 for forty copies",
            metavar="JOBS",
            autocompletion=job_names,
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(help="Number of GPUs (default: one for each job)", min=1, max=MOST_PLACED),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--jobs", help="File of jobs, one line each: NAME, NAME:40 or NAME:40 3h"),
    ] = None,
    work: Annotated[
        list[str] | None,
        typer.Option(
            help="Time that a job takes alone, JOB=3h or 3h for all: plans a queue, in "
            "pairs. Without it jobs run from now on, up to seven on a GPU"
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            help="More GPUs, of another model: 'NVIDIA H100 80GB HBM3=16'; not for queues"
        ),
    ] = None,
    objective: Annotated[
        Aim | None,
        typer.Option(
            help="What to minimise (default: cost if prices are set, else energy). "
            "throughput: GPU hours, or the end of a queue; fewest-cards: not for "
            "queues"
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(help="Time until all work must be done, such as 8h; all jobs run from now on"),
    ] = None,
    host_cores: Cores = None,
    min_gain: MinGain = None,
    gpu_uuid: GpuUuidOption = None,
    power_limit: PowerLimit = None,
    rack_power: Annotated[
        str | None,
        typer.Option(
            help="Maximum power of all GPUs in use, such as 8kW; finds the power limit "
            "with the most work"
        ),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(help="Solver time limit, in seconds", min=0.0)
    ] = 10.0,
    limits: LimitOptions,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Print which jobs share a GPU, and how")
    ] = False,
    schedule: Annotated[
        bool,
        typer.Option(
            "--schedule", help="Print when and where each job runs, and simpler schedules"
        ),
    ] = False,
    notes: Notes = False,
    as_json: AsJson = False,
) -> None:
    """Plan which jobs share a GPU, and how: from now on, or until their work is done.

    Jobs that `advisor recommend` keeps apart do not share. Exit code 10: not every job can be
    placed within the limits.

    Example: advisor place bert-infer-b2:4 vit-train:3 triad:3 --gpus 5
    """
    settings, entries = read_settings(), read_entries(jobs or (), file)
    names = list(dict.fromkeys(name for name, _, _ in entries))
    works = read_works(work or (), names)
    speeds = min_speeds(limits.min_speed or (), names)
    by_job_ms, of_all_ms = longest_p99_ms(limits.max_p99 or (), names)
    request = PlacementRequest(
        jobs=tuple(
            QueuedJobs(
                job=name,
                count=count,
                work_s=work_s or works.get(name),
                min_speed=speeds.get(name),
                max_p99_ms=by_job_ms.get(name),
            )
            for name, count, work_s in entries
        ),
        gpus=gpus,
        objective=objective,
        max_p99_ms=of_all_ms,
        max_power_w=limits.max_power,
        memory_mib=limits.memory,
        host_cores=host_cores,
        min_gain=min_gain,
        gpu_model=limits.gpu_model,
        gpu_uuid=gpu_uuid,
        power_limit_w=power_limit,
        rack_power_w=None if rack_power is None else _watts(rack_power),
        deadline_s=None if deadline is None else read_duration(deadline),
        time_limit_s=time_limit,
    )
    if (other_gpus := _more_gpus(also or (), limits.gpu_model)) and request.is_queue:
        raise InputError("a queue is on GPUs of one model", fix="leave out --also, or the work")
    placement = place_jobs(request, settings, other_gpus, limits.profiles)
    if gpu_uuid is not None and placement.card is None:
        say(f"nothing is known of what the card {gpu_uuid} draws beside others", err=True)
    if as_json:
        say(as_json_text(placement))
    else:
        _show(
            placement,
            settings.policy.prices,
            option_words({"profiles": limits.profiles, "gpu": gpu_uuid}),
            pairs=pairs,
            schedule=schedule,
            notes=notes,
        )


def _watts(text: str) -> float:
    """Of `8kW` or `8000`.

    Raises:
        InputError: it is no power.
    """
    if match := re.fullmatch(r"([0-9.]+) ?(k?)W?", text):
        with suppress(ValueError):
            return float(match[1]) * (1000 if match[2] else 1)
    raise InputError(f"{text!r} is no power", fix="write 8kW, or 8000")


def _more_gpus(texts: Sequence[str], first: str | None) -> dict[str, int]:
    """Cards of further GPU models.

    Raises:
        InputError: no model and number, or the first model has no name.
    """
    gpus: dict[str, int] = {}
    for text in texts:
        name, _, count = text.rpartition("=")
        if not (name and count.isdecimal() and int(count)) or not first or name in (first, *gpus):
            raise InputError(
                f"--also {text} is no further GPU model",
                fix="name both: --gpu-model 'NVIDIA H200' --also 'NVIDIA H100 80GB HBM3=16'",
            )
        gpus[name] = int(count)
    return gpus


_Seats: TypeAlias = tuple[tuple[str, float], ...]

# GPUs of a queue whose jobs are listed; there can be thousands, and --json has all.
_GPUS = 12

# Sets that the first lines name.
_FEW = 4


def _show(
    placement: Placement, prices: Prices, given: str, *, pairs: bool, schedule: bool, notes: bool
) -> None:
    queue, risks = placement.queue, placement.risks
    remarks = [remark for remark in _remarks(placement) if remark not in risks]
    when = "when and where" if queue else "launches"
    options = f"--pairs (all sets) --schedule ({when}) --notes ({len(remarks)}) --json"
    pools = listed(f"{pool.used} of {pool.gpus} {pool.gpu_model}" for pool in placement.gpus)
    watts = in_digits(sum(one.count * one.power_w for one in placement.sets))
    so_many = f"{placement.seated} of " if placement.waiting else ""
    result = f"done in {duration_text(queue.makespan_s)}" if queue else f"{watts} W"
    one_window = sorted({job.job for one in placement.sets for job in one.jobs if job.one_window})
    totals, plans = None, dict[str, Totals]()
    if queue:
        plans = {"this plan": queue, **{other.name: other for other in queue.baselines}}
        cost: Columns[tuple[str, Totals]] = [
            ("cost", lambda row: f"{prices.of(row[1].gpu_time_s, row[1].energy_j):,.2f}")
        ]
        totals = table_of((*_TOTAL_COLUMNS, *(cost if prices.are_set else ())), plans.items())
    console = print_screen(
        Said(
            headline=f"PLAN: {so_many}{count_of(placement.queued, 'job')} on {pools}, {result}. "
            f"{basis(None, one_window)}",
            lines=(*_lines(placement), ("More", options)),
        ),
        totals,
    )
    if pairs:
        console.print(Text("all sets", style="bold"))
        print_table(table_of(_SET_COLUMNS, placement.sets))
    if schedule and queue:
        console.print(Text("the whole queue to its end", style="bold"))
        print_table(table_of(_PLAN_COLUMNS, plans.items()))
    if schedule:
        console.print(Text(when, style="bold"))
        for line in _gpus(placement.sets, queue) if queue else _launches(placement, given):
            console.print(Text(line), soft_wrap=True)
    if notes:
        print_list(console, "notes", "!", remarks)


def _lines(placement: Placement) -> Iterator[tuple[str, str]]:
    if queue := placement.queue:
        yield from _shared(placement)
        yield "Pays", _gain_text(placement, queue)
    else:
        yield from _from_now_on(placement)
    speed, job, is_server = min(
        (job.speed, job.job, job.p99_ms is not None)
        for placed in placement.sets
        for job in placed.jobs
    )
    if queue:
        speed, job = queue.slowest_speed, queue.slowest_job
    of = "demand" if is_server else "speed alone"
    limit = f" at {placement.power_limit_w:g} W" if placement.power_limit_w else ""
    yield "Slowest", f"{job}, {percent(speed)} of its {of}{limit}"
    yield from (("Risk", risk) for risk in placement.risks)


def _from_now_on(placement: Placement) -> Iterator[tuple[str, str]]:
    if placement.waiting:
        waiting = ", ".join(f"{wait.count} {wait.job}" for wait in placement.waiting)
        is_full = all(pool.used == pool.gpus for pool in placement.gpus)
        off = f"{waiting}: limits or a missing profile keep them off the free GPUs"
        yield "Waiting", f"no GPU or power is left for {waiting}" if is_full else off
    yield from _shared(placement)
    first = placement.gpus[0]
    if (limit_w := placement.power_limit_w) is not None:
        how = f"{LIMIT_COMMANDS[vendor_of(first.gpu_model)]} {limit_w:.0f}, as administrator"
        in_all = f"{in_digits(limit_w * first.gpus, 4)} W in all"
        yield "Limit", f"{limit_w:.0f} W for each of {first.gpus}, {in_all}: {how}"
    saved, idle, hours = map(
        less_or_more,
        (placement.energy_saved, placement.energy_saved_idle, placement.gpu_time_saved),
    )
    cards = f"{placement.cards} instead of {placement.seated}"
    yield "GPUs", f"{cards}: {hours} GPU time for the same work"
    yield "Energy", f"{saved} with freed GPUs off, {idle} with freed GPUs idle"
    if placement.bound is not None and placement.gap is not None:
        longer = "; a longer --time-limit may find it" if placement.timed_out else ""
        yield "Optimum", f"no plan is more than {percent(placement.gap, 1)} better{longer}"


def _shared(placement: Placement) -> Iterator[tuple[str, str]]:
    """A row for each of the sets that share a GPU, if they are few, and how many jobs do not."""
    sets = [s for s in placement.sets if len(s.jobs) > 1]
    more = sum(s.count for s in sets[_FEW:])
    alone = placement.seated - sum(s.count * len(s.jobs) for s in sets)
    rows = (
        *(
            f"{less_or_more(s.energy_saved, 0):>9} energy: {s.count} x {s.launch}"
            for s in sets[:_FEW]
        ),
        f"{count_of(more, 'more GPU')}: --pairs" if more else "",
        f"{count_of(alone, 'job')} alone" if alone else "",
    )
    yield from (("" if n else "Shared", row) for n, row in enumerate(filter(None, rows)))


def _gain_text(placement: Placement, queue: Queue) -> str:
    """Whether it pays, and which jobs make it so."""
    names = [run.job for run in queue.schedule]
    filling = sum(name in queue.filling_jobs for name in names)
    why = f"{filling} of {count_of(len(names), 'job')} fill a GPU"
    if queue.worth == "no":
        return f"no: no pair gains enough; {why}, and servers and small jobs are what pays"
    # Those that save most of a GPU's time are what to have more of.
    best = max(placement.sets, key=lambda s: (len(s.jobs), s.gpu_time_saved))
    saved = f"{less_or_more(best.energy_saved, 0)} energy, {less_or_more(best.gpu_time_saved, 0)}"
    jobs = " + ".join(job.job for job in best.jobs)
    return f"{queue.worth}, most for {jobs}: {saved} GPU time; {why}"


def _gpus(sets: Sequence[SeatedSet], queue: Queue) -> Iterator[str]:
    ways = {_seats(placed.jobs): placed.launch for placed in sets}
    gpus = sorted({run.gpu for run in queue.schedule})
    for gpu in gpus[:_GPUS]:
        runs = {run.number: run for run in queue.schedule if run.gpu == gpu}
        first = (run for run in runs.values() if run.beside is None or run.number < run.beside)
        texts = (_run_text(ways, run, runs.get(run.beside or 0)) for run in first)
        yield f"  GPU {gpu:<3} {', then '.join(texts)}"
    if len(gpus) > _GPUS:
        yield f"  and so on for {count_of(len(gpus) - _GPUS, 'more GPU')}: --json has every job"


def _run_text(ways: Mapping[_Seats, str], *runs: PlacedJob | None) -> str:
    there = [run for run in runs if run]
    return f"{ways[_seats(there)]} until {duration_text(max(run.end_s for run in there))}"


def _seats(jobs: Iterable[PlacedJob | SeatedJob]) -> _Seats:
    return tuple(sorted((job.job, job.share_percent) for job in jobs))


def _launches(placement: Placement, given: str) -> Iterator[str]:
    for seated in placement.sets:
        how = (
            f"advisor launch {seated.launch}{given}"
            if len(seated.jobs) > 1
            else f"{seated.launch} alone"
        )
        yield from (f"  GPU {gpu:<5} {how}" for gpu in seated.gpus)


def _saved(other: Totals, of: str) -> str:
    return percent(getattr(other, of), 1) if isinstance(other, SimplerSchedule) else ""


def _times(seated: SeatedSet) -> str:
    times_s = [job.time_s for job in seated.jobs if job.time_s is not None]
    return duration_text(max(times_s)) if times_s else "-"


def _shared_only(cell: Callable[[SeatedSet], str]) -> Callable[[SeatedSet], str]:
    """What belongs to sharing is empty of a job alone."""
    return lambda seated: cell(seated) if len(seated.jobs) > 1 else "-"


_SET_COLUMNS: Columns[SeatedSet] = (
    ("times", lambda seated: seated.count),
    ("GPU", lambda seated: seated.gpu_model),
    ("jobs, as of advisor launch", lambda seated: seated.launch),
    ("speeds, %", _shared_only(lambda s: " ".join(f"{100 * job.speed:.0f}" for job in s.jobs))),
    (
        "p99 ms, at most",
        lambda seated: (
            " ".join(in_digits(j.p99_ms) for j in seated.jobs if j.p99_ms is not None) or "-"
        ),
    ),
    ("time", _times),
    ("W", lambda seated: f"{seated.power_w:.0f}"),
    ("energy saved", _shared_only(lambda seated: percent(seated.energy_saved, 1))),
    ("time saved", _shared_only(lambda seated: percent(seated.gpu_time_saved, 1))),
)

_TOTAL_COLUMNS: Columns[tuple[str, Totals]] = (
    ("", lambda row: row[0]),
    ("done in", lambda row: duration_text(row[1].makespan_s)),
    ("GPU hours", lambda row: in_digits(row[1].gpu_time_s / 3600)),
    ("saved", lambda row: _saved(row[1], "gpu_time_saved")),
    ("energy", lambda row: energy_text(row[1].energy_j)),
    ("saved", lambda row: _saved(row[1], "energy_saved")),
)

_PLAN_COLUMNS: Columns[tuple[str, Totals]] = (
    ("", lambda row: row[0]),
    ("energy", lambda row: energy_text(row[1].energy_j)),
    ("of it idle", lambda row: energy_text(row[1].idle_j)),
    ("all done in", lambda row: duration_text(row[1].makespan_s)),
    ("mean job ends after", lambda row: duration_text(row[1].mean_completion_s)),
    ("slowest job", lambda row: percent(row[1].slowest_speed)),
)


def _remarks(placement: Placement) -> Iterable[str]:
    of_queue = (
        "100 %: as alone on a whole GPU; a job whose neighbour has ended keeps its limit",
        "energy counts idle GPUs until the last job has ended",
    )
    from_now_on = ("jobs run together from now on; a queue to its end is planned in pairs: --work",)
    ended = "the search ended at its time limit: --time-limit gives it more"
    bundled = count_of(len(placement.bundled_profiles), "bundled profile")
    remarks = (
        *(of_queue if placement.queue else from_now_on),
        "savings are predicted, and of many sets those are taken that look best: expect less",
        ended if placement.timed_out else "",
        f"{bundled} of jobs with random input; power depends on it"
        if placement.bundled_profiles
        else "",
        *placement.warnings,
        f"model {placement.model.version}",
    )
    return filter(None, remarks)
