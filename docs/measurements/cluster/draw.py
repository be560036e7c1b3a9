"""Prints the tables of what `run.py` wrote, and draws them.

.venv/bin/python docs/measurements/cluster/draw.py build/cluster.json --png PNG

The picture is of energy and completion by load; of sets, of the cards that are held over the days.
"""

import argparse
import io
import json
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cluster import EVERY_S
from outcome import change, mean
from workload import HOUR_S

from advisor_training.reports.document import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PAPER_INK,
    RED,
    Figure,
    Ink,
    draw,
    matplotlib,
)

MOST_TAIL = 100.0
"""p99 for each 1 ms alone, above which a queue grows for as long as anybody looks."""

Rows = Sequence[Mapping[str, Any]]
Find = Callable[[str], Rows]
"""The rows of a case, by their seeds."""

Cell = Callable[[str, Find], str]
"""Takes the name of a case."""


def value(word: str, form: str = ".2f") -> Cell:
    """A figure and half of its interval."""

    def cell(case: str, find: Find) -> str:
        middle, half = mean([row[word] for row in find(case)])
        return f"{middle:{form}} ± {half:{form}}"

    return cell


def against(word: str, other: str = "exclusive", form: str = ".2f") -> Cell:
    """The change against another case, seed by seed."""

    def cell(case: str, find: Find) -> str:
        if case == other:
            return "-"
        values = ([row[word] for row in find(name)] for name in (case, other))
        middle, half = change(*values)
        return f"{middle:+{form}} ± {half:{form}} %"

    return cell


def freed_idle(case: str, find: Find) -> str:
    """The change of energy with the cards that become free idle, of what a card each takes.

    So it does not hang on how long all cards are looked at.
    """
    if case == "exclusive":
        return "-"
    rows = zip(find(case), find("exclusive"), strict=True)
    parts = [100 * (own["energy_mwh"] - e["energy_mwh"]) / e["busy_mwh"] for own, e in rows]
    middle, half = mean(parts)
    return f"{middle:+.1f} ± {half:.1f} %"


def of_servers(word: str, most: float = math.inf) -> Cell:
    """A figure of servers, where there are any; nothing is known of it above `most`."""

    def cell(case: str, find: Find) -> str:
        rows = find(case)
        if not rows[0]["tail_p95"]:
            return "-"
        is_more = mean([row[word] for row in rows])[0] > most
        return f"over {most:g}" if is_more else value(word, ".1f")(case, find)

    return cell


ENERGY: Mapping[str, Cell] = {
    "MWh": value("energy_mwh"),
    "energy against exclusive": against("energy_mwh"),
    "of GPUs with jobs only": against("busy_mwh"),
    "work, GPU-h per MWh": value("work_gpu_h_per_mwh", ".0f"),
    "MWh a day": value("mwh_per_day"),
    "of it idle GPUs, %": value("idle_percent", ".1f"),
    "GPU-h with jobs": value("busy_gpu_h", ".0f"),
    "of it shared, %": value("shared_percent", ".0f"),
    "one job left under its limit, %": value("stranded_percent", ".0f"),
}

TIMES: Mapping[str, Cell] = {
    "completion, h": value("completion_h"),
    "against exclusive": against("completion_h", form=".1f"),
    "p50": value("completion_p50_h"),
    "p95": value("completion_p95_h", ".1f"),
    "wait, h": value("wait_h"),
    "slowdown": value("slowdown", ".1f"),
    "slowdown p95": value("slowdown_p95", ".1f"),
    "worst user": value("worst_user_slowdown", ".0f"),
    "worst kind": value("worst_kind_slowdown", ".0f"),
    "worst kind, running": value("worst_kind_stretch"),
    "jobs below 0.4, %": value("slow_percent", ".1f"),
    "last job ends, h": value("end_h", ".0f"),
}

SETS: Mapping[str, Cell] = {
    "cards, most at once": value("most_gpus", ".0f"),
    "GPU-h": value("busy_gpu_h", ".0f"),
    "against exclusive": against("busy_gpu_h", form=".1f"),
    "energy, freed cards off": against("busy_mwh", form=".1f"),
    "freed cards idle": freed_idle,
    "completion, h": value("completion_h"),
    "wait, h": value("wait_h"),
    "wait p95": value("wait_p95_h"),
    "jobs below 0.4, %": value("slow_percent", ".1f"),
    "servers' time below, %": of_servers("servers_missed_percent"),
    "servers' p99, times alone": of_servers("tail_p95", MOST_TAIL),
}

TABLES: Mapping[str, Sequence[Mapping[str, Cell]]] = {
    "policies": (ENERGY, TIMES),
    "Helios": (ENERGY, TIMES),
    "an hour each": (ENERGY, TIMES),
    "Acme": (SETS,),
    "Alibaba": (SETS,),
}

COLOURS = (GREY, ORANGE, RED, BLUE, GREEN, "#7b3294")


def main() -> None:
    """Print tables, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--png", type=Path)
    options = parser.parse_args()
    rows: Rows = [row for path in options.results for row in json.loads(path.read_text())]
    for name in dict.fromkeys(row["experiment"] for row in rows):
        for load in dict.fromkeys(row["load"] for row in rows if row["experiment"] == name):
            these = [r for r in rows if (r["experiment"], r["load"]) == (name, load)]
            for columns in TABLES[name]:
                table(f"{name}, load {load}", these, columns)
    speed(rows)
    if options.png:
        options.png.write_bytes(to_png(*figures(rows)))


def table(title: str, rows: Rows, columns: Mapping[str, Cell]) -> None:
    """A row for each case."""
    jobs = mean([row["jobs"] for row in rows])[0]
    print(f"\n{title}: {jobs:.0f} jobs, {_seeds(rows)} seeds\n\n| | {' | '.join(columns)} |")
    print("| --- |" + " --- |" * len(columns))
    find = partial(of_case, rows)
    for case in dict.fromkeys(row["case"] for row in rows):
        print(f"| {case} | {' | '.join(cell(case, find) for cell in columns.values())} |")


def _seeds(rows: Rows) -> int:
    return len({row["seed"] for row in rows})


def of_case(rows: Rows, case: str) -> Rows:
    """Its rows, by their seeds."""
    return sorted((row for row in rows if row["case"] == case), key=lambda row: row["seed"])


def speed(rows: Rows) -> None:
    """How fast the simulator was."""
    cpu_s, events = sum(row["cpu_s"] for row in rows), sum(row["events"] for row in rows)
    jobs = sum(row["jobs"] for row in rows)
    print(
        f"\n{len(rows)} simulations, {jobs} jobs, {events} events in {cpu_s:.0f} s of CPU: ", end=""
    )
    print(f"{events / cpu_s:.0f} events and {jobs / cpu_s:.0f} jobs a second")


def figures(rows: Rows) -> tuple[str, list[Figure]]:
    """A title, and what is beside each other."""
    these = [row for row in rows if row["experiment"] == "policies"]
    if not these:
        return f"Cards that hold jobs, {_seeds(rows)} seeds of days", list(days(rows))
    energy = panel(these, "energy_mwh", relative, without="equal split")
    return "A simulated cluster of 256 GPUs", [
        Figure("energy", "Energy against exclusive, %; equal split: +8 to +10", energy, 0.6),
        Figure("completion", "Mean completion, h", panel(these, "completion_h", absolute), 0.6),
    ]


def days(rows: Rows) -> Iterator[Figure]:
    """Cards held of each mix and load."""
    colours = dict(zip(dict.fromkeys(row["case"] for row in rows), COLOURS, strict=False))
    for name, load in dict.fromkeys((row["experiment"], row["load"]) for row in rows):
        these = [row for row in rows if (row["experiment"], row["load"]) == (name, load)]
        yield Figure("held", f"{name}'s mix, load {load}", partial(held, these, colours), 0.6)


def held(rows: Rows, colours: Mapping[str, str], axes: Any, ink: Ink) -> None:
    """A line for each policy over the hours: the mean over seeds, and lowest and highest."""
    length = min(len(row["held"]) for row in rows)
    hours = np.arange(length) * EVERY_S / HOUR_S
    for case in dict.fromkeys(row["case"] for row in rows):
        colour = colours[case]
        counts = np.array([row["held"][:length] for row in of_case(rows, case)])
        axes.plot(hours, counts.mean(axis=0), color=colour, label=case)
        axes.fill_between(hours, counts.min(axis=0), counts.max(axis=0), color=colour, alpha=0.2)
    axes.set_xlabel("hour")
    axes.set_xticks(range(0, round(length * EVERY_S / HOUR_S) + 1, 6))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def relative(own: Rows, exclusive: Rows, word: str) -> tuple[float, float]:
    """Change in percent."""
    return change([row[word] for row in own], [row[word] for row in exclusive])


def absolute(own: Rows, exclusive: Rows, word: str) -> tuple[float, float]:
    """The figure itself."""
    return mean([row[word] for row in own])


def panel(
    rows: Rows, word: str, of: Callable[[Rows, Rows, str], tuple[float, float]], without: str = ""
) -> Callable[[Any, Ink], None]:
    """A line for each policy over the loads, with intervals."""
    loads = sorted({row["load"] for row in rows})

    def drawn(axes: Any, ink: Ink) -> None:
        for case, colour in zip(dict.fromkeys(r["case"] for r in rows), COLOURS, strict=True):
            if case == without:
                continue
            values = [
                of(of_case(here, case), of_case(here, "exclusive"), word)
                for here in ([row for row in rows if row["load"] == load] for load in loads)
            ]
            middles, halves = zip(*values, strict=True)
            axes.errorbar(loads, middles, halves, color=colour, label=case, capsize=3, marker="o")
        axes.set_xlabel("work that arrives, of what all GPUs do one job at a time")
        axes.legend(frameon=False)

    return drawn


def to_png(title: str, row: Sequence[Figure]) -> bytes:
    """The figures beside each other in one image."""
    rc_context, canvas_of = matplotlib()
    with rc_context({"font.size": 10}):
        canvas = canvas_of(figsize=(14, 7 * row[0].height + 2), layout="constrained")
        canvas.set_facecolor("white")
        canvas.suptitle(title, fontsize=12, color=PAPER_INK.text, ha="left", x=0.02)
        for figure, axes in zip(row, canvas.subplots(1, len(row), squeeze=False)[0], strict=True):
            draw(figure, axes, PAPER_INK)
            caption = "\n".join(textwrap.wrap(figure.caption, 62))
            axes.set_title(caption, fontsize=9, loc="left", color=PAPER_INK.text, pad=26)
        sink = io.BytesIO()
        canvas.savefig(sink, format="png", dpi=100, metadata={"Software": None})
    return sink.getvalue()


if __name__ == "__main__":
    main()
