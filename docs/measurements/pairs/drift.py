"""Prints how fast the jobs alone beside the pairs ran, against the same jobs in their profiles.

.venv/bin/python docs/measurements/pairs/drift.py
"""

import statistics
from collections import defaultdict

from advisor.validity.slow_alone import LARGEST_SLOWDOWN
from advisor_data.files.bundled import bundled_reference_points, bundled_solo_points


def main() -> None:
    """Print, for each run, the references by how far they are from their profile."""
    profiles = _profile_rates()
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in bundled_reference_points():
        bound = "launch-bound" if "cpu-bound" in point.flags else "others"
        found[point.run][bound].append(point.rate / profiles[point.job])
    print("| run | jobs | references | slowest | median | over 12 % slower |")
    print("| --- | --- | --- | --- | --- | --- |")
    for run, kinds in sorted(found.items()):
        for bound, parts in sorted(kinds.items()):
            slow = sum(part < 1 - LARGEST_SLOWDOWN for part in parts)
            middle = statistics.median(parts)
            print(f"| {run} | {bound} | {len(parts)} | {min(parts):.1%} | {middle:.1%} | {slow} |")


def _profile_rates() -> dict[str, float]:
    rates: dict[str, list[float]] = defaultdict(list)
    for point in bundled_solo_points():
        if point.share_percent == 100:
            rates[point.job].append(point.rate)
    return {job: statistics.median(found) for job, found in rates.items()}


main()
