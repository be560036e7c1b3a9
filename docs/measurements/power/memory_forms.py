"""Does another form than floor + time in which the memory moves data predict its power?

    .venv/bin/python docs/measurements/power/memory_forms.py            windows of several H200s
    .venv/bin/python docs/measurements/power/memory_forms.py FILES..    each by itself

Mean error by job left out, least squares of the relative error; weights may be negative here. The
last forms have Extra Trees and a Gaussian process on what a line leaves.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from component_claims import solo_points
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from advisor.core.records import SoloPoint
from advisor.predict.profiles import Floats
from advisor_data.files.files import read_points
from advisor_power.components.activity import activity_of
from advisor_power.components.weights import trusted

FOLDER = Path(__file__).parent
DEFAULT = (
    FOLDER.parents[2] / "data/advisor_data/bundled/references.jsonl",
    FOLDER / "components-h200.jsonl",
)
FORMS = (
    "moving", "busy", "root", "moving root", "moving use", "moving use hot", "moving awake",
    "moving total", "moving root total", "moving use total", "moving use hot total", "root pipe",
    "root rootxpipe", "root rootxtotal", "moving pipe", "moving tensor fp32 integer",
    "moving use tensor fp32", "moving use tensor fp32 integer sm warps", "moving use warps",
    "moving movingxhot", "moving movingxsm", "moving clock", "moving use clock hot",
)  # fmt: skip
LEARNED = (
    "moving tensor fp32 warps", "moving use total warps",
    "moving use total hot clock tensor fp32 integer sm warps",
)  # fmt: skip


def main() -> None:
    """A table for each set of windows."""
    warnings.simplefilter("ignore")
    files = [Path(word) for word in sys.argv[1:]]
    sets = {file.stem: trusted(solos_of(file)) for file in files}
    sets = sets or {"several H200s": [p for p in solo_points(DEFAULT) if "H200" in p.gpu_model]}
    for name, found in sets.items():
        points = [p for p in found if p.memory_power_w and 0 < p.memory_power_w < (p.power_w or 0)]
        print(f"{name}, {len(points)} windows of {len({p.job for p in points})} jobs")
        for form, error in forms(points):
            print(f"  {form:70} {np.mean(error):6.1%}  median {np.median(error):6.1%}")


def solos_of(file: Path) -> list[SoloPoint]:
    """Jobs alone of a file."""
    return [p for p in read_points(file) if isinstance(p, SoloPoint)]


def forms(points: Sequence[SoloPoint]) -> list[tuple[str, Floats]]:
    """Relative errors of each form, best first."""
    watts = np.array([p.memory_power_w or 0.0 for p in points])
    jobs = np.array([p.job for p in points])
    terms = terms_of(points)
    found = [(form, left_out(jobs, watts, matrix(terms, form), _line)) for form in FORMS]
    for form in LEARNED:
        for name, learner in (("trees", _trees), ("process", _process)):
            found.append((f"{name} of {form}", left_out(jobs, watts, matrix(terms, form), learner)))
    return sorted(found, key=lambda one: float(np.mean(one[1])))


def terms_of(points: Sequence[SoloPoint]) -> dict[str, Floats]:
    """What explains, by name."""
    part = {
        name: np.array([getattr(p, f"{column}_percent") or 0.0 for p in points]) / 100
        for name, column in (
            ("moving", "dram_active"), ("busy", "memory_busy"), ("tensor", "tensor_active"),
            ("fp32", "fp32_active"), ("integer", "integer_active"), ("sm", "sm_active"),
            ("warps", "sm_occupancy"),
        )
    }  # fmt: skip
    terms = part | {
        "root": np.sqrt(part["moving"]),
        "pipe": np.maximum.reduce([part["tensor"], part["fp32"], part["integer"]]),
        "total": np.array([p.power_w or 0.0 for p in points]) / 700,
        "hot": np.array([p.temperature_c or 0.0 for p in points]) / 100,
        "clock": np.array([p.sm_clock_mhz or 0.0 for p in points]) / 1980,
        "awake": np.array([_awake(p) for p in points]),
    }
    return terms | {"use": np.minimum(terms["awake"], terms["moving"] / 0.01)}


def matrix(terms: dict[str, Floats], form: str) -> Floats:
    """One, and the terms of a form; `a x b` of both."""
    columns = [np.prod([terms[n] for n in word.split("x")], axis=0) for word in form.split()]
    return np.stack([np.ones(len(columns[0])), *columns], axis=1)


Learner = Callable[[Floats, Floats, Floats], Floats]


def left_out(jobs: Floats, watts: Floats, rows: Floats, learner: Learner) -> Floats:
    """Relative errors of each window, its job left out."""
    errors = np.zeros(len(watts))
    for job in sorted(set(jobs)):
        out = jobs == job
        errors[out] = np.abs(learner(rows[~out], watts[~out], rows[out]) / watts[out] - 1)
    return errors


def _line(rows: Floats, watts: Floats, asked: Floats) -> Floats:
    weights, *_ = np.linalg.lstsq(rows / watts[:, None], np.ones(len(watts)))
    return asked @ weights


def _trees(rows: Floats, watts: Floats, asked: Floats) -> Floats:
    trees = ExtraTreesRegressor(300, min_samples_leaf=2, random_state=0)
    return _beyond_line(rows, watts, asked, trees)


def _process(rows: Floats, watts: Floats, asked: Floats) -> Floats:
    kernel = ConstantKernel(0.01, "fixed") * RBF(1.5, "fixed") + WhiteKernel(0.0025, "fixed")
    return _beyond_line(rows, watts, asked, GaussianProcessRegressor(kernel))


def _beyond_line(rows: Floats, watts: Floats, asked: Floats, learner: Any) -> Floats:
    """A line through bytes, and a learner of the logarithm of what it leaves."""
    middle, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    here, there = (_line(rows[:, :2], watts, of[:, :2]) for of in (rows, asked))
    fitted = learner.fit((rows - middle) / spread, np.log(watts / here))
    return there * np.exp(fitted.predict((asked - middle) / spread))


def _awake(point: SoloPoint) -> float:
    found = activity_of(point)
    return 0.0 if found is None else float(found.terms(found.clock_mhz)[-2])


if __name__ == "__main__":
    main()
