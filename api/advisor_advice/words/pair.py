"""The first lines of a recommendation: what to do, what it is worth, and what it risks."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from advisor.core.flags import ONE_WINDOW
from advisor.core.objectives import COST
from advisor.core.split import ADVISED_JOBS, ISOLATING, Sharing, Split
from advisor.core.units import UNIT_NAMES, units_for_share, vendor_of
from advisor.core.wording import as_asked, less_or_more, listed
from advisor.decide.limits import is_served
from advisor.decide.reasons import near_miss, percent
from advisor.decide.recommend import Decision, RatedSplit
from advisor.decide.same_work import same_work
from advisor.decide.worth import LEAST_TIME_SAVED, worth_of
from advisor.formats.moments import duration_text
from advisor.predict.predictions import PredictedPart
from advisor.predict.profiles import Profile
from advisor.wire.observed import MeasuredTogether
from advisor.wire.recommendation import Said
from advisor_advice.answer import ModelAdvice
from advisor_advice.words.price import price_text

WORDS: Mapping[Sharing, str] = {
    "uncapped": "without limits",
    "time-sliced": "in turns, without MPS",
    "exclusive": "one after the other",
}

BY_PRICE = "--objective cost decides, with your ADVISOR_GPU_HOUR and ADVISOR_KWH"


def said(given: ModelAdvice) -> Said:
    """The first lines of an answer, but for the last one, which is of the command line."""
    return Said(headline=headline(given), lines=tuple(lines(given))[:-1])


def headline(given: ModelAdvice) -> str:
    """What to do, and what that rests on."""
    r = given.recommendation
    gpu, jobs = r.profiles[0].gpu_model, " and ".join(p.job for p in r.profiles)
    seen = dict.fromkeys(p.job for p in r.profiles if ONE_WINDOW in p.flags)
    if way := way_of(r):
        call = r.choice.sharing == "exclusive"
        verdict = "YOUR CALL: one after the other, or share for time" if call else "SHARE"
        text = f"{verdict}: {_parts(r, way)} ({gpu})"
    else:
        text = f"DO NOT SHARE: run {jobs} one after the other ({gpu})"
    return f"{text}. {basis(given.measured if way_of(r) else None, seen)}"


def basis(measured: MeasuredTogether | None, seen: Collection[str] = ()) -> str:
    """What the numbers rest on: measured is only what was measured at that very split.

    Args:
        measured: Of these jobs together.
        seen: Jobs of which one window on the whole GPU is known.
    """
    of = listed(seen) if len(seen) <= ADVISED_JOBS else f"each of {len(seen)} jobs"
    found = f"estimated from one window of {of}" if seen else "predicted"
    if measured is None:
        return found
    return measured.text if measured.at_choice else f"{found}; other splits {measured.text}"


def lines(given: ModelAdvice) -> Iterator[tuple[str, str]]:
    """Name and text of each line."""
    r = given.recommendation
    if way := way_of(r):
        p = way.prediction
        yield from _worth(replace(r, choice=way), is_call=way is r.call)
        of_jobs = zip(r.profiles, p.parts, p.split.shares, strict=True)
        yield "Each", "; ".join(_each(own, part, p.split, share) for own, part, share in of_jobs)
        yield "Risk", _risk(r, way)
        jobs = as_asked(profile.job for profile in r.profiles)
        split = f" --split {way.name}" if way is r.call or way.sharing != "limited" else ""
        yield "Start", f"advisor launch {jobs}{split}"
    else:
        yield "Why", next(iter(r.reasons), "no split that keeps the limits saves enough")
        yield from _at_best(r)
    if miss := near_miss(r):
        yield "Near", miss
    notes = f" --notes ({len(r.warnings)})" if r.warnings else ""
    yield "More", f"--how (by hand) --why --all (every split){notes}"


def way_of(r: Decision) -> RatedSplit | None:
    """The way of sharing that the answer is about; None: there is none."""
    return r.call if r.choice.sharing == "exclusive" else r.choice


def _parts(r: Decision, way: RatedSplit) -> str:
    jobs = [profile.job for profile in r.profiles]
    if way.sharing != "limited":
        return f"{' and '.join(jobs)} {WORDS[way.sharing]}"
    shares = way.prediction.split.shares
    vendor = vendor_of(r.profiles[0].gpu_model)
    total = next((p.units_total for p in r.profiles if p.units_total), None)
    if total is None:
        return ", ".join(f"{job} {share:g} %" for job, share in zip(jobs, shares, strict=True))
    unit = UNIT_NAMES[vendor]
    of_jobs = (
        f"{job} {units_for_share(share, total, vendor)}"
        for job, share in zip(jobs, shares, strict=True)
    )
    return f"{', '.join(of_jobs)} of {total} {unit}"


def _worth(r: Decision, *, is_call: bool) -> Iterator[tuple[str, str]]:
    """Against one after the other; for the work that is to be done, if it was said."""
    found = same_work(r)
    apart = found.exclusive
    times = (duration_text(finish.time_s) for finish in (found.choice, apart))
    done = f"both done in {' instead of '.join(times)}"
    if r.request.work:
        saved = 1 - found.choice.energy_j / apart.energy_j
        yield "Work", f"{apart.time_s / found.choice.time_s:.2f}x an hour: {done}"
        yield "Energy", f"{less_or_more(saved, 0)} for this work"
    else:
        stp, energy = (
            r.choice.prediction.stp,
            worth_of(r.choice.prediction, r.request.prices).energy,
        )
        at_worst = f"({less_or_more(energy.low, 0)} at worst)"
        yield "Work", f"{stp.value:.2f}x an hour ({stp.low:.2f} at worst): {done}"
        yield "Energy", f"{less_or_more(energy.value, 0)} for the same work {at_worst}"
    if is_call and not r.request.prices.are_set:
        yield "Price", BY_PRICE
    if r.request.prices.are_set:
        this, other = ((way.time_s, way.energy_j) for way in (found.choice, apart))
        yield "Price", price_text(r.request.prices, this, other)


def _at_best(r: Decision) -> Iterator[tuple[str, str]]:
    """What the split that does most an hour would take, so that nobody wonders what is lost."""
    splits = [o for o in r.candidates if o.sharing == "limited"]
    if kept := [o for o in splits if not o.violations] or splits:
        best = max(kept, key=lambda o: o.prediction.stp.value)
        energy = worth_of(best.prediction, r.request.prices).energy
        beyond = ", beyond a limit" if best.violations else ""
        hours = best.prediction.stp.value >= 1 / (1 - LEAST_TIME_SAVED) and not best.violations
        asked = f"; {BY_PRICE}" if hours and r.objective.name != COST else ""
        yield (
            "At best",
            f"{best.name}{beyond}: {best.prediction.stp.value:.2f}x an hour, "
            f"{less_or_more(energy.value, 0)} energy{asked}",
        )


def _each(profile: Profile, part: PredictedPart, split: Split, share: float) -> str:
    """What one job keeps."""
    speed = part.speed
    text = f"{profile.job} {percent(min(speed.value, 1.0))} of its speed"
    if not is_served(profile):
        return f"{text} ({percent(speed.low)} at worst)"
    p99 = part.p99_ms(profile, split, share)
    return f"{text}, p99 {p99.value:.3g} ms ({p99.high:.3g} at worst)" if p99 else text


def _risk(r: Decision, way: RatedSplit) -> str:
    p, limit_w = way.prediction, r.profiles[0].power_limit_w
    of = f" of {limit_w:.0f}" if limit_w else ""
    memory = [profile.memory_used_mib for profile in r.profiles]
    known = sum(m for m in memory if m)
    card = f" of {r.request.memory_mib / 1024:.0f}" if r.request.memory_mib else ""
    held = f", memory {known / 1024:.0f}{card} GiB" if all(memory) else ""
    fault = "leaves the other" if way.sharing in ISOLATING else "ends both"
    return f"a fault of one {fault}; power {p.power_w.value:.0f}{of} W{held}"
