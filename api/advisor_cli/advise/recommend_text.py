"""A recommendation for a person: what to do, what it saves, what it costs, how sure, and why."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from advisor.core.gpu import Vendor
from advisor.core.interval import Interval
from advisor.core.objectives import DEFAULT_OBJECTIVE, Objective
from advisor.core.units import UNIT_NAMES, units_for_share, vendor_of
from advisor.core.wording import less_or_more
from advisor.decide.reasons import percent
from advisor.decide.recommend import Decision, RatedSplit
from advisor.predict.profiles import Profile
from advisor_advice.answer import ModelAdvice
from advisor_cli.advise.recommend_ways import same_work_lines, way_name
from advisor_cli.shared.console import plain_console, plain_table, show_chart

_WIDTH = 100

_UNCAPPED: dict[Vendor, str] = {
    "nvidia": "start both as clients of one MPS daemon, without a percentage",
    "amd": "start both, without CU masks",
}

_BY_HAND: dict[Vendor, tuple[str, ...]] = {
    "nvidia": (
        "both as clients of one MPS daemon (nvidia-cuda-mps-control -d, same user); without it",
        "neither limit is in force",
    ),
    "amd": (
        "both with ROCR_VISIBLE_DEVICES set to the one GPU that they share: others that a job sees",
        "have no mask",
    ),
}
"""What the variables of a split need to be in force."""


def show(given: ModelAdvice, *, everything: bool) -> None:
    """Print it; with `everything` also each candidate, as a table and as a plot."""
    r, model = given.recommendation, given.manifest
    console = plain_console(highlight=False, least=_WIDTH)
    console.print(Text(_headline(r), style="bold"))
    for line in (*_first_lines(r), *_sure(given)):
        console.print(Text(f"  {line}"), soft_wrap=True)
    _list(console, "how", " ", tuple(_to_do(r)))
    for line in same_work_lines(r):
        console.print(Text(line, style="" if line.startswith(" ") else "bold"), soft_wrap=True)
    _list(console, "why", "-", (*r.reasons, *_other_objectives(r)))
    _list(console, "beware", "!", r.warnings)
    if everything:
        console.print(Text("all candidates", style="bold"))
        console.print(_candidates(r))
        show_chart(plot(r))
    console.print(f"model {model.version}; docs/recommend.md explains all of this", style="dim")


def plot(r: Decision, width: int = 78, height: int = 16) -> str:
    """The objective of every split, next to no limit and one after the other, as text."""
    import plotext

    canvas: Any = plotext
    canvas.clear_figure()
    canvas.theme("clear")
    canvas.plotsize(width, height)
    splits = [o for o in r.candidates if o.sharing == "limited"]
    shares = [o.prediction.split.shares[0] for o in splits]
    if splits:
        canvas.plot(shares, [_shown(o, r.objective) for o in splits], label="splits")
    for option in r.candidates[len(splits) :]:
        level = [_shown(option, r.objective)] * 2
        canvas.plot([0, 100], level, label=option.name, marker="braille")
    canvas.title(_heading(r.objective))
    canvas.xlabel(f"share of {r.profiles[0].job}, %")
    # It ends each line with a colour code even where there is no colour.
    return str(canvas.uncolorize(canvas.build()))


def _list(console: Console, title: str, mark: str, lines: Sequence[str]) -> None:
    if lines:
        console.print(Text(title, style="bold"))
    for line in lines:
        console.print(Text(f"  {mark} {line}"), soft_wrap=True)


def _headline(r: Decision) -> str:
    profiles, split = r.profiles, r.choice.prediction.split
    model, jobs = profiles[0].gpu_model, " and ".join(p.job for p in profiles)
    if split.sharing == "exclusive":
        return f"do not share the {model}: run {jobs} one after the other"
    if not split.is_limited:
        return f"share the {model} without limits: {jobs}"
    parts = enumerate(zip(profiles, split.shares, strict=True))
    gets = (f"{p.job} {'' if n else 'gets '}{_share(p, share)}" for n, (p, share) in parts)
    return f"share the {model}: {', '.join(gets)}"


def _share(profile: Profile, share: float) -> str:
    total, vendor = profile.units_total, vendor_of(profile.gpu_model)
    units = (
        f" ({units_for_share(share, total, vendor)} of {total} {UNIT_NAMES[vendor]})"
        if total
        else ""
    )
    return f"{share:g} %{units}"


def _first_lines(r: Decision) -> Iterator[str]:
    """What is saved, how much sooner it is done, and what each job pays."""
    p = r.choice.prediction
    if r.choice.sharing == "exclusive":
        yield "energy  no split that keeps the limits saves any; each job runs alone, at full speed"
        return
    ends = (p.energy_saved.value, p.energy_saved.high, p.energy_saved.low)
    saved, most, least = (less_or_more(part, 0) for part in ends)
    yield f"energy  for the same work, against one after the other: {saved} ({most} to {least})"
    yield f"time    {_sooner(p.stp)}"
    for n, (profile, part) in enumerate(zip(r.profiles, p.parts, strict=True)):
        speed = part.speed
        yield (
            f"{'        ' if n else 'speed   '}{profile.job} {percent(speed.value)} of its speed "
            f"alone{_range(speed.times(100))}: {slower(speed.value)}, "
            f"{_number(part.rate.value)} {profile.rate_unit}/s"
        )
    yield f"power   {p.power_w.value:.0f} W{_range(p.power_w)}"
    if memory := p.memory_power_w:
        yield f"        of it the memory {memory.value:.0f} W{_range(memory)}"


def _sooner(stp: Interval) -> str:
    part = 1 / stp.value if stp.value else float("inf")
    word = f"{percent(1 - part)} sooner" if part <= 1 else f"{percent(part - 1)} later"
    return f"done {word}: {stp.value:.2f} times the work an hour ({stp.low:.2f} to {stp.high:.2f})"


def slower(speed: float) -> str:
    """How long a job takes, for one that takes 1 alone."""
    return f"{1 / speed:.1f} times as long" if speed > 0 else "it stands still"


def _sure(given: ModelAdvice) -> Iterator[str]:
    if given.measured:
        yield f"sure    {given.measured.text}; {given.measured.at_choice} of them at this split"
    elif given.recommendation.choice.sharing != "exclusive":
        coverage = percent(given.manifest.coverage)
        yield f"sure    ranges are to hold {coverage} of what is measured of unseen jobs"


def _to_do(r: Decision) -> Iterator[str]:
    """What to copy into the shells that start the jobs."""
    if r.choice.sharing == "exclusive":
        jobs = ", and when it has ended ".join(p.job for p in r.profiles)
        yield f"run {jobs}; each has the whole GPU"
        return
    if r.choice.sharing == "uncapped":
        yield _UNCAPPED[vendor_of(r.profiles[0].gpu_model)]
        return
    jobs = " ".join(p.job for p in r.profiles)
    yield f"advisor launch {jobs} --split {r.choice.name}   # or by hand:"
    for profile, environment in zip(r.profiles, r.environments(r.choice), strict=True):
        for name, value in environment.items():
            yield f"export {name}={value:<4} # in the shell that starts {profile.job}"
    yield from _BY_HAND[vendor_of(r.profiles[0].gpu_model)]


def _other_objectives(r: Decision) -> Iterator[str]:
    for name, pick in r.picks.items():
        if pick.name != r.choice.name:
            p = pick.prediction
            yield (
                f"--objective {name} would take {way_name(pick)}: {p.stp.value:.2f} times the work "
                f"an hour, {less_or_more(p.energy_saved.value)} energy"
            )


def _candidates(r: Decision) -> Table:
    known = r.objective.name in (DEFAULT_OBJECTIVE, "throughput")
    jobs, more = (p.job for p in r.profiles), () if known else (_heading(r.objective),)
    headings = ("way", *jobs, "W", "energy saved", "work an hour", "", *more)
    return plain_table(
        headings, (_candidate(r, option)[: len(headings)] for option in r.candidates)
    )


def _candidate(r: Decision, option: RatedSplit) -> tuple[str, ...]:
    p = option.prediction
    note = "chosen" if option == r.choice else "breaks a limit" * bool(option.violations)
    # One after the other, each job runs at its full speed.
    is_alone = option.sharing == "exclusive"
    speeds = (percent(1.0 if is_alone else part.speed.value) for part in p.parts)
    power, saved = f"{p.power_w.value:.0f}", percent(p.energy_saved.value, 1)
    value = f"{_shown(option, r.objective):.4g}"
    return option.name, *speeds, power, saved, f"{p.stp.value:.2f}", note, value


def _shown(option: RatedSplit, objective: Objective) -> float:
    """The objective as people read it."""
    if objective.name == DEFAULT_OBJECTIVE:
        return 100 * option.prediction.energy_saved.value
    return (1000.0 if objective.unit == "1/W" else 1.0) * option.objective_value.value


def _heading(objective: Objective) -> str:
    if objective.name == DEFAULT_OBJECTIVE:
        return "energy saved, %"
    unit = "per kW" if objective.unit == "1/W" else objective.unit
    return objective.name if unit == "1" else f"{objective.name} {unit}"


def _range(found: Interval) -> str:
    if found.low == found.high:
        return ""
    return f" ({found.low:.0f} to {found.high:.0f})"


def _number(value: float) -> str:
    """Three digits, and never an exponent where thousands can be read."""
    return f"{float(f'{value:.3g}'):,.0f}" if 1000 <= value < 1e9 else f"{value:.3g}"
