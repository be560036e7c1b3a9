"""What `five_jobs.py` found: of each job alone, and of each launch beside what was predicted.

python docs/measurements/audit/five_jobs_said.py docs/measurements/runs
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Found = dict[str, Any]


def lines(file: Path) -> Iterator[str]:
    """A table of all jobs alone, and one of each launch."""
    found: Found = json.loads(file.read_text())
    yield f"five jobs on {found['gpu_model']}, {found['at']}; {found['seconds']:g} s each"
    points = {point["job"]: point for point in found["points"]}
    fills = {job["job"]: job["fills"] for job in found.get("audit", {}).get("jobs", ())}
    yield "| alone, measured | rate | W | SMs active, % | the audit says that it fills a card |"
    yield "|---|--:|--:|--:|---|"
    for name, point in points.items():
        rate, active = f"{point['rate']:.4g} {point['rate_unit']}/s", point["sm_active_percent"]
        full = {None: "not known", True: "yes", False: "no"}[fills.get(name)]
        yield f"| {name} | {rate} | {_told(point['power_w'])} | {_told(active)} | {full} |"
    for one in found.get("launches", ()):
        yield ""
        yield from _of_launch(one, points)


def _of_launch(one: Found, points: Mapping[str, Any]) -> Iterator[str]:
    advised, status = one["advised"], one["launch"]
    if "refused" in one:
        yield f"! {one['refused']}"
    if not status.get("observations"):
        yield f"not launched: {' + '.join(advised['jobs'])} (exit code {one['exit_code']})"
        return
    seen: Found = status["observations"][0]
    forecast: Found = status["forecast"] or {}
    rates = {part["job"]: part["rate"] for part in seen["jobs"]}
    of_jobs = [_over(job["rate"], job["solo_rate"]) for job in forecast.get("jobs", ())]
    unknown = [None] * len(advised["jobs"])
    yield f"{' + '.join(advised['jobs'])}, {one['split'] or 'as recommended'}"
    yield "| speed | audit | forecast from one window | observed |"
    yield "|---|--:|--:|--:|"
    said = zip(advised.get("speeds") or unknown, of_jobs or unknown, strict=True)
    for name, (audited, expected) in zip(advised["jobs"], said, strict=True):
        now = rates[name] and rates[name] / points[name]["rate"]
        yield f"| {name} | {_percent(audited)} | {_percent(expected)} | {_percent(now)} |"
    watts, gain_w = advised.get("power_w"), advised.get("saved_w")
    part = gain_w / (watts + gain_w) if watts and gain_w is not None else None
    yield (
        f"| power, W | {_told(watts)} | {_told(forecast.get('power_w'))} "
        f"| {_told(seen['power_w'])} |"
    )
    yield (
        f"| energy saved against a card each | {_percent(part)} "
        f"| {_percent(forecast.get('energy_saved'))} | {_percent(seen['energy_saved'])} |"
    )
    yield f"flags: {', '.join(seen['flags']) or 'none'}"


def _over(of: Mapping[str, float], whole: float) -> Mapping[str, float]:
    return {key: of[key] / whole for key in ("value", "low", "high")}


def _percent(part: float | Mapping[str, float] | None) -> str:
    return "-" if part is None else f"{_told(part, 100)} %"


def _told(of: float | Mapping[str, float] | None, times: float = 1) -> str:
    if of is None:
        return "-"
    if isinstance(of, float | int):
        return f"{times * of:.0f}"
    value, low, high = (times * of[key] for key in ("value", "low", "high"))
    return f"{value:.0f} ({low:.0f} to {high:.0f})"


if __name__ == "__main__":
    print(*lines(Path(sys.argv[1]) / "five_jobs.json"), sep="\n")
