"""The formulation of "Energy-efficient GPU SM allocation", as a learner next to ours.

Section 3.1 lists the nine features. Section 3.2 puts those of two jobs together: raw metrics are
summed, percentages averaged, all scaled to their least and most. Extra Trees predict X1 + X2 from
all nine, and the power from the seven that are metrics of the GPU. Where the paper leaves a choice:

- The throughput of a job alone is the one at its share, as its other metrics are.
- The sensitivity is the slope of a line through all shares that were profiled, 100 % included.
- PCIe readings, the throughput and the sensitivity are summed; the five others are percentages.
- The trees have scikit-learn's defaults; the paper names no settings.

The normalised objective did not exist there. For it the same is done with relative speeds: their
sum is predicted, from rates relative to the whole GPU.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler

from advisor.predict.profiles import Floats, Profile
from advisor_training.dataset.rows import Rows
from advisor_training.learn.estimator import SEED
from advisor_training.learn.learners import Fitted, Learner, Predicted, as_predicted

PaperTarget = Literal["speeds", "rates"]
"""What is summed and predicted: the relative speeds, or X1 + X2 as in the paper."""

TARGETS: tuple[PaperTarget, ...] = get_args(PaperTarget)

SoloProfiles: TypeAlias = Mapping[tuple[str, str], Profile]

AVERAGED = (
    "sm_active_percent",
    "sm_occupancy_percent",
    "fp32_active_percent",
    "dram_active_percent",
    "memory_busy_percent",
)

SUMMED = ("pcie_tx_mib_per_s", "pcie_rx_mib_per_s")

_SIDES = ("a", "b")


@dataclass(frozen=True, slots=True, eq=False)
class _Models:
    """The two fitted models; half of the predicted sum stands for each job."""

    profiles: SoloProfiles
    target: PaperTarget
    total: Any
    power: Any

    def __call__(self, rows: Rows) -> Predicted:
        half = self.total.predict(paper_features(rows, self.profiles, self.target)) / 2
        speeds = [
            half * _units(rows, self.profiles, side, self.target)
            / _units(rows, self.profiles, side, "speeds")
            for side in _SIDES
        ]  # fmt: skip
        power_w = self.power.predict(_gpu_metrics(rows, self.profiles))
        return as_predicted(np.column_stack(speeds), power_w)


def paper_learner(profiles: SoloProfiles, target: PaperTarget) -> Learner:
    """The paper's method as a learner; it is fitted to the nine splits only.

    What it expects of single jobs means nothing: half of the predicted sum stands for each, so that
    the sum is the predicted one. Profiles are by (job, GPU model), of every job in the rows.
    """

    def learn(rows: Rows) -> Fitted:
        nine = rows.take(rows.kind != "uncapped")
        total, power = _trees(), _trees()
        total.fit(paper_features(nine, profiles, target), _sums(nine, target))
        power.fit(_gpu_metrics(nine, profiles), nine.power_w)
        return _Models(profiles, target, total, power)

    return learn


def paper_features(rows: Rows, profiles: SoloProfiles, target: PaperTarget) -> Floats:
    """The nine features of both jobs of each row, summed or averaged; shape (n, 9)."""
    units = [_units(rows, profiles, side, target) for side in _SIDES]
    rates = [_readings(rows, profiles, side, "rate") for side in _SIDES]
    slopes = [_per_job(rows, profiles, side, lambda p, _: slope(p)) for side in _SIDES]
    return np.column_stack(
        [
            _gpu_metrics(rows, profiles),
            rates[0] / units[0] + rates[1] / units[1],
            slopes[0] / units[0] + slopes[1] / units[1],
        ]
    )


def slope(profile: Profile) -> float:
    """Slope of a line through the rates alone over the shares: steps per second for 1 %."""
    return float(np.polyfit(profile.shares, profile.values["rate"], 1)[0])


def _gpu_metrics(rows: Rows, profiles: SoloProfiles) -> Floats:
    """The seven features that are metrics of the GPU; shape (n, 7)."""
    means = [_both(rows, profiles, name) / 2 for name in AVERAGED]
    return np.column_stack([*means, *(_both(rows, profiles, name) for name in SUMMED)])


def _both(rows: Rows, profiles: SoloProfiles, name: str) -> Floats:
    return _readings(rows, profiles, "a", name) + _readings(rows, profiles, "b", name)


def _sums(rows: Rows, target: PaperTarget) -> Floats:
    if target == "speeds":
        return rows.speed_a + rows.speed_b
    return rows.speed_a * rows.solo_rate_a + rows.speed_b * rows.solo_rate_b


def _units(rows: Rows, profiles: SoloProfiles, side: str, target: PaperTarget) -> Floats:
    """What the rates of one job are divided by: 1, or its rate alone on the whole GPU; (n,)."""
    if target == "rates":
        return np.ones(len(rows))
    return _per_job(rows, profiles, side, lambda profile, _: profile.whole_gpu_rate)


def _readings(rows: Rows, profiles: SoloProfiles, side: str, name: str) -> Floats:
    """A column of one job's profile at its share of each row; shape (n,)."""
    return _per_job(rows, profiles, side, lambda profile, shares: profile.at(shares)[name])


def _per_job(
    rows: Rows,
    profiles: SoloProfiles,
    side: str,
    value: Callable[[Profile, Floats], Floats | float],
) -> Floats:
    jobs, shares = getattr(rows, f"job_{side}"), getattr(rows, f"share_{side}")
    found = np.empty(len(rows))
    for key in set(zip(jobs.tolist(), rows.gpu_model.tolist(), strict=True)):
        its = (jobs == key[0]) & (rows.gpu_model == key[1])
        found[its] = value(profiles[key], shares[its])
    return found


def _trees() -> Any:
    trees = ExtraTreesRegressor(random_state=SEED)
    return Pipeline([("scale", MinMaxScaler()), ("trees", trees)])
