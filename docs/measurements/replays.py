"""Compares what two versions measured on the replay GPU, point by point.

    advisor profile JOB --gpu replay --json > old-profile.json      # with each version
    .venv/bin/python docs/measurements/replays.py old-profile.json new-profile.json

The same for `advisor colocate --pairs ... --gpu replay --json`. Several answers may stand in one
file. Prints the largest relative difference of each column, and columns that differ otherwise.
"""

import json
import sys
from pathlib import Path
from typing import Any

PASSING = ("run", "started_at", "host", "tool_version", "settle_s", "window_s")
"""Columns of the moment, as are standard errors."""

OLD_NAMES = {"cpu_percent": "job_{}_cpu_percent", "job_hash": "job_{}_hash", "job": "job_{}"}
OLD_NAMES |= {"share_percent": "share_{}_percent", "memory_used_mib": "memory_used_{}_mib"}


def main(old: str, new: str) -> None:
    """Print what differs."""
    before, after = (points(Path(name)) for name in (old, new))
    assert before.keys() == after.keys(), before.keys() ^ after.keys()
    largest: dict[str, float] = {}
    for key, point in before.items():
        for name in sorted(point.keys() | after[key].keys()):
            one, other = point.get(name), after[key].get(name)
            if name in PASSING or "stderr" in name or one == other:
                continue
            if isinstance(one, float) and isinstance(other, float) and other:
                largest[name] = max(largest.get(name, 0.0), abs(one / other - 1))
            else:
                print(key, name, one, other)
    print(f"{len(before)} points; largest relative differences: {largest}")


def points(path: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The points of all answers in a file, by jobs and shares, in flat columns."""
    text, decoder, found, place = path.read_text(), json.JSONDecoder(), {}, 0
    while place < len(text.rstrip()):
        answer, end = decoder.raw_decode(text[place:].lstrip())
        place += len(text[place:]) - len(text[place:].lstrip()) + end
        for point in map(flat, answer["points"]):
            keys = (k for k in sorted(point) if k.startswith(("job", "share")) and "cpu" not in k)
            found[(*tuple(point[k] for k in keys), point.get("mode"))] = point
    return found


def flat(point: dict[str, Any]) -> dict[str, Any]:
    """With the columns of older versions, which ended in _a and _b."""
    jobs = point.pop("jobs", ())
    for letter, part in zip("ab", jobs, strict=False):
        for name, value in part.items():
            point[OLD_NAMES.get(name, f"{name}_{{}}").format(letter)] = value
    return point


if __name__ == "__main__":
    main(*sys.argv[1:])
