"""How a set of jobs is to run, in words: a headline, and lines with a name each."""

from collections import Counter
from collections.abc import Iterator

from advisor.core.gpu import UNIT_NAMES, WHOLE, vendor_of
from advisor.core.objectives import Prices
from advisor.core.wording import as_asked, count_of, counted, less_or_more, limits_text
from advisor.decide.reasons import percent
from advisor.decide.recommendation import HOUR_S
from advisor.wire.answers import JobShare, Said, SetAdvice, Way
from advisor_advice.words.pair import BY_PRICE, WORDS, basis
from advisor_advice.words.price import price_text


def said(given: SetAdvice, prices: Prices) -> Said:
    """The first lines of an answer, but for the last one, which is of the command line."""
    return Said(headline=headline(given), lines=tuple(lines(given, prices))[:-1])


def headline(given: SetAdvice) -> str:
    """What to do, and what that rests on."""
    seen = dict.fromkeys(job.job for job in given.jobs if job.one_window)
    rests_on = basis(given.measured if given.chosen else None, seen)
    if (way := given.chosen) is None:
        verdict, jobs = "A CARD EACH", _names(given)
    else:
        verdict, jobs = "SHARE", _parts(way, given)
        if given.call:
            verdict = "YOUR CALL: a card each, or share for time"
    return f"{verdict}: {jobs} ({given.gpu_model}). {rests_on}"


def lines(given: SetAdvice, prices: Prices) -> Iterator[tuple[str, str]]:
    """Name and text of each line."""
    notes = f" --notes ({len(given.warnings)})" if given.warnings else ""
    more = "More", f"--how (by hand) --why --all (best of each){notes}"
    if (way := given.chosen) is None:
        yield "Why", next(reasons(given))
        yield "Apart", f"a card each keeps faults apart; {_fault(given)}"
        if fewer := given.fewer:
            saved = f"{_less(fewer.energy_saved.value)} energy"
            yield "Fewer", f"without {fewer.without} the others share ({fewer.way}): {saved}"
        if any(w.sharing == "exclusive" and not w.violations for w in given.ways):
            yield "Else", "one after the other on one GPU: the same energy and GPU hours, later"
        yield from _near(given)
        yield more
        return
    energy = way.energy_saved
    hours = percent(way.gpu_time_saved.value)
    yield "GPUs", f"1 instead of {len(way.jobs)}: {hours} of the GPU hours saved for the same work"
    yield (
        "Energy",
        f"{_less(energy.value)} ({_less(energy.low)} at worst) with freed GPUs off, "
        f"{_less(way.energy_saved_idle.value)} with them idle",
    )
    if prices.are_set:
        yield "Price", price_text(prices, *_hour_of_work(way, given))
    elif given.call:
        yield "Price", BY_PRICE
    yield "Each", "; ".join(_each(way))
    yield "Risk", _risk(way, given)
    if not way.isolates:
        yield "Apart", _apart(given)
    yield from _near(given)
    yield "Start", launch_command(way)
    yield more


def launch_command(way: Way) -> str:
    """The command that runs them so."""
    return f"advisor launch {as_asked(share.job for share in way.jobs)} --split {way.name}"


def _hour_of_work(way: Way, given: SetAdvice) -> tuple[tuple[float, float], ...]:
    """What is done in an hour together: seconds that GPUs are held, and joules; and apart."""
    speeds = [share.speed.value for share in way.jobs]
    apart_j = sum(s * job.alone.power_w for s, job in zip(speeds, given.jobs, strict=True))
    return (HOUR_S, HOUR_S * way.power_w.value), (HOUR_S * sum(speeds), HOUR_S * apart_j)


def _near(given: SetAdvice) -> Iterator[tuple[str, str]]:
    if given.near:
        yield "Near", given.near


def _less(saved: float) -> str:
    return less_or_more(saved, 0)


def _names(given: SetAdvice) -> str:
    return counted(job.job for job in given.jobs)


def _times(name: str, count: int) -> str:
    return f"{count} x {name}" if count > 1 else name


def _parts(way: Way, given: SetAdvice) -> str:
    if way.sharing != "limited":
        return f"{_names(given)} {WORDS[way.sharing]}"
    unit = UNIT_NAMES[vendor_of(given.gpu_model)]
    counts = Counter(_seat(share, unit) for share in way.jobs)
    return f"{', '.join(_times(seat, count) for seat, count in counts.items())}"


def _seat(share: JobShare, unit: str) -> str:
    if share.share_percent == WHOLE:
        return share.job
    at = f"{share.share_percent:g} %" if share.units is None else f"{share.units} {unit}"
    return f"{share.job} at most {at}"


def _each(way: Way) -> Iterator[str]:
    """What jobs keep; copies that keep the same are told once."""
    counts = Counter((share.job, share.speed, share.latency_p99_ms) for share in way.jobs)
    for (job, speed, p99), count in counts.items():
        kept = percent(min(speed.value, 1.0))
        tail = f", p99 {p99.value:.3g} ms ({p99.high:.3g} at worst)" if p99 else ""
        worst = "" if p99 else f" ({percent(speed.low)} at worst)"
        yield f"{_times(job, count)} {kept} of its speed{worst}{tail}"


def _risk(way: Way, given: SetAdvice) -> str:
    fault = "a fault of one leaves the others" if way.isolates else _fault(given)
    needs = given.needs
    held = [f"power {way.power_w.value:.0f} W"]
    if needs.memory_mib is not None:
        of = f" of {needs.memory_of_mib / 1024:.0f}" if needs.memory_of_mib else ""
        held.append(f"memory {needs.memory_mib / 1024:.0f}{of} GiB")
    if needs.host_cores is not None:
        held.append(count_of(max(1, round(needs.host_cores)), "host core"))
    return f"{fault}; {', '.join(held)}"


def _fault(given: SetAdvice) -> str:
    """What a fault of one of several clients does."""
    is_amd = vendor_of(given.gpu_model) == "amd"
    return (
        "nobody has tried what a fault of one does"
        if is_amd
        else "under MPS a fault of one ends all"
    )


def _apart(given: SetAdvice) -> str:
    """The way that keeps faults apart, and what it costs."""
    turns = next((way for way in given.ways if way.sharing == "time-sliced"), None)
    if turns is None:
        return "a card each keeps faults apart"
    if turns.violations:
        return "a card each keeps faults apart; taking turns would break a limit"
    slowest = min(share.speed.value for share in turns.jobs)
    saved = _less(turns.energy_saved.value)
    return f"--isolate: {WORDS[turns.sharing]}, {saved} energy, the slowest at {percent(slowest)}"


def reasons(given: SetAdvice) -> Iterator[str]:
    """What each way that was not chosen would save, and what it misses; the nearest first."""
    for way in sorted(given.ways, key=lambda w: (len(w.violations), -w.energy_saved.value)):
        if way.name == given.choice or way.sharing == "exclusive":
            continue
        told = WORDS.get(way.sharing, f"with {limits_of(way)}")
        saved = f"{told} it would take {_less(way.energy_saved.value)} energy"
        yield f"{saved}, but {way.violations[0]}" if way.violations else saved
    yield f"{count_of(given.searched, 'way')} looked at"


def limits_of(way: Way) -> str:
    """Of the jobs that have one."""
    return limits_text((s.job for s in way.jobs), (s.share_percent for s in way.jobs))
