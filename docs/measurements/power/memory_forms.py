"""Does another form than floor + time in which the memory moves data predict its power on H200?

    .venv/bin/python docs/measurements/power/memory_forms.py

Mean error by job left out, least squares of the relative error, over the windows of
component_claims.py; weights may be negative here.
"""

from pathlib import Path

import numpy as np
from component_claims import solo_points

FOLDER = Path(__file__).parent
FILES = (
    FOLDER.parents[2] / "data/advisor_data/bundled/references.jsonl",
    FOLDER / "components-h200.jsonl",
)

points = [
    p
    for p in solo_points(FILES)
    if p.gpu_model == "NVIDIA H200" and p.memory_power_w and 0 < p.memory_power_w < (p.power_w or 0)
]
jobs = np.array([p.job for p in points])
watts = np.array([p.memory_power_w or 0.0 for p in points])
moving = np.array([p.dram_active_percent or 0.0 for p in points]) / 100
busy = np.array([p.memory_busy_percent or 0.0 for p in points]) / 100
total = np.array([p.power_w or 0.0 for p in points]) / 700
pipes = ("tensor_active_percent", "fp32_active_percent", "integer_active_percent")
pipe = np.array([max(getattr(p, name) or 0.0 for name in pipes) for p in points]) / 100
root, one = np.sqrt(moving), np.ones(len(points))
FORMS = {
    "time": [moving],
    "root of the time": [root],
    "time and its root": [moving, root],
    "time, its root, total power": [moving, root, total],
    "time by the driver": [busy],
    "root, pipes": [root, pipe],
    "root, root x pipes": [root, root * pipe],
    "root, root x total power": [root, root * total],
}

for name, terms in FORMS.items():
    matrix, errors = np.stack([one, *terms], axis=1), list[float]()
    for job in sorted(set(jobs)):
        out = jobs == job
        weights, *_ = np.linalg.lstsq(matrix[~out] / watts[~out, None], np.ones(int((~out).sum())))
        errors += (abs(matrix[out] @ weights - watts[out]) / watts[out]).tolist()
    print(f"{name:30} {np.mean(errors):6.1%}  median {np.median(errors):6.1%}")
