"""Is it too few SMs for the clusters that were launched? What trials.json says of that.

    python docs/measurements/results/clusters.py

Of each number of clusters, of each size, the SM counts at which products were right and wrong on
an H100: wrong ones all below the right ones would mean that a launch of so many clusters needs more
SMs than the library reckons with.
"""

import json
from pathlib import Path

launches = json.loads(Path(__file__).with_name("trials.json").read_text())["clusters_h100"]
wrong = [found for found in launches if found["wrong_at"]]
both = [found for found in wrong if found["right_at"]]
apart = [found for found in both if max(found["wrong_at"]) < min(found["right_at"])]
print(f"{len(launches)} kinds of launch, {len(wrong)} of them wrong at some count")
print(
    f"{len(both)} both right and wrong; {len(apart)} of these wrong below a count, right above it"
)
for found in both:
    size, number = found["blocks_per_cluster"], found["clusters"]
    mark = "" if found in apart else "   <- not so"
    print(
        f"  {number:2} clusters of {size} = {size * number:3} blocks: wrong at "
        f"{min(found['wrong_at'])}-{max(found['wrong_at'])}, right at "
        f"{min(found['right_at'])}-{max(found['right_at'])}{mark}"
    )
