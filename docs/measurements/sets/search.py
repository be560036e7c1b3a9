"""How long the best way of seven jobs takes to find, by how many of them fill the GPU.

    python docs/measurements/sets/search.py

Milliseconds of 20 searches with bundled profiles of an H100, the fastest and the median.
"""

import statistics
import time

from advisor.decide.recommendation import Request
from advisor.decide.ways import recommend_set
from advisor.predict.profiles import make_profiles
from advisor.predict.sets import SetPredictor
from advisor_data.files.bundled import bundled_solo_points

GPU = "NVIDIA H100 80GB HBM3"
SMALL, BIG = "resnet50-train-b2", "bert-infer"


def main() -> None:
    """Print the table."""
    profiles = make_profiles(bundled_solo_points([SMALL, BIG]))
    request = Request(default_min_speed=0.0, min_gain=0.0)
    for filling in range(8):
        jobs = [profiles[BIG, GPU]] * filling + [profiles[SMALL, GPU]] * (7 - filling)
        took_ms, searched = list[float](), 0
        for _ in range(20):
            began = time.perf_counter()
            searched = recommend_set(jobs, SetPredictor(), request).searched
            took_ms.append(1000 * (time.perf_counter() - began))
        middle = statistics.median(took_ms)
        print(f"{filling} fill: {searched} ways, {min(took_ms):.0f} ms, median {middle:.0f} ms")


if __name__ == "__main__":
    main()
