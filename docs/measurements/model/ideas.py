"""Prints what was tried against the error of the rates: each idea, leaving one workload out.

    .venv/bin/python docs/measurements/model/ideas.py

Takes about four minutes on one core. The first line is the model. `rates` is the mean error of the
relative speeds at the nine splits, `median` their median; the others are the mean fraction of the
oracle. At the end: how much of the error of the rates comes from which kinds of pair and share.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor, VotingRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from advisor.core.objectives import OBJECTIVES
from advisor.decide.recommend import TIE
from advisor.predict.features import feature_names_of
from advisor.predict.profiles import Floats
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.files.dataset import select
from advisor_models.heads import SPEED
from advisor_training.dataset.head_rows import HeadRows, flat
from advisor_training.dataset.rows import Rows
from advisor_training.evaluation.data import Data, make_data
from advisor_training.learn.head_learners import LEAST_SPEED
from advisor_training.learn.held_out import HeldOut, fold_by, leave_one_job_out
from advisor_training.learn.learners import (
    Fitted,
    Learner,
    Predicted,
    as_predicted,
    extra_trees,
    fit,
    physical,
)
from advisor_training.learn.scoring import fractions, power_errors, speed_errors
from advisor_training.train import SCORED


def main() -> None:
    """Evaluate every idea, then say where the error of the model comes from."""
    data = make_data(
        select(bundled_pair_points()).points, bundled_solo_points(), bundled_reference_points()
    )
    rows = data.rows
    print("| idea | rates, % | median, % | power, % | " + " | ".join(SCORED) + " |")
    print("|" + " --- |" * (4 + len(SCORED)))
    model = leave_one_job_out(rows, _with(extra_trees))
    tell("the model", rows, model)
    for name, learner in IDEAS.items():
        tell(name, rows, leave_one_job_out(rows, learner))
    tell("the model, all jobs known: ten folds by pair", rows, by_pair(rows))
    where(data, model)


def tell(name: str, rows: Rows, found: HeldOut) -> None:
    """One line."""
    errors = 100 * speed_errors(rows, found)
    power = 100 * power_errors(rows, found).mean()
    worth = [f"{100 * fractions(rows, found, OBJECTIVES[o], TIE).mean():.2f}" for o in SCORED]
    cells = (f"{errors.mean():.2f}", f"{np.median(errors):.2f}", f"{power:.2f}", *worth)
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def where(data: Data, found: HeldOut) -> None:
    """Parts of the summed error of the rates, at the nine splits."""
    rows = data.rows
    tests = rows.kind[found.row] == "nine"
    row = found.row[tests]
    errors = np.concatenate(
        [
            np.abs(found.speed[tests, 0] / rows.speed_a[row] - 1),
            np.abs(found.speed[tests, 1] / rows.speed_b[row] - 1),
        ]
    )
    launch = np.tile(data.with_launch_bound()[rows.measurement[row]], 2)
    shares = np.concatenate([rows.share_a[row], rows.share_b[row]])
    names = np.char.add(np.char.add(rows.job_a[row], " + "), rows.job_b[row])
    print("\n| of the error of the rates | part of the rates, % | part of the error, % |")
    print("| --- | --- | --- |")
    _part("pairs with a launch-bound job", launch, errors)
    _part("a share of 10 %", shares == 10, errors)
    _part("a share of 10 % or 20 %", shares <= 20, errors)
    pairs = np.tile(names, 2)
    worst = sorted(set(pairs), key=lambda name: -errors[pairs == name].sum())[:8]
    for name in worst:
        _part(name, pairs == name, errors)


def by_pair(rows: Rows) -> HeldOut:
    """Ten folds of whole pairs: what is left of the error when every job is known."""
    return fold_by(rows, rows.pair % 10, _with(extra_trees))


def _part(name: str, which: Any, errors: Floats) -> None:
    part, error = 100 * which.mean(), 100 * errors[which].sum() / errors.sum()
    print(f"| {name} | {part:.1f} | {error:.1f} |")


def _with(make: Callable[[], Any]) -> Learner:
    return lambda rows: fit(make, rows)


def _trees(**settings: Any) -> Learner:
    return _with(lambda: extra_trees().set_params(**settings))


def _mixed(rows: Rows) -> Fitted:
    """A sixth of the answer from physics."""
    trees, physics = fit(extra_trees, rows), physical(rows)

    def predict(some: Rows) -> Predicted:
        a, b = trees(some), physics(some)
        return as_predicted((5 * a.speed + b.speed) / 6, (5 * a.power_w + b.power_w) / 6)

    return predict


def _without_prior(rows: Rows) -> Fitted:
    """What a job keeps itself, not over the two lines of physics."""
    return _fitted_to(rows, lambda kept: np.log(kept), np.exp)


def _slowdown(rows: Rows) -> Fitted:
    """One over what a job keeps, not its logarithm."""
    return _fitted_to(rows, lambda kept: 1 / kept, lambda y: 1 / y)


def _fitted_to(
    rows: Rows, to: Callable[[Floats], Floats], back: Callable[[Floats], Floats]
) -> Fitted:
    seen = rows.heads["speed"]
    speeds = np.maximum(np.concatenate([rows.speed_a, rows.speed_b]), LEAST_SPEED)
    kept = speeds / flat(_alone(seen))
    speed, model = extra_trees().fit(flat(seen.features), to(kept)), fit(extra_trees, rows)

    def predict(some: Rows) -> Predicted:
        asked = some.heads["speed"]
        parts = [back(speed.predict(part)) for part in np.moveaxis(asked.features, 1, 0)]
        return as_predicted(np.column_stack(parts) * _alone(asked), model(some).power_w)

    return predict


def _alone(seen: HeadRows) -> Floats:
    """Relative rates alone at the share: the prior without what the jobs take from each other."""
    place = feature_names_of(SPEED.features_of).index("prior_kept")
    return seen.prior / seen.features[:, :, place]


def _support_vectors() -> Any:
    return Pipeline([("scale", StandardScaler()), ("svr", SVR(C=3.0, epsilon=0.01))])


def _voting(others: Sequence[tuple[str, Any]]) -> Any:
    return VotingRegressor([("trees", extra_trees()), *others])


IDEAS: Mapping[str, Learner] = {
    "another seed": _trees(random_state=1),
    "300 trees, two rows in a leaf": _trees(n_estimators=300, min_samples_leaf=2),
    "a leaf for each row": _trees(min_samples_leaf=1),
    "all features for each branch": _trees(max_features=1.0),
    "splits by absolute error": _trees(criterion="absolute_error", n_estimators=30),
    "without the prior": _without_prior,
    "slowdown instead of its logarithm": _slowdown,
    "a sixth of physics": _mixed,
    "gradient boosting": _with(
        lambda: GradientBoostingRegressor(n_estimators=200, subsample=0.5, random_state=0)
    ),
    "trees and support vectors": _with(lambda: _voting([("svr", _support_vectors())])),
    "bagged rows": _with(
        lambda: ExtraTreesRegressor(60, min_samples_leaf=2, bootstrap=True, random_state=0)
    ),
}


if __name__ == "__main__":
    main()
