"""A recommendation for a person: what to do, what it saves, what it costs, how sure, and why."""

import dataclasses
from collections.abc import Collection, Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from advisor.core.finish import Finish
from advisor.core.interval import Interval
from advisor.core.objectives import DEFAULT_OBJECTIVE, Objective
from advisor.core.wording import as_asked, energy_text, less_or_more
from advisor.decide.reasons import percent
from advisor.decide.recommend import Decision, RatedSplit
from advisor.decide.recommendation import environments
from advisor.decide.same_work import WorkToTheEnd, same_work
from advisor.formats.moments import duration_text
from advisor_advice.answer import ModelAdvice
from advisor_advice.words import pair
from advisor_cli.advise.set_screen import how
from advisor_cli.shared.console import plain_table, print_table, show_chart
from advisor_cli.shared.screen import Screen, print_list, print_screen


def show(given: ModelAdvice, details: Collection[str] = ()) -> None:
    """Print the first lines, and what is asked for of `how`, `why`, `notes` and `all`."""
    r = given.recommendation
    console = print_screen(Screen(pair.headline(given), pair.lines(given)))
    if "how" in details:
        print_list(console, "how", " ", tuple(_how(r)))
    if "why" in details:
        print_list(console, "why", "-", (*_rates(r), *r.reasons, *_other_objectives(r)))
    if "notes" in details:
        print_list(console, "notes", "!", (*r.warnings, *_sure(given)))
    if "all" in details:
        # The way that the first lines are about.
        way = pair.way_of(r) or r.choice
        for line in _same_work_lines(dataclasses.replace(r, choice=way)):
            console.print(Text(line, style="" if line.startswith(" ") else "bold"), soft_wrap=True)
        console.print(Text("all candidates", style="bold"))
        print_table(_candidates(r))
        show_chart(plot(r))


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


def _rates(r: Decision) -> Iterator[str]:
    """What each job does, in its own unit, and what the GPU draws."""
    p = r.choice.prediction
    if r.choice.sharing == "exclusive":
        return
    for profile, part in zip(r.profiles, p.parts, strict=True):
        rate = f"{_number(part.rate.value)} {profile.rate_unit}/s"
        kept = part.speed.times(100)
        speed = f"{percent(part.speed.value)} of its speed{_range(kept)}"
        yield f"{profile.job} {slower(part.speed.value)}: {rate}, {speed}"
    memory = p.memory_power_w
    of_memory = f", of it the memory {memory.value:.0f} W{_range(memory)}" if memory else ""
    yield f"power {p.power_w.value:.0f} W{_range(p.power_w)}{of_memory}"


def slower(speed: float) -> str:
    """How long a job takes, for one that takes 1 alone."""
    return f"takes {1 / speed:.1f} times as long" if speed > 0 else "stands still"


def _sure(given: ModelAdvice) -> Iterator[str]:
    if given.measured:
        yield f"{given.measured.text}: {given.measured.at_choice} of them at this split"
    coverage = percent(given.manifest.coverage)
    yield f"ranges are to hold {coverage} of what is measured; model {given.manifest.version}"


def _how(r: Decision) -> Iterator[str]:
    if r.choice.sharing == "exclusive":
        jobs = ", and when it has ended ".join(p.job for p in r.profiles)
        yield f"run {jobs}; each has the whole GPU"
        return
    names = [p.job for p in r.profiles]
    command = f"advisor launch {as_asked(names)} --split {r.choice.name}"
    seats = zip(names, environments(r.profiles, r.choice), strict=True)
    yield from how(command, r.choice.sharing, r.profiles[0].gpu_model, seats)


def _other_objectives(r: Decision) -> Iterator[str]:
    for name, pick in r.picks.items():
        if pick.name != r.choice.name:
            p = pick.prediction
            yield (
                f"--objective {name} would take {_way_name(pick)}: "
                f"{p.stp.value:.2f} times the work "
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
    notes = {r.choice.name: "chosen"} | ({r.call.name: "for time"} if r.call else {})
    note = notes.get(option.name, "breaks a limit" * bool(option.violations))
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


def _same_work_lines(r: Decision) -> Iterator[str]:
    """A heading, and a line for each way."""
    found = same_work(r)
    of_jobs = zip(found.work.alone_s, r.profiles, strict=True)
    work = " and ".join(f"{duration_text(alone_s)} of {p.job}" for alone_s, p in of_jobs)
    yield f"the same work, {work} alone, until both are done"
    for name, finish, note in _rows(r, found):
        yield f"  {name:<24}{_cells(finish, found.choice)}  {note}".rstrip()


def _rows(r: Decision, found: WorkToTheEnd) -> Iterator[tuple[str, Finish, str]]:
    yield f"this: {_way_name(r.choice)}", found.choice, _note(found)
    if found.restarted:
        yield "  restarted", found.restarted, "the one left over goes on without a limit"
    if r.choice is not r.exclusive:
        note = "breaks a limit" if r.exclusive.violations else ""
        yield _way_name(r.exclusive), found.exclusive, note


def _way_name(option: RatedSplit) -> str:
    """Shares, or the way in words."""
    return {"exclusive": "one after the other", "uncapped": "no limits"}.get(
        option.name, option.name
    )


def _note(found: WorkToTheEnd) -> str:
    left_s = found.choice.time_s - found.choice.shared_s
    if not found.choice.shared_s or left_s < 1e-6 * found.choice.time_s:
        return ""
    return f"one has ended after {duration_text(found.choice.shared_s)}; the other's limit stays"


def _cells(finish: Finish, this: Finish) -> str:
    more = ["" if finish is this else _over(finish.energy_j, this.energy_j)]
    more += ["" if finish is this else _over(finish.time_s, this.time_s)]
    energy, time = energy_text(finish.energy_j), duration_text(finish.time_s)
    return f"{energy:>9} {more[0]:>7}  {time:>11} {more[1]:>7}"


def _over(value: float, this: float) -> str:
    change = 100 * (value / this - 1) if this else 0.0
    return f"{change:+.1f} %" if abs(change) >= 0.05 else "same"
