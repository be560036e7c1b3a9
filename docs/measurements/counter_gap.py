"""How far the energy counter and the mean of instant power differ in the bundled points.

.venv/bin/python docs/measurements/counter_gap.py
"""

import statistics

from advisor_data.files.bundled import bundled_solo_points

gaps = sorted(
    abs(p.counter_power_w / p.power_w - 1)
    for p in bundled_solo_points()
    if p.power_w and p.counter_power_w is not None
)
print(f"{len(gaps)} points: median {100 * statistics.median(gaps):.2f} %")
print(f"95th percentile {100 * gaps[int(0.95 * len(gaps))]:.2f} %, largest {100 * gaps[-1]:.2f} %")
print(f"above 3 %: {sum(gap > 0.03 for gap in gaps)}")
