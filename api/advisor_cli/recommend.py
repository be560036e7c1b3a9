"""`advisor recommend` and `advisor replicas`: jobs, or copies of one job, on one GPU."""

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import typer
from rich.text import Text

from advisor.core.gpu import ADVISED_JOBS, MOST_JOBS, MemoryFit, vendor_of
from advisor.core.objectives import DEFAULT_OBJECTIVE, Finish, Interval, Objective
from advisor.core.wording import (
    counted,
    energy_text,
    in_digits,
    less_or_more,
    option_words,
    percent,
)
from advisor.decide.decision import (
    Decision,
    RatedSplit,
)
from advisor.decide.limits import is_served
from advisor.errors import InputError
from advisor.formats.moments import duration_text
from advisor.formats.wire import to_plain
from advisor.wire.answers import Copies, Option, Partner, Partners, Recommendation, Said
from advisor_advice import ask
from advisor_advice.answers import ModelAdvice, option_of
from advisor_advice.placers import PLACERS, Pasted, pasted
from advisor_advice.words import (
    WORDS,
    basis,
    first_lines,
    launch_command,
    limits_of,
    options_not_taken,
)
from advisor_cli.console import (
    AsJson,
    Columns,
    Cores,
    Curve,
    GpuUuidOption,
    LimitOptions,
    MinGain,
    Notes,
    ObjectiveOption,
    PowerLimit,
    as_json_text,
    grouped,
    job_names,
    plain_table,
    print_list,
    print_screen,
    print_table,
    say,
    show_chart,
    table_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _AdviceOptions(LimitOptions):
    """What advice may be asked for, too."""

    min_gain: MinGain = None
    isolate: Annotated[
        bool,
        typer.Option(
            "--isolate", help="Only options in which a crash of one job leaves the others running"
        ),
    ] = False
    cores: Cores = None
    gpu_uuid: GpuUuidOption = None
    power_limit: PowerLimit = None


@grouped
def recommend(
    jobs: Annotated[
        list[str],
        typer.Argument(
            help="Names of one to seven profiled jobs; A*3 for three of A. One job: its "
            "best partners",
            metavar="A [B ...]",
            autocompletion=job_names,
        ),
    ],
    *,
    objective: ObjectiveOption = None,
    work: Annotated[
        list[str] | None,
        typer.Option(help="Work of two jobs as time alone, JOB=3h or 3h for both"),
    ] = None,
    fine: Annotated[bool, typer.Option("--fine", help="Try every split in steps of two SMs")] = (
        False
    ),
    options: _AdviceOptions,
    how: Annotated[
        bool, typer.Option("--how", help="Print the lines that start the jobs by hand")
    ] = False,
    why: Annotated[
        bool, typer.Option("--why", help="Print why, and what other options give")
    ] = False,
    notes: Notes = False,
    every: Annotated[bool, typer.Option("--all", help="Print all options, and plot them")] = False,
    as_json: AsJson = False,
    placer: Annotated[
        str | None,
        typer.Option("--as", help=f"Print the answer for a placer: {', '.join(PLACERS)}"),
    ] = None,
) -> None:
    """Find how two to seven jobs share one GPU with the least energy for their work.

    Prints a verdict, the speed of each job, the savings with their worst case, and the command that
    starts the jobs. Exit code 10: no option keeps every limit.

    Example: advisor recommend bert-serve-30 triad --min-speed triad=0.6
    """
    result = ask.advise(
        *jobs, objective=objective, work=work, fine=fine, every=every, **asdict(options)
    )
    if isinstance(result, Partners):
        if placer is not None:
            raise InputError("--as does not apply to 1 job", fix="name the other job, too")
        say(as_json_text(result)) if as_json else _show_partners(
            result, option_words({"objective": objective, **asdict(options)})
        )
        return
    given, answer = result
    if options.gpu_uuid is not None and answer.card is None:
        say(f"nothing is known of what the card {options.gpu_uuid} draws beside others", err=True)
    words = placer and _words_for(placer, given.decision)
    if as_json:
        say(as_json_text({**to_plain(answer), "placer": words} if words else answer))
    elif words:
        console = print_screen(replace(first_lines(given), lines=()))
        say("\n".join(words.lines) or "nothing to paste: each job asks for a whole GPU")
        print_list(console, f"for {words.version}, which cannot express:", "-", words.cannot)
    else:
        details = (("how", how), ("why", why), ("notes", notes), ("all", every))
        _show(given, [name for name, is_wanted in details if is_wanted])


def _words_for(placer: str, d: Decision) -> Pasted:
    return pasted(
        placer,
        d.profiles[0].gpu_model,
        [p.job for p in d.profiles],
        d.sharing_option and d.sharing_option.split,
        MemoryFit(tuple(p.memory_used_mib for p in d.profiles), d.request.memory_mib),
        [p.memory_bound for p in d.profiles],
    )


def _show_partners(partners: Partners, given: str) -> None:
    """Print partners, the best size alone and how many copies there is memory for."""
    job, best = partners.job, partners.partners
    number = f"{partners.looked_at} jobs"
    headline = f"PARTNERS of {job} on one GPU ({partners.gpu_model}): " + (
        f"the {len(best)} best of {number}, and what is saved against separate GPUs"
        if best
        else f"none of {number} saves anything beside it within these limits"
    )
    price: Columns[Partner] = [("cost", lambda p: _less(p.cost_saved))]
    columns: Columns[Partner] = [
        ("partner", lambda p: p.partner),
        ("", lambda p: p.verdict),
        ("split", lambda p: p.split),
        ("GPU time", lambda p: _less(p.gpu_time_saved)),
        ("energy", lambda p: _less(p.energy_saved)),
        *(price if any(p.cost_saved for p in best) else ()),
        ("speed", lambda p: percent(min(p.speed.value, 1.0))),
        ("partner's", lambda p: percent(min(p.partner_speed.value, 1.0))),
    ]
    # What it needs of the GPU without a partner, and the copies that memory has room for.
    size, copies = partners.size, partners.copies_by_memory
    p99 = f", p99 {in_digits(size.latency_p99_ms)} ms" if size and size.latency_p99_ms else ""
    lines = {
        "Alone": f"keeps {percent(size.speed)} of its speed on {size.share_percent:g} % of the SMs"
        f"{p99}"
        if size
        else "needs the whole GPU",
        "Memory": "" if copies is None else f"enough for {copies} of it on one GPU",
        "Next": f"advisor recommend {job} {best[0].partner}{given}" if best else "",
    }
    shown = tuple((name, line) for name, line in lines.items() if line)
    table = table_of(columns, best) if best else None
    print_screen(Said(headline=headline, lines=shown), table)


def _less(saved: Interval | None) -> str:
    return percent(saved.value) if saved else ""


def _show(given: ModelAdvice, details: Collection[str]) -> None:
    console, r = print_screen(first_lines(given)), given.decision
    notes, why = given.warnings, options_not_taken(r)
    if is_pair := len(r.profiles) == ADVISED_JOBS:
        why = iter((*_rates(r), *given.reasons, *_other_objectives(r)))
        if measured := given.measured:
            notes = (*notes, f"{measured.text}: {measured.at_choice} of them at this split")
        coverage, version = percent(given.manifest.coverage), given.manifest.version
        notes = (*notes, f"ranges are to hold {coverage} of what is measured; model {version}")
    for name, mark, lines in (("how", " ", _how(given)), ("why", "-", why), ("notes", "!", notes)):
        if name in details:
            print_list(console, name, mark, [*lines])
    if "all" in details and is_pair:
        # The same work in the way that the first lines are about, and in others; of a server none.
        served = any(map(is_served, r.profiles))
        for line in () if served else _same_work_lines(r, r.sharing_option or r.apart):
            console.print(Text(line, style="" if line.startswith(" ") else "bold"), soft_wrap=True)
        console.print(Text("all candidates", style="bold"))
        heading = _heading(r.request.objective)
        names = ("way", *(p.job for p in r.profiles), "W", "energy", "throughput", "")
        if r.request.objective.name not in (DEFAULT_OBJECTIVE, "throughput"):
            names = (*names, heading)
        print_table(plain_table(names, (_candidate(r, o)[: len(names)] for o in r.options)))
        show_chart(_curves(r), title=heading, below=f"share of {r.profiles[0].job}, %")
    elif "all" in details:
        console.print(Text("best of each way: energy and GPU hours saved", style="bold"))
        print_table(
            table_of(_OPTION_COLUMNS, [option_of(option, r) for option in r.best_of_each()])
        )


def _curves(r: Decision) -> Iterator[Curve]:
    """The objective of every split, next to no limit and one after the other."""
    if splits := [o for o in r.options if o.sharing == "limited" and not o.split.below_normal]:
        shares = [o.prediction.split.shares[0] for o in splits]
        yield shares, [_shown(o, r.request.objective) for o in splits], {"label": "splits"}
    for option in (o for o in r.options if o not in splits):
        level = [_shown(option, r.request.objective)] * 2
        yield (0, 100), level, {"label": option.name, "marker": "braille"}


def _rates(r: Decision) -> Iterator[str]:
    """What each job does, in its own unit, and what the GPU draws."""
    if r.sharing_option is None:
        return
    p = r.sharing_option.prediction
    for profile, part in zip(r.profiles, p.parts, strict=True):
        rate = f"{in_digits(part.rate.value)} {profile.rate_unit}/s"
        # How long it takes, for one that takes 1 alone; a server takes as long as requests come.
        value, whole = part.speed.value, "demand" if is_served(profile) else "speed"
        slower = f"takes {1 / value:.1f} times as long" if value > 0 else "stands still"
        does = "serves its requests" if is_served(profile) else slower
        speed = f"{percent(value)} of its {whole}{_range(part.speed.times(100))}"
        yield f"{profile.job} {does}: {rate}, {speed}"
    memory = p.memory_power_w
    of_memory = f", of it the memory {memory.value:.0f} W{_range(memory)}" if memory else ""
    yield f"power {p.power_w.value:.0f} W{_range(p.power_w)}{of_memory}"


def _how(given: ModelAdvice) -> Iterator[str]:
    """What to copy into the shells that start jobs, each with the variables of its limit."""
    r = given.decision
    names = [p.job for p in r.profiles]
    if (option := r.sharing_option) is None:
        waits = len(names) == ADVISED_JOBS and not any(map(is_served, r.profiles))
        apart = (
            f"run {', and when it has ended '.join(names)}; each has the whole GPU"
            if waits
            else "start each job on a GPU of its own"
        )
        yield from [f"on one GPU: {jobs}" for jobs in given.gpus] or [apart]
        return
    yield f"{launch_command(given, option)}   # or by hand:"
    if option.sharing == "time-sliced":
        yield "# no MPS daemon may run for this GPU: they would be its clients"
    elif vendor_of(r.profiles[0].gpu_model) == "nvidia":
        yield "nvidia-cuda-mps-control -d            # once, as the user of all jobs"
    else:
        yield "# all with ROCR_VISIBLE_DEVICES set to the GPU that they share, or none is limited"
    seats = [*zip(names, option.environments(r.profiles), strict=True)]
    yield from (
        f"export {name}={value:<4} # in the shell that starts {job}"
        for job, environment in seats
        for name, value in environment.items()
    )
    if free := [job for job, environment in seats if not environment]:
        yield f"# no variable for {counted(free)}; each job in a shell of its own"


def _other_objectives(r: Decision) -> Iterator[str]:
    for name, pick in r.picks().items():
        if pick.name != r.chosen.name:
            p = pick.prediction
            yield (
                f"--objective {name} would take {_option_name(pick)}: "
                f"{p.stp.value:.2f} times the work "
                f"an hour, {less_or_more(p.energy_saved.value)} energy"
            )


def _candidate(r: Decision, option: RatedSplit) -> tuple[str, ...]:
    p = option.prediction
    notes = {r.chosen.name: "chosen"} | ({r.call.name: "for time"} if r.call else {})
    # One after the other, each job runs at its full speed.
    is_alone = option.sharing == "exclusive"
    return (
        option.name,
        *(percent(1.0 if is_alone else part.speed.value) for part in p.parts),
        f"{p.power_w.value:.0f}",
        percent(p.energy_saved.value, 1),
        f"{p.stp.value:.2f}",
        notes.get(option.name, "breaks a limit" * bool(option.violations)),
        f"{_shown(option, r.request.objective):.4g}",
    )


def _shown(option: RatedSplit, objective: Objective) -> float:
    """The objective as people read it."""
    if objective.name == DEFAULT_OBJECTIVE:
        return 100 * option.prediction.energy_saved.value
    return (1000.0 if objective.unit == "1/W" else 1.0) * option.value


def _heading(objective: Objective) -> str:
    if objective.name == DEFAULT_OBJECTIVE:
        return "energy saved, %"
    unit = "per kW" if objective.unit == "1/W" else objective.unit
    return objective.name if unit == "1" else f"{objective.name} {unit}"


def _range(interval: Interval) -> str:
    return "" if interval.low == interval.high else f" ({interval.low:.0f} to {interval.high:.0f})"


def _same_work_lines(r: Decision, choice: RatedSplit) -> Iterator[str]:
    to_the_end, apart = r.same_work(choice), r.apart
    work = " and ".join(
        f"{duration_text(alone_s)} of {profile.job}"
        for alone_s, profile in zip(to_the_end.work.alone_s, r.profiles, strict=True)
    )
    yield f"the same work, {work} alone:"
    rows = (
        (f"this: {_option_name(choice)}", to_the_end.choice, _note(to_the_end.choice)),
        ("  restarted", to_the_end.restarted, "the one left over goes on without a limit"),
        (
            _option_name(apart),
            None if choice is apart else to_the_end.exclusive,
            "breaks a limit" if apart.violations else "",
        ),
    )
    yield from (
        f"  {name:<24}{_finish_text(finish, to_the_end.choice)}  {note}".rstrip()
        for name, finish, note in rows
        if finish
    )


def _option_name(option: RatedSplit) -> str:
    """Shares, or the way in words."""
    return {"exclusive": "one after the other", "uncapped": "no limits"}.get(
        option.name, option.name
    )


def _note(finish: Finish) -> str:
    return (
        f"one has ended after {duration_text(finish.shared_s)}; the other's limit stays"
        if finish.shared_s and finish.time_s - finish.shared_s >= 1e-6 * finish.time_s
        else ""
    )


def _finish_text(finish: Finish, this: Finish) -> str:
    """Energy and time of the work, and how much more they are than those of the chosen way."""
    over_j, over_s = (
        ("", "")
        if finish is this
        else (_over(finish.energy_j, this.energy_j), _over(finish.time_s, this.time_s))
    )
    energy, time = energy_text(finish.energy_j), duration_text(finish.time_s)
    return f"{energy:>9} {over_j:>7}  {time:>11} {over_s:>7}"


def _over(value: float, this: float) -> str:
    change = 100 * (value / this - 1) if this else 0.0
    return f"{change:+.1f} %" if abs(change) >= 0.05 else "same"


def _option_tail(option: Option) -> str:
    tails = [share.latency_p99_ms.value for share in option.jobs if share.latency_p99_ms]
    return in_digits(max(tails)) if tails and option.sharing != "exclusive" else "-"


_OPTION_COLUMNS: Columns[Option] = (
    ("way", lambda option: limits_of(option) if option.sharing == "limited" else option.split),
    ("W", lambda option: f"{option.power_w.value:.0f}"),
    ("saved: off", lambda option: percent(round(option.energy_saved.value, 2) or 0.0)),
    ("idle", lambda option: percent(round(option.energy_saved_idle.value, 2) or 0.0)),
    ("hours", lambda option: percent(round(option.gpu_time_saved.value, 2) or 0.0)),
    (
        "slowest",
        lambda option: percent(
            1.0 if option.sharing == "exclusive" else min(job.speed.value for job in option.jobs)
        ),
    ),
    ("p99 ms", _option_tail),
    ("", lambda option: "not kept" if option.violations else ""),
)


@grouped
def replicas(
    job: Annotated[
        str, typer.Argument(help="Name of a profiled job", metavar="JOB", autocompletion=job_names)
    ],
    options: _AdviceOptions,
    most: Annotated[
        int, typer.Option(help="Largest number of copies to try", min=ADVISED_JOBS, max=MOST_JOBS)
    ] = MOST_JOBS,
    notes: Notes = False,
    as_json: AsJson = False,
) -> None:
    """Find how many copies of a job one GPU can run, and what limits their number.

    Prints rate, p99, watts, and joules for each unit of progress. Exit code 10: not even one copy
    keeps its limits.

    Example: advisor replicas bert-serve-30 --max-p99 50ms
    """
    answer = ask.replicas(job, most=most, **asdict(options))
    say(as_json_text(replace(answer, said=None))) if as_json else _show_replicas(
        answer, with_notes=notes
    )


def _show_replicas(answer: Recommendation, *, with_notes: bool) -> None:
    assert answer.replicas
    count, job = answer.replicas, answer.jobs[0]
    best = count.copies[count.best - 1]

    def note(copies: Copies) -> str:
        notes = {
            "best": copies.number == count.best > 1,
            "too many": copies.number > count.best,
            f"at {copies.split}": "/" in (copies.split or ""),
            "measured": copies.measured is not None and copies.measured.at_choice > 0,
        }
        return ", ".join(note for note, is_true in notes.items() if is_true)

    tails: Columns[Copies] = (
        ("p99 ms", lambda c: in_digits(c.latency_p99_ms.value) if c.latency_p99_ms else "-"),
        ("at worst", lambda c: in_digits(c.latency_p99_ms.high) if c.latency_p99_ms else "-"),
    )
    columns: Columns[Copies] = [
        ("copies", lambda c: c.number),
        (f"{job.rate_unit}/s", lambda c: in_digits(c.rate.value, 4)),
        ("each", lambda c: percent(min(c.speed.value, 1.0))),
        ("at worst", lambda c: percent(min(c.speed.low, 1.0))),
        *(tails if any(copies.latency_p99_ms for copies in count.copies) else ()),
        ("W", lambda c: f"{c.power_w.value:.0f}"),
        ("J each", lambda c: f"{c.joules.value:.3g}"),
        ("", note),
    ]
    lines = list[tuple[str, str]]()
    if count.best > 1:
        off, idle = (less_or_more(x.value, 0) for x in (best.energy_saved, best.energy_saved_idle))
        times = best.rate.value / count.copies[0].rate.value
        lines = [
            ("GPUs", f"{count.best} copies on one do {times:.2f} times the work of one"),
            ("Energy", f"{off} with freed GPUs off, {idle} with freed GPUs idle"),
        ]
    lines.append(("Why", f"{count.ended_by}: {count.why}" if count.ended_by else count.why))
    way = ""
    if answer.choice and answer.said:
        is_isolated, sharing = answer.choice.isolates, answer.choice.sharing
        way = f" {WORDS[sharing]}" if is_isolated else ""
        what = "leaves the others running" if is_isolated else "ends all (see --isolate)"
        start = dict(answer.said.lines)["Start"]
        lines += [("Risk", f"a crash of one copy {what}"), ("Start", start)]
    if answer.warnings:
        lines.append(("More", f"--notes ({len(answer.warnings)})"))
    so_many = "1 COPY" if count.best == 1 else f"{count.best} COPIES"
    rests_on = basis(best.measured, [job.job] * job.one_window)
    screen = Said(
        headline=f"{so_many} of {job.job} on one GPU{way} ({answer.gpu_model}). {rests_on}",
        lines=tuple(lines),
    )
    console = print_screen(screen, table_of(columns, count.copies))
    if with_notes:
        print_list(console, "notes", "!", answer.warnings)
