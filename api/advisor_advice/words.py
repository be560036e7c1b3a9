"""Answers in words, as the command line prints them and the pages show them."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from advisor.core.gpu import (
    ADVISED_JOBS,
    ALL_GPUS,
    ISOLATING,
    LIMIT_COMMANDS,
    MOST_GPUS,
    PRIORITY,
    UNIT_NAMES,
    WHOLE,
    Sharing,
    Split,
    vendor_of,
)
from advisor.core.objectives import COST
from advisor.core.records import PRIOR, SINGLE_WINDOW
from advisor.core.wording import (
    as_requested,
    below_normal_text,
    count_of,
    counted,
    in_digits,
    less_or_more,
    limits_text,
    listed,
    option_words,
    percent,
)
from advisor.decide.decision import (
    HOUR_S,
    LEAST_TIME_SAVED,
    Decision,
    RatedSplit,
    savings_of,
)
from advisor.decide.limits import Request, is_served
from advisor.formats.moments import duration_text
from advisor.predict.profiles import Profile, hold_several
from advisor.wire.answers import JobShare, MeasuredTogether, Option, Recommendation, Said
from advisor.wire.requests import RecommendationRequest
from advisor_advice.answers import ModelAdvice, lower_limits, needs_of, option_of

WORDS: Mapping[Sharing, str] = {
    "uncapped": "without limits",
    "time-sliced": "by time slicing",
    "exclusive": "one after the other",
}

_BY_COST = "set ADVISOR_GPU_HOUR and ADVISOR_KWH, and --objective cost decides"


def recommendation(given: ModelAdvice, request: RecommendationRequest) -> Recommendation:
    """The answer as in JSON, with its words if the request wants them."""
    answer = given.to_wire(every=request.every)
    return replace(answer, said=said(given)) if request.words else answer


def said(given: ModelAdvice) -> Said:
    """An answer but for its last line, which is about options of the command line."""
    whole = first_lines(given)
    return replace(whole, lines=whole.lines[:-1])


def first_lines(given: ModelAdvice) -> Said:
    """Headline and named lines of an answer."""
    d = given.decision
    is_pair, shared = _is_pair(d), d.sharing_option and option_of(d.sharing_option, d)
    if d.sharing_option and shared:
        lines = (
            *_kept(shared, d),
            *_saved(d, d.sharing_option, shared),
            *_risk_and_start(d, d.sharing_option, shared, launch_command(given, d.sharing_option)),
        )
    else:
        lines = (*(_exclusive_lines(given) if is_pair else _separate_lines(given)), *_near(d))
    notes = f" --notes ({len(given.warnings)})" if given.warnings else ""
    every, card = "every split" if is_pair else "best of each", d.profiles[0].gpu_model
    # All speeds, also those alone, are at the limit that was asked for.
    if d.profiles[0].measured:
        card = f"{card} at {d.profiles[0].power_limit_w:g} W"
    measured = basis_of(d.profiles, given.measured if d.sharing_option else None)
    return Said(
        headline=f"{_verdict(d, 0 if shared else len(given.gpus))} ({card}). {measured}",
        lines=(
            *lines,
            *(() if given.gpus and not shared else _lower_limits(d)),
            ("More", f"--why --how (by hand) --all ({every}){notes}"),
        ),
    )


def _lower_limits(d: Decision) -> Iterator[tuple[str, str]]:
    """What a lower power limit would save, and how it is set."""
    alike: dict[str, list[str]] = {}
    for lower in lower_limits(d):
        text = (
            f"{lower.power_limit_w:.0f} W: {less_or_more(lower.energy_saved.value, 0)} energy, "
            f"{percent(lower.longer.value)} longer ({percent(lower.longer.high)} at worst)"
        )
        alike.setdefault(text, []).extend(lower.jobs)
    each = [text if d.choice else f"{listed(of)} at {text}" for text, of in alike.items()]
    yield from _rows("Limit", each)
    if alike:
        how = LIMIT_COMMANDS[vendor_of(d.profiles[0].gpu_model)]
        yield "", f"predicted; set it as administrator: {how} WATTS"


def _rows(name: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Lines of which the first has the name."""
    yield from (("" if n else name, text) for n, text in enumerate(texts))


def basis(
    measured: MeasuredTogether | None, by_window: Collection[str] = (), *, is_prior: bool = False
) -> str:
    """Whether the numbers are measured at the chosen split, estimated or predicted.

    Args:
        measured: Measurements of these jobs together.
        by_window: Jobs that were measured in one window on the whole GPU.
        is_prior: Whether nothing was learned from the GPU model of those.
    """
    of = listed(by_window) if len(by_window) <= ADVISED_JOBS else f"each of {len(by_window)} jobs"
    how = "A prior, with wide ranges," if is_prior else "Estimated"
    basis_text = f"{how} from one window of {of}" if by_window else "Predicted"
    if measured is None:
        return basis_text
    text = measured.text
    return text.capitalize() if measured.at_choice else f"{basis_text}; other splits {text}"


def basis_of(profiles: Sequence[Profile], measured: MeasuredTogether | None = None) -> str:
    """The same by the profiles of the jobs."""
    by_window = dict.fromkeys(p.job for p in profiles if SINGLE_WINDOW in p.flags)
    return basis(measured, by_window, is_prior=any(PRIOR in p.flags for p in profiles))


def _kept(way: Option, d: Decision) -> Iterator[tuple[str, str]]:
    """A row for each job, equal ones once: the speed that it keeps, and its p99 or worst case."""
    alone_ms = {profile.job: profile.whole_gpu_p99_ms for profile in d.profiles}
    counts = Counter((share.job, share.speed, share.latency_p99_ms) for share in way.jobs)
    names = [_times(job, count) for (job, _, _), count in counts.items()]
    rows: list[str] = []
    for name, (job, speed, p99) in zip(names, counts, strict=True):
        worst = f"{percent(speed.low)} at worst"
        if p99:
            alone = f" ({in_digits(alone_ms[job] or 0)} alone)" if alone_ms[job] else ""
            worst = f"p99 {in_digits(p99.value)} ms, {in_digits(p99.high)} at worst{alone}"
        kept = percent(min(speed.value, 1.0))
        rows.append(f"{name:<{max(map(len, names))}}  {kept:>5}  {worst}")
    return _rows("Keeps", rows)


def _verdict(r: Decision, gpus: int) -> str:
    jobs, option = [profile.job for profile in r.profiles], r.sharing_option
    apart = f"on {gpus} GPUs" if gpus else "on separate GPUs"
    apart = "one after the other" if _can_wait(r) else apart
    if option is None:
        return f"DO NOT SHARE: run {counted(jobs)} {apart}"
    verdict = "SHARE" if r.choice else f"YOUR CALL: share to save time, or run {apart}"
    low = below_normal_text(jobs[n] for n in option.split.below_normal)
    limits = f" {WORDS[option.sharing]}" if option.sharing in WORDS else ""
    if option.split.gpus:
        return f"{verdict}: {_seats_of_gpus(r, option)}{limits}"
    names = counted(jobs) if len(jobs) == ADVISED_JOBS else f"all {len(jobs)} jobs on one GPU"
    if limits or not _is_pair(r):
        return f"{verdict}: {names}{limits or f', {_seats(r, option)}'}{low}"
    return f"{verdict}: {_seats(r, option)}{low}"


def _seats(r: Decision, option: RatedSplit) -> str:
    """Jobs with their limits; of a set those that have one, equal ones once."""
    shares, is_pair = option_of(option, r).jobs, _is_pair(r)
    counts = Counter(f"{s.job} on {_part(s)}" for s in shares if is_pair or s.share_percent < WHOLE)
    total = next((f"of {p.units_total} " for p in r.profiles if p.units_total), "")
    unit = f" {total}{UNIT_NAMES[vendor_of(r.profiles[0].gpu_model)]}" if total else ""
    return listed(_times(seat, count) for seat, count in counts.items()) + unit


def _part(share: JobShare) -> str:
    return f"{share.share_percent:g} %" if share.units is None else str(share.units)


def _times(name: str, count: int) -> str:
    return f"{count} x {name}" if count > 1 else name


def _is_pair(r: Decision) -> bool:
    return len(r.profiles) == ADVISED_JOBS and not hold_several(r.profiles)


def _can_wait(r: Decision) -> bool:
    """Whether one after the other is an option: the requests of a server do not wait."""
    return _is_pair(r) and not any(map(is_served, r.profiles))


def _seats_of_gpus(r: Decision, option: RatedSplit) -> str:
    seats = [
        share.job + (f" (limit {_part(share)})" if share.share_percent < WHOLE else "")
        for share in option_of(option, r).jobs
    ]
    on_all = [seats[n] for n, gpu in enumerate(option.split.gpus) if gpu == ALL_GPUS]
    each = (
        f"{listed([seats[n] for n in on if option.split.gpus[n] != ALL_GPUS])} on GPU {number}"
        for number, on in enumerate(option.split.each_gpu)
        if len(on) > len(on_all)
    )
    return "; ".join((f"{listed(on_all)} on {MOST_GPUS} GPUs", *each))


def _saved(r: Decision, way: RatedSplit, option: Option) -> Iterator[tuple[str, str]]:
    """Time, energy and cost: against one after the other if it is an option, else separate GPUs."""
    prices, held = r.request.policy.prices, [profile.gpus for profile in r.profiles]
    if _can_wait(r):
        found, stp = r.same_work(way), way.prediction.stp
        this, apart = found.choice, found.exclusive
        done = f"{duration_text(this.time_s)} for both instead of {duration_text(apart.time_s)}: "
        costs = (this.time_s, this.energy_j), (apart.time_s, apart.energy_j)
        if r.request.work:
            yield "Time", f"{done}{less_or_more(1 - this.time_s / apart.time_s, 0)}"
            yield "Energy", f"{less_or_more(1 - this.energy_j / apart.energy_j, 0)} for this work"
        else:
            energy = savings_of(way.prediction, prices).energy
            yield "Time", f"{done}{_hours(stp.value)} ({_hours(stp.low)} at worst)"
            at_worst = f"({less_or_more(energy.low, 0)} at worst)"
            yield "Energy", f"{less_or_more(energy.value, 0)} for the same work {at_worst}"
    else:
        hours = less_or_more(option.gpu_time_saved.value, 0)
        yield "GPUs", f"{max(held)} instead of {sum(held)}: {hours} GPU time for the same work"
        saved, low, idle = (
            less_or_more(part, 0)
            for part in (
                option.energy_saved.value,
                option.energy_saved.low,
                option.energy_saved_idle.value,
            )
        )
        yield "Energy", f"{saved} with freed GPUs off ({low} at worst)"
        yield "", f"{idle} with freed GPUs idle"
        # Seconds that GPUs are held, and joules: an hour together, and its work on separate GPUs.
        speeds = [share.speed.value for share in option.jobs]
        alone = zip(speeds, r.profiles, strict=True)
        apart_j = HOUR_S * sum(s * profile.whole_gpu_power_w for s, profile in alone)
        alone_s = HOUR_S * sum(s * gpus for s, gpus in zip(speeds, held, strict=True))
        costs = (HOUR_S * max(held), HOUR_S * option.power_w.value), (alone_s, apart_j)
    if prices.are_set:
        yield "Cost", prices.text(*costs)
    elif way is r.call:
        yield "Cost", _BY_COST


def _hours(stp: float) -> str:
    """GPU time for the same work, at so many times the work an hour."""
    return less_or_more(1 - 1 / stp, 0) if stp else "no end"


def _risk_and_start(
    r: Decision, way: RatedSplit, option: Option, start: str
) -> Iterator[tuple[str, str]]:
    needs, limit_w = needs_of(r), r.profiles[0].power_limit_w
    memory_mib, cores = needs.memory_mib, needs.host_cores
    of = f" of {limit_w:.0f}" if limit_w and not way.split.gpus else ""
    card = f" of {needs.memory_of_mib / 1024:.0f}" if needs.memory_of_mib else ""
    taken = (
        f"{_crash(r, isolates=option.isolates)}; {option.power_w.value:.0f}{of} W",
        "" if memory_mib is None else f"{memory_mib / 1024:.0f}{card} GiB",
        "" if cores is None else count_of(max(1, round(cores)), "host core"),
    )
    yield "Risk", ", ".join(filter(None, taken))
    if not option.isolates and not _is_pair(r):
        yield "Isolate", _isolated(r)
    yield from _near(r)
    yield "Start", start


def _exclusive_lines(given: ModelAdvice) -> Iterator[tuple[str, str]]:
    """Why two jobs are not to share, and what the option with the most work an hour would take."""
    r = given.decision
    yield "Why", next(iter(given.reasons), "no split that keeps the limits saves enough")
    splits = [o for o in r.options[:-1] if (o.sharing in ISOLATING) == r.request.isolate]
    if kept := [o for o in splits if not o.violations] or splits:
        best = max(kept, key=lambda o: o.prediction.stp.value)
        energy = savings_of(best.prediction, r.request.policy.prices).energy.value
        stp, saved = best.prediction.stp.value, less_or_more(energy, 0)
        beyond = ", beyond a limit" if best.violations else ""
        yield "At best", f"{best.name}{beyond}: {_hours(stp)} GPU time, {saved} energy"
        hours = stp >= 1 / (1 - LEAST_TIME_SAVED) and not best.violations
        if hours and r.request.objective.name != COST:
            yield "Cost", _BY_COST


def _near(r: Decision) -> Iterator[tuple[str, str]]:
    return _rows("Near", filter(None, (r.near_miss(),)))


def _separate_lines(given: ModelAdvice) -> Iterator[tuple[str, str]]:
    r = given.decision
    yield "Why", f"{'on one GPU ' * bool(given.gpus)}{next(options_not_taken(r))}"
    yield "Risk", f"{_crash(r)} of a shared GPU; {_SEPARATE}"
    if given.gpus:
        yield from _rows("GPUs", (f"{len(given.gpus)} instead of {len(r.profiles)}", *given.gpus))
    elif not (r.apart.violations or hold_several(r.profiles)):
        yield "Or", "one after the other on one GPU: the same energy and GPU hours, later"


_SEPARATE = "separate GPUs isolate crashes"


def _crash(r: Decision, *, isolates: bool = False) -> str:
    """Effect of a crash of one client of a shared GPU."""
    if isolates:
        return "a crash of one job leaves the others running"
    if vendor_of(r.profiles[0].gpu_model) == "amd":
        return "not tested: a crash of one job may end the others"
    return f"a crash of one job ends {'both' if _is_pair(r) else 'all'}"


def _isolated(r: Decision) -> str:
    """The way that isolates crashes, and what it costs."""
    if (sliced := next((o for o in r.options if o.sharing == "time-sliced"), None)) is None:
        return _SEPARATE
    if sliced.violations:
        return f"{_SEPARATE}; time slicing would break a limit"
    option = option_of(sliced, r)
    slowest = percent(min(share.speed.value for share in option.jobs))
    saved = less_or_more(option.energy_saved.value, 0)
    return f"--isolate: time slicing, {saved} energy, the slowest job at {slowest}"


def launch_command(given: ModelAdvice, option: RatedSplit) -> str:
    """The command that runs the jobs so, for a shell."""
    d = given.decision
    return f"advisor launch {launch_words(d.request, d.profiles, option.split)}{given.options}"


def launch_words(request: Request, profiles: Sequence[Profile], split: Split) -> str:
    """What `advisor launch` is given to start jobs at a split, which keep what was asked for."""
    jobs, wanted = [profile.job for profile in profiles], request.of(profiles)
    least, every_ms = wanted.min_speed, wanted.default_max_p99_ms
    is_one = len(set(least.values())) == 1 and {*least} == {*jobs}
    speeds = {"": least[jobs[0]]} if is_one else {f"{job}=": of for job, of in least.items()}
    options = {
        "split": split,
        "min_speed": [f"{job}{speed:.10g}" for job, speed in speeds.items()],
        "max_p99": [
            *([] if every_ms is None else [f"{every_ms:.10g}ms"]),
            *(f"{job}={most:.10g}ms" for job, most in wanted.max_p99_ms.items()),
        ],
        "max_power": wanted.max_power_w,
        "power_limit": profiles[0].power_limit_w if profiles[0].measured else None,
        "gpu": "0,1" if split.gpus else None,
    }
    return as_requested(jobs) + option_words(options)


def options_not_taken(r: Decision) -> Iterator[str]:
    """Saving and broken limit of the best of each sharing that was not chosen, nearest first."""
    for option in sorted(
        (option_of(option, r) for option in r.best_of_each()),
        key=lambda w: (len(w.violations), -w.energy_saved.value),
    ):
        if (r.choice and option.split == r.choice.name) or option.sharing == "exclusive":
            continue
        low = below_normal_text(s.job for s in option.jobs if PRIORITY in s.environment)
        said = WORDS.get(option.sharing, f"with {limits_of(option)}") + low
        saved = f"{said} it would take {less_or_more(option.energy_saved.value, 0)} energy"
        yield f"{saved}, but {option.violations[0]}" if option.violations else saved
    yield f"{count_of(len(r.options), 'option')} compared"


def limits_of(option: Option) -> str:
    """Limits of the jobs that have one."""
    return limits_text((s.job for s in option.jobs), (s.share_percent for s in option.jobs))
