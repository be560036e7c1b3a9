"""Prints the tables of what `run.py` wrote, and draws a plot.

.venv/bin/python docs/measurements/cluster/draw.py build/cluster.json --png PNG
"""

import argparse
import io
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from outcome import change, mean

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
    "energy, free cards off": against("busy_mwh", form=".1f"),
    "energy, free cards idle": against("energy_mwh", form=".1f"),
    "completion, h": value("completion_h"),
    "wait, h": value("wait_h"),
    "jobs below 0.4, %": value("slow_percent", ".1f"),
    "their time below, %": value("jobs_missed_percent", ".1f"),
    "servers' time below, %": value("servers_missed_percent", ".1f"),
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
        options.png.write_bytes(to_png("A simulated cluster of 256 GPUs", figures(rows)))


def table(title: str, rows: Rows, columns: Mapping[str, Cell]) -> None:
    """A row for each case."""
    seeds = len({row["seed"] for row in rows})
    jobs = mean([row["jobs"] for row in rows])[0]
    print(f"\n{title}: {jobs:.0f} jobs, {seeds} seeds\n\n| | {' | '.join(columns)} |")
    print("| --- |" + " --- |" * len(columns))
    find = partial(of_case, rows)
    for case in dict.fromkeys(row["case"] for row in rows):
        print(f"| {case} | {' | '.join(cell(case, find) for cell in columns.values())} |")


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


def figures(rows: Rows) -> list[Figure]:
    """Energy and completion of the policies by load."""
    these = [row for row in rows if row["experiment"] == "policies"]
    energy = panel(these, "energy_mwh", relative, without="equal split")
    return [
        Figure("energy", "Energy against exclusive, %; equal split: +8 to +10", energy, 0.6),
        Figure("completion", "Mean completion, h", panel(these, "completion_h", absolute), 0.6),
    ]


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
        for figure, axes in zip(row, canvas.subplots(1, len(row)), strict=True):
            draw(figure, axes, PAPER_INK)
            caption = "\n".join(textwrap.wrap(figure.caption, 62))
            axes.set_title(caption, fontsize=9, loc="left", color=PAPER_INK.text, pad=26)
        sink = io.BytesIO()
        canvas.savefig(sink, format="png", dpi=100, metadata={"Software": None})
    return sink.getvalue()


if __name__ == "__main__":
    main()
