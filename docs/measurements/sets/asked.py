"""Sets that were asked for first and measured after: what was said and what came.

    python docs/measurements/sets/asked.py

asked/*.json are answers of `advisor recommend SET --json`, one file for each card, with the time
and the run whose windows followed; the advisor had their jobs alone on other cards, and none of the
sets. One row for each way of sharing that was said and measured: watts, energy saved against a card
each with the freed cards off, the slowest job, and the longest p99. Then the errors by way of
sharing, and how many of the values are within the ranges that were said. "Hot" are windows in which
heat lowered the clock, at which the same work takes less energy than was said. Last launches at the
advice, which launched.jsonl has as `advisor data export --kind observations` wrote them.
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rows import Part, Row, campaigns, rows_of

from advisor.core.flags import HEAT
from advisor.core.gpu import WHOLE
from advisor_profiling.reports import LEFT_OUT

FOLDER = Path(__file__).parent

Answer = Mapping[str, Any]
"""One way of an answer, as docs/recommend.md has it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One way that was said of a set, and the window that followed."""

    card: str
    text: str
    is_choice: bool
    said: Answer
    row: Row

    @property
    def pairs(self) -> Iterator[tuple[Answer, Part]]:
        """Each job as it was said and as it was measured, of the same place."""
        said = sorted(self.said["jobs"], key=lambda job: (job["job"], job["share_percent"]))
        parts = sorted(self.row.parts, key=lambda part: (part.whole.job, part.alone.share_percent))
        return zip(said, parts, strict=True)

    @property
    def saved(self) -> float:
        """Part of the energy for the same work, against a card each, the freed ones off."""
        alone_w = sum(part.speed * (part.whole.power_w or 0.0) for part in self.row.parts)
        return 1 - self.row.power_w / alone_w


def main() -> None:
    """Print both tables."""
    asked = list(found())
    print("| card | set | way | W | saved, off % | slowest | p99 ms |")
    print("|---|---|---|---|---|---|---|")
    for one in asked:
        print(f"| {one.card} | {one.text} | {way_text(one)} | {' | '.join(cells(one))} |")
    print(
        "\n| way | windows | watts, % | energy, points | speeds, points | p99 within 1.5 | held % |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    ways: dict[str, list[Asked]] = defaultdict(list)
    for one in asked:
        heat = ", hot" if one.row.is_hot else ""
        ways[f"{one.card}, {one.row.mode}{heat}"].append(one)
        if one.is_choice:
            ways[f"{one.card}, as advised{heat}"].append(one)
    for name, those in sorted(ways.items()):
        print(f"| {name} | {len(those)} | {' | '.join(errors(those))} |")
    print("\n| launched | way | W | saved, off % | speed of each job | p99 ms |")
    print("|---|---|---|---|---|---|")
    for launch in map(json.loads, (FOLDER / "launched.jsonl").read_text().splitlines()):
        print(f"| {' | '.join(launch_cells(launch))} |")


def launch_cells(launch: Mapping[str, Any]) -> Iterator[str]:
    """Said, and observed."""
    jobs = launch["jobs"]
    yield "+".join(job["job"] for job in jobs)
    limits = [f"{job['share_percent']:g}" for job in jobs]
    yield "/".join(limits) if launch["mode"] == "mps" else launch["mode"]
    yield f"{launch['predicted_power_w']:.0f} → {launch['power_w']:.0f}"
    yield f"{100 * launch['predicted_energy_saved']:.0f} → {100 * launch['energy_saved']:.0f}"
    rates = [(job["predicted_rate"], job["rate"], job["solo_rate"]) for job in jobs]
    yield ", ".join(f"{said / solo:.2f} → {did / solo:.2f}" for said, did, solo in rates)
    yield ", ".join(f"{job['latency_p99_ms']:.0f}" for job in jobs if job["latency_p99_ms"])


def found() -> Iterator[Asked]:
    """Ways that were said of sets, with what was measured after."""
    of_runs = {campaign.run: rows_of(campaign, LEFT_OUT - {HEAT}) for campaign in campaigns(None)}
    for file in sorted((FOLDER / "asked").glob("*.json")):
        card = json.loads(file.read_text())
        rows = {key_of_row(row): row for row in of_runs[card["run"]]}
        for answer in card["asked"]:
            for way in answer["ways"]:
                if row := rows.get(key_of(way)):
                    chosen = way["name"] == answer["choice"]
                    yield Asked(card["name"], answer["set"], chosen, way, row)


def key_of(way: Answer) -> tuple[object, ...]:
    """What a way and its window have in common; jobs are in the order of the window."""
    jobs = sorted((job["job"], float(job["share_percent"])) for job in way["jobs"])
    mode = "limits" if way["sharing"] == "limited" else way["sharing"]
    return (mode, *jobs)


def key_of_row(row: Row) -> tuple[object, ...]:
    """The same of a window."""
    return (row.mode, *sorted((p.whole.job, p.alone.share_percent) for p in row.parts))


def way_text(one: Asked) -> str:
    """Limits, or how the GPU is shared without."""
    mark = " (advised)" if one.is_choice else ""
    mark += ", hot" if one.row.is_hot else ""
    shares = ((job["job"], job["share_percent"]) for job, _ in one.pairs)
    limits = [f"{name}@{percent:g}" for name, percent in shares if percent < WHOLE]
    return (", ".join(limits) or one.row.mode) + mark


def cells(one: Asked) -> Iterator[str]:
    """Said, and measured."""
    said = one.said
    yield f"{said['power_w']['value']:.0f} → {one.row.power_w:.0f}"
    yield f"{100 * said['energy_saved']['value']:.0f} → {100 * one.saved:.0f}"
    slowest = min(job["speed"]["value"] for job in said["jobs"])
    yield f"{slowest:.2f} → {min(part.speed for part in one.row.parts):.2f}"
    tails = [(job["latency_p99_ms"], part.p99_ms) for job, part in one.pairs]
    known = [(t["value"], ms) for t, ms in tails if t and ms]
    yield f"{max(t for t, _ in known):.0f} → {max(ms for _, ms in known):.0f}" if known else ""


def errors(those: list[Asked]) -> Iterator[str]:
    """Means over windows, jobs and tails."""
    watts = [100 * abs(o.said["power_w"]["value"] / o.row.power_w - 1) for o in those]
    energy = [100 * abs(o.said["energy_saved"]["value"] - o.saved) for o in those]
    jobs = [(job, part) for o in those for job, part in o.pairs]
    speeds = [100 * abs(job["speed"]["value"] - part.speed) for job, part in jobs]
    tails = [
        job["latency_p99_ms"]["value"] / part.p99_ms
        for job, part in jobs
        if job["latency_p99_ms"] and part.p99_ms
    ]
    held = [within(o.row.power_w, o.said["power_w"]) for o in those]
    held += [within(min(1.0, part.speed), job["speed"]) for job, part in jobs]
    yield from (f"{statistics.fmean(values):.1f}" for values in (watts, energy, speeds))
    near = sum(1 / 1.5 <= ratio <= 1.5 for ratio in tails)
    yield f"{near} of {len(tails)}"
    yield f"{100 * statistics.fmean(held):.0f}"


def within(value: float, said: Answer) -> bool:
    """Whether a range holds it; a job that is faster than alone counts as unhindered."""
    return bool(said["low"] <= value <= said["high"])


if __name__ == "__main__":
    main()
