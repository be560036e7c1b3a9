"""Answers in words, as the command line prints them and the pages show them."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
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
    units_for_share,
    vendor_of,
)
from advisor.core.objectives import COST, Interval
from advisor.core.records import PRIOR, SINGLE_WINDOW
from advisor.core.wording import (
    as_requested,
    below_normal_text,
    count_of,
    counted,
    less_or_more,
    limits_text,
    listed,
)
from advisor.decide.decision import (
    HOUR_S,
    LEAST_TIME_SAVED,
    Decision,
    RatedSplit,
    savings_of,
)
from advisor.decide.limits import is_served
from advisor.decide.reasons import percent
from advisor.formats.moments import duration_text
from advisor.predict.profiles import hold_several
from advisor.wire.answers import JobShare, MeasuredTogether, Option, Recommendation, Said
from advisor.wire.requests import RecommendationRequest
from advisor_advice.answers import ModelAdvice, lower_limits, needs_of, option_of

WORDS: Mapping[Sharing, str] = {
    "uncapped": "without limits",
    "time-sliced": "in turns, without MPS",
    "exclusive": "one after the other",
}

_BY_PRICE = "--objective cost decides, with your ADVISOR_GPU_HOUR and ADVISOR_KWH"


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
    by_window = dict.fromkeys(p.job for p in d.profiles if SINGLE_WINDOW in p.flags)
    is_prior = any(PRIOR in p.flags for p in d.profiles)
    if _is_pair(d):
        every = "every split"
        lines = [
            *(_pair_lines(d, d.sharing_option) if d.sharing_option else _exclusive_lines(given))
        ]
    else:
        every = "best of each"
        lines = [*(_set_lines(d, d.sharing_option) if d.sharing_option else _separate_lines(given))]
    notes = f" --notes ({len(given.warnings)})" if given.warnings else ""
    measured = basis(given.measured if d.sharing_option else None, by_window, is_prior=is_prior)
    return Said(
        headline=f"{_verdict(d)} ({d.profiles[0].gpu_model}). {measured}",
        lines=(
            *lines,
            *_lower_limits(d),
            ("More", f"--how (by hand) --why --all ({every}){notes}"),
        ),
    )


def _lower_limits(d: Decision) -> Iterator[tuple[str, str]]:
    """What a lower power limit would save, and how it is set."""
    alike: dict[str, list[str]] = {}
    for lower in lower_limits(d):
        text = (
            f"at {lower.power_limit_w:.0f} W {less_or_more(lower.energy_saved.value, 0)} energy, "
            f"{percent(lower.longer.value)} longer ({percent(lower.longer.high)} at worst)"
        )
        alike.setdefault(text, []).extend(lower.jobs)
    if alike:
        each = "; ".join(text if d.choice else f"{listed(of)} {text}" for text, of in alike.items())
        how = LIMIT_COMMANDS[vendor_of(d.profiles[0].gpu_model)]
        yield "Limit", f"{each}; not measured here: {how} WATTS, as administrator"


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
    how = "a prior, with wide ranges," if is_prior else "estimated"
    basis_text = f"{how} from one window of {of}" if by_window else "predicted"
    if measured is None:
        return basis_text
    return measured.text if measured.at_choice else f"{basis_text}; other splits {measured.text}"


def _kept(
    job: str,
    speed: Interval,
    p99: Interval | None,
    alone_ms: float | None = None,
    *,
    at_worst: bool = True,
) -> str:
    """Speed that a job keeps, and its p99 latency; `at_worst` adds the low end of a speed."""
    text = f"{job} {percent(min(speed.value, 1.0))} of its speed"
    if p99:
        alone = f", {alone_ms:.3g} alone" if alone_ms else ""
        return f"{text}, p99 {p99.value:.3g} ms ({p99.high:.3g} at worst{alone})"
    return f"{text} ({percent(speed.low)} at worst)" if at_worst else text


def _memory(used_mib: Iterable[float | None], card_mib: float | None) -> str:
    """Memory of all jobs, and of the GPU; empty where that of a job is not known."""
    present_mib = [mib for mib in used_mib if mib]
    card = f" of {card_mib / 1024:.0f}" if card_mib else ""
    return f"memory {sum(present_mib) / 1024:.0f}{card} GiB"


def _verdict(r: Decision) -> str:
    jobs, option = [profile.job for profile in r.profiles], r.sharing_option
    is_pair = _is_pair(r)
    names = " and ".join(jobs) if is_pair else counted(jobs)
    # One that answers requests cannot wait for another.
    waits = is_pair and not any(map(is_served, r.profiles))
    apart = "one after the other" if waits else "on separate GPUs"
    if option is None:
        return f"DO NOT SHARE: {names} {apart}"
    verdict = "SHARE" if r.choice else f"YOUR CALL: {apart}, or share for time"
    low = below_normal_text(jobs[n] for n in option.split.below_normal)
    if option.split.gpus:
        limits = "" if option.sharing == "limited" else f" {WORDS[option.sharing]}"
        return f"{verdict}: {_seats_of_gpus(r, option)}{limits}"
    if option.sharing != "limited":
        return f"{verdict}: {names} {WORDS[option.sharing]}{low}"
    return f"{verdict}: {_seats_of_two(r, option) if is_pair else _seats(r, option)}{low}"


# Two jobs.


def _seats_of_two(r: Decision, option: RatedSplit) -> str:
    jobs = [profile.job for profile in r.profiles]
    seats = list(zip(jobs, option.prediction.split.shares, strict=True))
    vendor = vendor_of(r.profiles[0].gpu_model)
    if (total := next((p.units_total for p in r.profiles if p.units_total), None)) is None:
        return ", ".join(f"{job} {share:g} %" for job, share in seats)
    units = ", ".join(f"{job} {units_for_share(share, total, vendor)}" for job, share in seats)
    return f"{units} of {total} {UNIT_NAMES[vendor]}"


def _pair_lines(r: Decision, option: RatedSplit) -> Iterator[tuple[str, str]]:
    p = option.prediction
    yield from _gains(r, option)
    yield (
        "Each",
        "; ".join(
            _kept(
                profile.job,
                part.speed,
                part.latency_p99_ms if is_served(profile) else None,
                profile.whole_gpu_p99_ms,
                at_worst=not is_served(profile),
            )
            for profile, part in zip(r.profiles, p.parts, strict=True)
        ),
    )
    limit_w = r.profiles[0].power_limit_w
    memory = [profile.memory_used_mib for profile in r.profiles]
    held = f", {_memory(memory, r.request.memory_mib)}" if all(memory) else ""
    fault = "leaves the other" if option.sharing in ISOLATING else "ends both"
    of = f" of {limit_w:.0f}" if limit_w else ""
    yield "Risk", f"a fault of one {fault}; power {p.power_w.value:.0f}{of} W{held}"
    is_named = option is r.call or option.sharing != "limited" or option.split.below_normal
    split = f" --split {option.name}" if is_named else ""
    yield "Start", f"advisor launch {as_requested(p.job for p in r.profiles)}{split}"
    yield from _near(r.near_miss())


def _gains(r: Decision, option: RatedSplit) -> Iterator[tuple[str, str]]:
    """Against one after the other; for the work that is to be done, if it was given."""
    work_to_end, p, prices = r.same_work(option), option.prediction, r.request.policy.prices
    this, apart = work_to_end.choice, work_to_end.exclusive
    done = f": both done in {duration_text(this.time_s)} instead of {duration_text(apart.time_s)}"
    if r.request.work:
        yield "Work", f"{apart.time_s / this.time_s:.2f}x an hour{done}"
        yield "Energy", f"{less_or_more(1 - this.energy_j / apart.energy_j, 0)} for this work"
    else:
        stp, energy = p.stp, savings_of(p, prices).energy
        at_worst = f"({less_or_more(energy.low, 0)} at worst)"
        done = "" if all(map(is_served, r.profiles)) else done  # a server is never done
        yield "Work", f"{stp.value:.2f}x an hour ({stp.low:.2f} at worst){done}"
        yield "Energy", f"{less_or_more(energy.value, 0)} for the same work {at_worst}"
    if prices.are_set:
        yield "Price", prices.text(*((finish.time_s, finish.energy_j) for finish in (this, apart)))
    elif option is r.call:
        yield "Price", _BY_PRICE


def _exclusive_lines(given: ModelAdvice) -> Iterator[tuple[str, str]]:
    """Why two jobs are not to share, and what the option with the most work an hour would take."""
    r = given.decision
    yield "Why", next(iter(given.reasons), "no split that keeps the limits saves enough")
    splits = [o for o in r.options[:-1] if (o.sharing in ISOLATING) == r.request.isolate]
    if kept := [o for o in splits if not o.violations] or splits:
        best = max(kept, key=lambda o: o.prediction.stp.value)
        prices = r.request.policy.prices
        energy, stp = savings_of(best.prediction, prices).energy, best.prediction.stp.value
        beyond = ", beyond a limit" if best.violations else ""
        hours = stp >= 1 / (1 - LEAST_TIME_SAVED) and not best.violations
        by_price = f"; {_BY_PRICE}" if hours and r.request.objective.name != COST else ""
        saved = less_or_more(energy.value, 0)
        yield "At best", f"{best.name}{beyond}: {stp:.2f}x an hour, {saved} energy{by_price}"
    yield from _near(r.near_miss())


def _near(text: str | None) -> Iterator[tuple[str, str]]:
    if text:
        yield "Near", text


# A set of jobs.


def _seats(r: Decision, option: RatedSplit) -> str:
    unit = UNIT_NAMES[vendor_of(r.profiles[0].gpu_model)]
    counts = Counter(_seat(share, unit) for share in option_of(option, r).jobs)
    return ", ".join(_times(seat, count) for seat, count in counts.items())


def _seat(share: JobShare, unit: str) -> str:
    if share.share_percent == WHOLE:
        return share.job
    at = f"{share.share_percent:g} %" if share.units is None else f"{share.units} {unit}"
    return f"{share.job} at most {at}"


def _times(name: str, count: int) -> str:
    return f"{count} x {name}" if count > 1 else name


def _is_pair(r: Decision) -> bool:
    return len(r.profiles) == ADVISED_JOBS and not hold_several(r.profiles)


def _seats_of_gpus(r: Decision, option: RatedSplit) -> str:
    unit = UNIT_NAMES[vendor_of(r.profiles[0].gpu_model)]
    seats = [_seat(share, unit) for share in option_of(option, r).jobs]
    on_all = [seats[n] for n, gpu in enumerate(option.split.gpus) if gpu == ALL_GPUS]
    each = (
        f"{listed([seats[n] for n in on if option.split.gpus[n] != ALL_GPUS])} on GPU {number}"
        for number, on in enumerate(option.split.each_gpu)
        if len(on) > len(on_all)
    )
    return "; ".join((f"{listed(on_all)} on {MOST_GPUS} GPUs", *each))


def _set_lines(r: Decision, rated: RatedSplit) -> Iterator[tuple[str, str]]:
    option, needs, prices = option_of(rated, r), needs_of(r), r.request.policy.prices
    hours = percent(option.gpu_time_saved.value)
    held = [profile.gpus for profile in r.profiles]
    yield (
        "GPUs",
        (f"{max(held)} instead of {sum(held)}: {hours} of the GPU hours saved for the same work"),
    )
    saved, low, idle = (
        less_or_more(part, 0)
        for part in (
            option.energy_saved.value,
            option.energy_saved.low,
            option.energy_saved_idle.value,
        )
    )
    yield "Energy", f"{saved} ({low} at worst) with freed GPUs off, {idle} with them idle"
    if prices.are_set:
        # Seconds that GPUs are held, and joules: an hour together, and its work on separate GPUs.
        speeds = [share.speed.value for share in option.jobs]
        alone = zip(speeds, r.profiles, strict=True)
        apart_j = HOUR_S * sum(s * profile.whole_gpu_power_w for s, profile in alone)
        together = HOUR_S * max(held), HOUR_S * option.power_w.value
        alone_s = HOUR_S * sum(s * gpus for s, gpus in zip(speeds, held, strict=True))
        yield "Price", prices.text(together, (alone_s, apart_j))
    elif r.call:
        yield "Price", _BY_PRICE
    counts = Counter((share.job, share.speed, share.latency_p99_ms) for share in option.jobs)
    alone_ms = {profile.job: profile.whole_gpu_p99_ms for profile in r.profiles}
    each = (
        _kept(_times(job, n), speed, p99, alone_ms[job]) for (job, speed, p99), n in counts.items()
    )
    yield "Each", "; ".join(each)
    taken = [f"power {option.power_w.value:.0f} W"]
    if needs.memory_mib is not None:
        taken.append(_memory([needs.memory_mib], needs.memory_of_mib))
    if needs.host_cores is not None:
        taken.append(count_of(max(1, round(needs.host_cores)), "host core"))
    fault = "a fault of one leaves the others" if option.isolates else _fault(r)
    yield "Risk", f"{fault}; {', '.join(taken)}"
    if not option.isolates:
        yield "Apart", _isolated(r)
    yield from _near(r.near_miss())
    yield "Start", launch_command(r, rated)


def _separate_lines(given: ModelAdvice) -> Iterator[tuple[str, str]]:
    r = given.decision
    yield "Why", next(options_not_taken(r))
    yield "Apart", f"{_SEPARATE}; {_fault(r)}"
    if given.gpus:
        yield "GPUs", f"{len(given.gpus)} instead of {len(r.profiles)}: {'; '.join(given.gpus)}"
    if not (r.apart.violations or hold_several(r.profiles)):
        yield "Else", "one after the other on one GPU: the same energy and GPU hours, later"
    yield from _near(r.near_miss())


_SEPARATE = "separate GPUs keep faults apart"


def _fault(r: Decision) -> str:
    """Effect of a fault of one client of a shared GPU."""
    if vendor_of(r.profiles[0].gpu_model) == "amd":
        return "nobody has tried what a fault of one does"
    return "under MPS a fault of one ends all"


def _isolated(r: Decision) -> str:
    """The way that keeps faults apart, and what it costs."""
    if (sliced := next((o for o in r.options if o.sharing == "time-sliced"), None)) is None:
        return _SEPARATE
    if sliced.violations:
        return f"{_SEPARATE}; taking turns would break a limit"
    option = option_of(sliced, r)
    slowest = percent(min(share.speed.value for share in option.jobs))
    saved = less_or_more(option.energy_saved.value, 0)
    return f"--isolate: {WORDS[sliced.sharing]}, {saved} energy, the slowest at {slowest}"


def launch_command(r: Decision, option: RatedSplit) -> str:
    """The command that runs the jobs so."""
    gpus = " --gpu 0,1" if option.split.gpus else ""
    return f"advisor launch {as_requested(p.job for p in r.profiles)} --split {option.name}{gpus}"


def options_not_taken(r: Decision) -> Iterator[str]:
    """Saving and broken limit of the best of each sharing that was not chosen, nearest first."""
    options = [option_of(option, r) for option in r.best_of_each()]
    for option in sorted(options, key=lambda w: (len(w.violations), -w.energy_saved.value)):
        if (r.choice and option.split == r.choice.name) or option.sharing == "exclusive":
            continue
        low = below_normal_text(s.job for s in option.jobs if PRIORITY in s.environment)
        said = WORDS.get(option.sharing, f"with {limits_of(option)}") + low
        saved = f"{said} it would take {less_or_more(option.energy_saved.value, 0)} energy"
        yield f"{saved}, but {option.violations[0]}" if option.violations else saved
    yield f"{count_of(len(r.options), 'way')} looked at"


def limits_of(option: Option) -> str:
    """Limits of the jobs that have one."""
    return limits_text((s.job for s in option.jobs), (s.share_percent for s in option.jobs))
