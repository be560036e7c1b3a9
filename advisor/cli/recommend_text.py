"""A recommendation for a person: what to do, what to expect, what else there is, and why."""

from collections.abc import Iterator, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from advisor.gpu import units_for_percent
from advisor.objectives import OBJECTIVES, Objective
from advisor.predictions import Interval
from advisor.profiles import Profile
from advisor.reasons import percent
from advisor.recommend import Option, Recommendation
from advisor.rules import MEANINGS
from advisor_models.answer import Answer

_WIDTH = 120


def show(given: Answer, *, everything: bool) -> None:
    """Print it; with `everything` also each candidate, as a table and as a plot."""
    r, model = given.recommendation, given.manifest
    console = Console(highlight=False)
    # Lines to copy and headings are never cut off: on a narrow terminal they wrap.
    console.width = max(console.width, _WIDTH)
    console.print(Text(_headline(r), style="bold"))
    for line in _to_do(r):
        console.print(Text(f"  {line}"), soft_wrap=True)
    console.print(_title(f"expected, with {percent(model.intervals.coverage)} intervals"))
    console.print(_expected(r))
    console.print(_title("what simple rules would choose, and its worth beside this"))
    console.print(_rules(r))
    _list(console, "why", "-", r.reasons)
    _list(console, "beware", "!", r.warnings)
    if everything:
        console.print(_title("all candidates, with both speeds in % of full speed"))
        console.print(_candidates(r))
        typer.echo(plot(r))
    console.print(f"model {model.version}; docs/recommend.md explains all of this", style="dim")


def plot(r: Recommendation, width: int = 78, height: int = 16) -> str:
    """The objective of every split, beside no limit and one after the other, as text."""
    import plotext

    canvas: Any = plotext
    canvas.clear_figure()
    canvas.theme("clear")
    canvas.plotsize(width, height)
    scale, unit = _scale(r.objective)
    splits = [o for o in r.candidates if o.prediction.way == "split"]
    shares = [o.prediction.share_a_percent for o in splits]
    if splits:
        canvas.plot(shares, [scale * o.worth.value for o in splits], label="splits")
    for option in r.candidates[len(splits) :]:
        level = [scale * option.worth.value] * 2
        canvas.plot([0, 100], level, label=option.name, marker="braille")
    canvas.title(f"{r.objective.name} {unit}".strip())
    canvas.xlabel(f"share of {r.a.job}, %")
    # It ends each line with a colour code even where there is no colour.
    return str(canvas.uncolorize(canvas.build()))


def _title(text: str) -> Text:
    return Text(text, style="bold")


def _list(console: Console, title: str, mark: str, lines: Sequence[str]) -> None:
    if lines:
        console.print(_title(title))
    for line in lines:
        console.print(Text(f"  {mark} {line}"), soft_wrap=True)


def _headline(r: Recommendation) -> str:
    a, b, p = r.a, r.b, r.choice.prediction
    match p.way:
        case "split":
            first, second = _share(a, p.share_a_percent), _share(b, p.share_b_percent)
            return f"give {a.job} {first} and {b.job} {second} of the {a.gpu_model}"
        case "uncapped":
            return f"share the {a.gpu_model} between {a.job} and {b.job} without limits"
        case "exclusive":
            return f"do not share: run {a.job} and {b.job} one after the other on the {a.gpu_model}"


def _share(profile: Profile, share: float) -> str:
    total = profile.units_total
    units = f" ({units_for_percent(share, total)} of {total} SMs)" if total else ""
    return f"{share:g} %{units}"


def _to_do(r: Recommendation) -> Iterator[str]:
    """What to copy into the shells that start the jobs."""
    if r.choice.prediction.way == "exclusive":
        yield f"run {r.a.job}, and when it has ended {r.b.job}; each has the whole GPU"
        return
    if r.choice.prediction.way == "uncapped":
        yield "start both as clients of one MPS daemon, without a percentage"
        return
    for profile, environment in zip(r.profiles, r.choice.environments, strict=True):
        for name, value in environment.items():
            yield f"export {name}={value:<4} # in the shell that starts {profile.job}"
    yield "both as clients of one MPS daemon; without it neither limit is in force"


def _expected(r: Recommendation) -> Table:
    p = r.choice.prediction
    table = _plain_table(3)
    for profile, rate, speed in ((r.a, p.rate_a, p.speed_a), (r.b, p.rate_b, p.speed_b)):
        found = _range(rate, f"{profile.rate_unit}/s")
        table.add_row(Text(f"  {profile.job}"), found, f"{percent(speed.value)} of its full speed")
    table.add_row("  power", _range(p.power_w, "W"), "")
    for name, pick in r.picks.items():
        scale, unit = _scale(OBJECTIVES[name])
        worth = _range(p.worth(OBJECTIVES[name]).times(scale), unit)
        chosen = "" if name == r.objective.name else f"this alone would choose {pick.name}"
        table.add_row(f"  {name}", worth, chosen)
    return table


def _rules(r: Recommendation) -> Table:
    table = _plain_table(4)
    for name, option in r.rules.items():
        if option is None:
            table.add_row(f"  {name}", "-", "not measured", MEANINGS[name])
        else:
            table.add_row(f"  {name}", option.name, _beside(option, r.choice), MEANINGS[name])
    return table


def _plain_table(columns: int) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for _ in range(columns):
        table.add_column(no_wrap=True)
    return table


def _beside(option: Option, choice: Option) -> str:
    gain = "the same" if option == choice else f"{100 * option.gain_over(choice):+.1f} %"
    return f"{gain}, breaks a limit" if option.misses else gain


def _candidates(r: Recommendation) -> Table:
    scale, unit = _scale(r.objective)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("way", f"{r.a.job} %", f"{r.b.job} %", "W", unit or r.objective.name, "vs choice"):
        table.add_column(Text(name), justify="left" if name == "way" else "right")
    table.add_column("")
    for option in r.candidates:
        p = option.prediction
        note = "chosen" if option == r.choice else "; ".join(m.text for m in option.misses)
        table.add_row(
            option.name,
            f"{100 * p.speed_a.value:.0f}",
            f"{100 * p.speed_b.value:.0f}",
            f"{p.power_w.value:.0f}",
            f"{scale * option.worth.value:.4g}",
            f"{100 * option.gain_over(r.choice):+.1f} %",
            Text(note),
        )
    return table


def _range(found: Interval, unit: str) -> str:
    value = f"{_number(found.value)} {unit}".strip()
    if found.low == found.high:
        return value
    return f"{value} ({_number(found.low)} to {_number(found.high)})"


def _number(value: float) -> str:
    """Four digits, and never an exponent where thousands can be read."""
    return f"{value:,.0f}" if 1000 <= value < 1e9 else f"{value:.4g}"


def _scale(objective: Objective) -> tuple[float, str]:
    """What to multiply its values with for readable numbers, and their unit then."""
    if objective.unit == "1/W":
        return 1000.0, "per kW"
    return 1.0, "" if objective.unit == "1" else objective.unit
