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
from advisor.core.records import ONE_WINDOW, PRIOR
from advisor.core.wording import (
    as_asked,
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
    worth_of,
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


def recommendation(given: ModelAdvice, asked: RecommendationRequest) -> Recommendation:
    """The answer as in JSON, with its words if the request wants them."""
    answer = given.to_wire(every=asked.every)
    return replace(answer, said=said(given)) if asked.words else answer


def said(given: ModelAdvice) -> Said:
    """An answer but for its last line, which is about options of the command line."""
    whole = first_lines(given)
    return replace(whole, lines=whole.lines[:-1])


def first_lines(given: ModelAdvice) -> Said:
    """Headline and named lines of an answer."""
    d = given.decision
    one_window = dict.fromkeys(p.job for p in d.profiles if ONE_WINDOW in p.flags)
    is_prior = any(PRIOR in p.flags for p in d.profiles)
    if _is_pair(d):
        every = "every split"
        lines = [*(_pair_lines(d, d.way) if d.way else _exclusive_lines(given))]
    else:
        every = "best of each"
        lines = [*(_set_lines(d, d.way) if d.way else _separate_lines(given))]
    notes = f" --notes ({len(given.warnings)})" if given.warnings else ""
    measured = basis(given.measured if d.way else None, one_window, is_prior=is_prior)
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
    for one in lower_limits(d):
        text = (
            f"at {one.power_limit_w:.0f} W {less_or_more(one.energy_saved.value, 0)} energy, "
            f"{percent(one.longer.value)} longer ({percent(one.longer.high)} at worst)"
        )
        alike.setdefault(text, []).extend(one.jobs)
    if alike:
        each = "; ".join(text if d.choice else f"{listed(of)} {text}" for text, of in alike.items())
        how = LIMIT_COMMANDS[vendor_of(d.profiles[0].gpu_model)]
        yield "Limit", f"{each}; not measured here: {how} WATTS, as administrator"


def basis(
    measured: MeasuredTogether | None, one_window: Collection[str] = (), *, is_prior: bool = False
) -> str:
    """Whether the numbers are measured at the chosen split, estimated or predicted.

    Args:
        measured: Measurements of these jobs together.
        one_window: Jobs that were measured in one window on the whole GPU.
        is_prior: Whether nothing was learned from the GPU model of those.
    """
    of = (
        listed(one_window) if len(one_window) <= ADVISED_JOBS else f"each of {len(one_window)} jobs"
    )
    how = "a prior, with wide ranges," if is_prior else "estimated"
    found = f"{how} from one window of {of}" if one_window else "predicted"
    if measured is None:
        return found
    return measured.text if measured.at_choice else f"{found}; other splits {measured.text}"


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
    known = [mib for mib in used_mib if mib]
    card = f" of {card_mib / 1024:.0f}" if card_mib else ""
    return f"memory {sum(known) / 1024:.0f}{card} GiB"


def _verdict(r: Decision) -> str:
    jobs, way = [profile.job for profile in r.profiles], r.way
    is_pair = _is_pair(r)
    names = " and ".join(jobs) if is_pair else counted(jobs)
    # One that answers requests cannot wait for another.
    waits = is_pair and not any(map(is_served, r.profiles))
    apart = "one after the other" if waits else "on separate GPUs"
    if way is None:
        return f"DO NOT SHARE: {names} {apart}"
    verdict = "SHARE" if r.choice else f"YOUR CALL: {apart}, or share for time"
    low = below_normal_text(jobs[n] for n in way.split.below_normal)
    if way.split.gpus:
        limits = "" if way.sharing == "limited" else f" {WORDS[way.sharing]}"
        return f"{verdict}: {_seats_of_gpus(r, way)}{limits}"
    if way.sharing != "limited":
        return f"{verdict}: {names} {WORDS[way.sharing]}{low}"
    return f"{verdict}: {_seats_of_two(r, way) if is_pair else _seats(r, way)}{low}"


# Two jobs.


def _seats_of_two(r: Decision, way: RatedSplit) -> str:
    jobs = [profile.job for profile in r.profiles]
    seats = list(zip(jobs, way.prediction.split.shares, strict=True))
    vendor = vendor_of(r.profiles[0].gpu_model)
    if (total := next((p.units_total for p in r.profiles if p.units_total), None)) is None:
        return ", ".join(f"{job} {share:g} %" for job, share in seats)
    units = ", ".join(f"{job} {units_for_share(share, total, vendor)}" for job, share in seats)
    return f"{units} of {total} {UNIT_NAMES[vendor]}"


def _pair_lines(r: Decision, way: RatedSplit) -> Iterator[tuple[str, str]]:
    p = way.prediction
    yield from _worth(r, way)
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
    fault = "leaves the other" if way.sharing in ISOLATING else "ends both"
    of = f" of {limit_w:.0f}" if limit_w else ""
    yield "Risk", f"a fault of one {fault}; power {p.power_w.value:.0f}{of} W{held}"
    is_named = way is r.call or way.sharing != "limited" or way.split.below_normal
    split = f" --split {way.name}" if is_named else ""
    yield "Start", f"advisor launch {as_asked(p.job for p in r.profiles)}{split}"
    yield from _near(r.near_miss())


def _worth(r: Decision, way: RatedSplit) -> Iterator[tuple[str, str]]:
    """Against one after the other; for the work that is to be done, if it was given."""
    found, p, prices = r.same_work(way), way.prediction, r.request.policy.prices
    this, apart = found.choice, found.exclusive
    done = f": both done in {duration_text(this.time_s)} instead of {duration_text(apart.time_s)}"
    if r.request.work:
        yield "Work", f"{apart.time_s / this.time_s:.2f}x an hour{done}"
        yield "Energy", f"{less_or_more(1 - this.energy_j / apart.energy_j, 0)} for this work"
    else:
        stp, energy = p.stp, worth_of(p, prices).energy
        at_worst = f"({less_or_more(energy.low, 0)} at worst)"
        done = "" if all(map(is_served, r.profiles)) else done  # a server is never done
        yield "Work", f"{stp.value:.2f}x an hour ({stp.low:.2f} at worst){done}"
        yield "Energy", f"{less_or_more(energy.value, 0)} for the same work {at_worst}"
    if prices.are_set:
        yield "Price", prices.text(*((way.time_s, way.energy_j) for way in (this, apart)))
    elif way is r.call:
        yield "Price", _BY_PRICE


def _exclusive_lines(given: ModelAdvice) -> Iterator[tuple[str, str]]:
    """Why two jobs are not to share, and what the option with the most work an hour would take."""
    r = given.decision
    yield "Why", next(iter(given.reasons), "no split that keeps the limits saves enough")
    splits = [o for o in r.options[:-1] if (o.sharing in ISOLATING) == r.request.isolate]
    if kept := [o for o in splits if not o.violations] or splits:
        best = max(kept, key=lambda o: o.prediction.stp.value)
        prices = r.request.policy.prices
        energy, stp = worth_of(best.prediction, prices).energy, best.prediction.stp.value
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


def _seats(r: Decision, way: RatedSplit) -> str:
    unit = UNIT_NAMES[vendor_of(r.profiles[0].gpu_model)]
    counts = Counter(_seat(share, unit) for share in option_of(way, r).jobs)
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


def _seats_of_gpus(r: Decision, way: RatedSplit) -> str:
    unit = UNIT_NAMES[vendor_of(r.profiles[0].gpu_model)]
    seats = [_seat(share, unit) for share in option_of(way, r).jobs]
    on_all = [seats[n] for n, gpu in enumerate(way.split.gpus) if gpu == ALL_GPUS]
    each = (
        f"{listed([seats[n] for n in on if way.split.gpus[n] != ALL_GPUS])} on GPU {number}"
        for number, on in enumerate(way.split.each_gpu)
        if len(on) > len(on_all)
    )
    return "; ".join((f"{listed(on_all)} on {MOST_GPUS} GPUs", *each))


def _set_lines(r: Decision, rated: RatedSplit) -> Iterator[tuple[str, str]]:
    way, needs, prices = option_of(rated, r), needs_of(r), r.request.policy.prices
    hours = percent(way.gpu_time_saved.value)
    held = [profile.gpus for profile in r.profiles]
    yield (
        "GPUs",
        (f"{max(held)} instead of {sum(held)}: {hours} of the GPU hours saved for the same work"),
    )
    saved, low, idle = (
        less_or_more(part, 0)
        for part in (way.energy_saved.value, way.energy_saved.low, way.energy_saved_idle.value)
    )
    yield "Energy", f"{saved} ({low} at worst) with freed GPUs off, {idle} with them idle"
    if prices.are_set:
        # Seconds that GPUs are held, and joules: an hour together, and its work on separate GPUs.
        speeds = [share.speed.value for share in way.jobs]
        alone = zip(speeds, r.profiles, strict=True)
        apart_j = HOUR_S * sum(s * profile.whole_gpu_power_w for s, profile in alone)
        together = HOUR_S * max(held), HOUR_S * way.power_w.value
        alone_s = HOUR_S * sum(s * gpus for s, gpus in zip(speeds, held, strict=True))
        yield "Price", prices.text(together, (alone_s, apart_j))
    elif r.call:
        yield "Price", _BY_PRICE
    counts = Counter((share.job, share.speed, share.latency_p99_ms) for share in way.jobs)
    alone_ms = {profile.job: profile.whole_gpu_p99_ms for profile in r.profiles}
    each = (
        _kept(_times(job, n), speed, p99, alone_ms[job]) for (job, speed, p99), n in counts.items()
    )
    yield "Each", "; ".join(each)
    taken = [f"power {way.power_w.value:.0f} W"]
    if needs.memory_mib is not None:
        taken.append(_memory([needs.memory_mib], needs.memory_of_mib))
    if needs.host_cores is not None:
        taken.append(count_of(max(1, round(needs.host_cores)), "host core"))
    fault = "a fault of one leaves the others" if way.isolates else _fault(r)
    yield "Risk", f"{fault}; {', '.join(taken)}"
    if not way.isolates:
        yield "Apart", _isolated(r)
    yield from _near(r.near_miss())
    yield "Start", launch_command(r, rated)


def _separate_lines(given: ModelAdvice) -> Iterator[tuple[str, str]]:
    r = given.decision
    yield "Why", next(ways_not_taken(r))
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
    if (turns := next((o for o in r.options if o.sharing == "time-sliced"), None)) is None:
        return _SEPARATE
    if turns.violations:
        return f"{_SEPARATE}; taking turns would break a limit"
    way = option_of(turns, r)
    slowest = percent(min(share.speed.value for share in way.jobs))
    saved = less_or_more(way.energy_saved.value, 0)
    return f"--isolate: {WORDS[turns.sharing]}, {saved} energy, the slowest at {slowest}"


def launch_command(r: Decision, way: RatedSplit) -> str:
    """The command that runs the jobs so."""
    gpus = " --gpu 0,1" if way.split.gpus else ""
    return f"advisor launch {as_asked(p.job for p in r.profiles)} --split {way.name}{gpus}"


def ways_not_taken(r: Decision) -> Iterator[str]:
    """Saving and broken limit of the best of each sharing that was not chosen, nearest first."""
    ways = [option_of(option, r) for option in r.best_of_each()]
    for way in sorted(ways, key=lambda w: (len(w.violations), -w.energy_saved.value)):
        if (r.choice and way.split == r.choice.name) or way.sharing == "exclusive":
            continue
        low = below_normal_text(s.job for s in way.jobs if PRIORITY in s.environment)
        said = WORDS.get(way.sharing, f"with {limits_of(way)}") + low
        saved = f"{said} it would take {less_or_more(way.energy_saved.value, 0)} energy"
        yield f"{saved}, but {way.violations[0]}" if way.violations else saved
    yield f"{count_of(len(r.options), 'way')} looked at"


def limits_of(way: Option) -> str:
    """Limits of the jobs that have one."""
    return limits_text((s.job for s in way.jobs), (s.share_percent for s in way.jobs))
