"""What learns from rows: the model, what it is compared with, and physics.

A head of the model is an estimator of scikit-learn that learns how far off a prior is; so any
regressor can be learned, left out and scored as the model is: here are predictions of rows that a
learner was not fitted to, too, and the ways to part rows for that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType, SimpleNamespace
from typing import Any, Self, TypeAlias, cast

import joblib
import numpy as np
from sklearn import base, ensemble, linear_model, pipeline, preprocessing, utils

from advisor.core.records import grouped
from advisor.errors import InputError
from advisor.predict.predictions import CARD_SPREAD
from advisor.predict.profiles import Floats, Profile, rounded
from advisor_models.model_predictor import MEMORY_POWER, POWER, SPEED, Head
from advisor_models.registry import UNCAPPED
from advisor_training.rows import Mask, Names, Numbers, Rows, flat

TREES = 60
"""A hundred reach the same fraction of the oracle, within what another seed changes, and take
longer in serving in proportion."""

LEAST_IN_LEAF = 4
PART_OF_FEATURES = 0.5
SEED = 0


# They have no types.
_BASE, _UTILS, _JOBLIB = (cast("Any", module) for module in (base, utils, joblib))

# Trees learn from features that are missing; another regressor refuses them by itself.
_TAKES: Mapping[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}


def extra_trees(seed: int = SEED) -> Any:
    """The regressor of the model; the same data and seed give the same trees.

    One thread: several fit no faster at this size, and add up the trees in any order.
    """
    return ensemble.ExtraTreesRegressor(
        TREES,
        min_samples_leaf=LEAST_IN_LEAF,
        max_features=PART_OF_FEATURES,
        random_state=seed,
    )


class PriorRegressor(base.RegressorMixin, base.BaseEstimator):
    """A quantity above 0, learned as the logarithm of what was measured over its prior.

    Logarithms, since errors count relative to the value. They and the weights are `rounded`, so
    that every processor learns the same.

    Args:
        regressor: What learns them, cloned when fitted; None: `extra_trees()`.
        prior_column: Column of X that holds the prior, in the unit of y, and is no feature; None:
            there is none, and the logarithm of y itself is learned.
    """

    def __init__(self, regressor: Any = None, prior_column: int | None = None) -> None:
        self.regressor = regressor
        self.prior_column = prior_column

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Learn from rows of X, shape (n, columns), and y above 0, shape (n,)."""
        given, y = _UTILS.validation.validate_data(self, X, y, y_numeric=True, **_TAKES)
        prior, features = self._parts(given)
        if not (np.all(y > 0) and np.all(prior > 0)):
            raise ValueError("y and its prior must be above 0: logarithms of them are learned")
        self.regressor_: Any = _BASE.clone(self._fresh())
        weights: dict[str, Floats] = {}
        if sample_weight is not None:
            # A pipeline has them for its last step.
            steps = getattr(self.regressor_, "steps", None)
            step = f"{steps[-1][0]}__" if steps else ""
            weights[f"{step}sample_weight"] = rounded(np.asarray(sample_weight, np.float64))
        self.regressor_.fit(features, rounded(np.log(y / prior)), **weights)
        return self

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """What is expected, in the unit of y, shape (n,)."""
        _UTILS.validation.check_is_fitted(self)
        prior, features = self._parts(
            _UTILS.validation.validate_data(self, X, reset=False, **_TAKES)
        )
        return np.exp(self.regressor_.predict(features)) * prior

    def __sklearn_tags__(self) -> Any:
        tags = cast("Any", super()).__sklearn_tags__()
        tags.target_tags.positive_only = True
        tags.input_tags.allow_nan = _UTILS.get_tags(self._fresh()).input_tags.allow_nan
        return tags

    def _fresh(self) -> Any:
        return extra_trees() if self.regressor is None else self.regressor

    def _parts(self, X: Floats) -> tuple[Floats | float, Floats]:  # noqa: N803
        prior = self.prior_column
        return (1.0, X) if prior is None else (X[:, prior], np.delete(X, prior, axis=1))


LEAST_SPEED = 1e-4
"""Relative speeds below are taken as this, so that a starved job has a logarithm."""


FEWEST_JOBS = 20
"""A head that not every window tells is learned from so many jobs at least, with limits of SMs and
without. Of n jobs left out, the error of a new one is above all of theirs once in n + 1: an
interval that is to miss 5 % on each side needs 19."""


def _never(rows: Rows) -> Floats:
    return np.full((len(rows), 1), np.inf)


def _all_served(rows: Rows) -> Floats:
    return np.column_stack([rows.all_served_a, rows.all_served_b])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HeadLearner:
    """What a head is learned from, and how sure it is where the rows do not tell.

    Attributes:
        measured: What was measured of it in rows; shape (n, parts).
        all_served: From which value on a measured one only says that it could be no less: such rows
            are not learned from, and have no error where so much was expected; shape (n, parts).
        least: Measured values below are taken as this.
        most: Measured and expected values above are taken as this; shape (n, parts).
        card_spread: Standard deviation between cards of the logarithm, below the power limit, where
            the rows have no other card to show it; 0: cards do not differ.
        single_gpu_widening: How much wider intervals are taken to be for other GPU models where the
            rows are of one. Leaving out a run of the H200 with all its cards, and the job as well,
            the worst of the runs takes intervals 1.61 times as wide for speeds and 1.32 times for
            power, and 20 of its pairs until none need be wider. Rounded up to halves: a card of
            another model differs from these more than they do from each other.
            docs/measurements/model.md has the figures.
    """

    head: Head
    measured: Callable[[Rows], Floats]
    all_served: Callable[[Rows], Floats] = _never
    least: float = 0.0
    most: Callable[[Rows], Floats] = _never
    card_spread: float = 0.0
    single_gpu_widening: float = 2.0

    def is_measured(self, rows: Rows) -> Mask:
        """In which rows it was measured; shape (n,)."""
        return np.logical_and.reduce(np.isfinite(self.measured(rows)), axis=1)

    def possible(self, rows: Rows, values: Floats) -> Floats:
        """Values of rows between `least` and `most`, part by part; shape (parts x n,)."""
        return flat(np.clip(values, self.least, self.most(rows)))


SPEED_LEARNER = HeadLearner(
    head=SPEED,
    measured=lambda rows: np.column_stack([rows.speed_a, rows.speed_b]),
    all_served=_all_served,
    least=LEAST_SPEED,
    most=lambda rows: np.where(np.isfinite(_all_served(rows)), np.inf, 1.0),
)

POWER_LEARNER = HeadLearner(
    head=POWER,
    measured=lambda rows: rows.power_w[:, None],
    card_spread=CARD_SPREAD,
    single_gpu_widening=1.5,
)

MEMORY_POWER_LEARNER = HeadLearner(
    head=MEMORY_POWER,
    measured=lambda rows: rows.memory_power_w[:, None],
    card_spread=CARD_SPREAD,
)

HEAD_LEARNERS = (SPEED_LEARNER, POWER_LEARNER)
"""Of the heads that every model has."""

OPTIONAL_LEARNERS = (MEMORY_POWER_LEARNER,)
"""Of heads that not every window tells."""


def learners_for(rows: Rows) -> tuple[HeadLearner, ...]:
    """Of all heads that can be learned from rows: optional ones where enough jobs were measured.

    And in two runs, since intervals are made of errors in another run.
    """
    learners = [*HEAD_LEARNERS]
    for learner in OPTIONAL_LEARNERS:
        measured = learner.is_measured(rows)
        kinds = (measured & (rows.kind == UNCAPPED), measured & (rows.kind != UNCAPPED))
        jobs = min(len(rows.take(kind).jobs) for kind in kinds)
        if jobs >= FEWEST_JOBS and len(np.unique(rows.run[measured])) > 1:
            learners.append(learner)
    return tuple(learners)


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """What a learner expects of n rows.

    Attributes:
        speed: Relative speed of each job, shape (n, 2).
        heads: What each head says, shape (n, parts): "power" in W, and "speed" as it would be if
            there were always something to do, where the learner tells that from the speeds.
    """

    speed: Floats
    heads: Mapping[str, Floats]

    @property
    def power_w(self) -> Floats:
        """Power of the GPU, W; shape (n,)."""
        return self.heads["power"][:, 0]


# Column of the prior in what estimators take.
_PRIOR = 0

Fitted: TypeAlias = Callable[[Rows], Predicted]
Learner: TypeAlias = Callable[[Rows], Fitted]


@dataclass(frozen=True, slots=True, eq=False)
class Regressors:
    """The estimators of a model by head."""

    by_head: Mapping[str, Any]

    def __call__(self, rows: Rows) -> Predicted:
        """Expected speeds and power of rows."""
        # Part by part: where a value stands in an array may change the last bit of numpy's exp.
        by_part = {name: np.moveaxis(rows.heads[name], 1, 0) for name in self.by_head}
        heads = {
            name: np.stack([*map(estimator.predict, by_part[name])], axis=1)
            for name, estimator in self.by_head.items()
        }
        return _served(rows, heads)


def as_predicted(speed: Floats, power_w: Floats) -> Predicted:
    """Speeds of jobs with always something to do, shape (n, 2), and the power, shape (n,)."""
    return Predicted(speed, {"speed": speed, "power": power_w[:, None]})


def _served(rows: Rows, heads: Mapping[str, Floats]) -> Predicted:
    """Speeds by what jobs could do: none is faster than alone, or serves more than is asked."""
    return Predicted(np.minimum(heads["speed"], 1), heads)


def fit(
    make: Callable[[], Any], rows: Rows, learners: Sequence[HeadLearner] = HEAD_LEARNERS
) -> Regressors:
    """Estimators with regressors of one kind, one for each head, fitted to rows.

    Of a job that served all of its demand a row only says that it could do no less, so speeds are
    learned from the others.
    """
    return Regressors({learner.head.name: _fitted(make(), rows, learner) for learner in learners})


def learned_from(learner: HeadLearner, rows: Rows) -> tuple[Floats, Floats, Floats, Numbers]:
    """Those m parts of rows that tell what the head learns, all of the first part first.

    Returns:
        The prior, then the features, shape (m, columns); what was measured, in the unit of the
        head; its weight; and the number of the row: of two jobs each row is there once for each.
    """
    is_limited = flat(learner.measured(rows) < learner.all_served(rows))
    row = np.tile(np.arange(len(rows)), len(is_limited) // len(rows))[is_limited]
    return (
        flat(rows.heads[learner.head.name])[is_limited],
        learner.possible(rows, learner.measured(rows))[is_limited],
        rows.weight[row],
        row,
    )


def _unknown(given: Floats) -> Floats:
    return np.full(len(given), np.nan)


def _fitted(regressor: Any, rows: Rows, learner: HeadLearner) -> Any:
    """The estimator of a head; one that expects NaN where no row tells of it."""
    features, values, weight, _ = learned_from(learner, rows)
    if not len(values):
        return SimpleNamespace(predict=_unknown)
    return PriorRegressor(regressor, _PRIOR).fit(features, values, weight)


def physical(rows: Rows) -> Fitted:
    """No learning: what the model learns the distance to.

    Rates alone at the shares, less what the supply of bandwidth and power takes (`prior_kept`);
    both powers less one idle power, up to the limit.
    """
    return lambda rows: _served(rows, {n: values[..., 0] for n, values in rows.heads.items()})


LEARNERS: Mapping[str, Learner] = MappingProxyType(
    {
        "extra-trees": lambda rows: fit(extra_trees, rows),
        "linear": lambda rows: fit(
            lambda: pipeline.Pipeline(
                [
                    ("scale", preprocessing.StandardScaler()),
                    ("ridge", linear_model.Ridge(alpha=10.0)),
                ]
            ),
            rows,
        ),
        "physical": physical,
    }
)
"""Every learner by name; the first one is the model."""

_AVERAGED = (
    "sm_active_percent", "sm_occupancy_percent", "fp32_active_percent", "dram_active_percent",
    "memory_busy_percent",
)  # fmt: skip
_SUMMED = ("pcie_tx_mib_per_s", "pcie_rx_mib_per_s")
_GPU_METRICS = len(_AVERAGED) + len(_SUMMED)


def paper_learner(profiles: Mapping[tuple[str, str], Profile]) -> Learner:
    """The method of "Energy-efficient GPU SM allocation" (Han et al.), fitted to the nine splits.

    Extra Trees predict X1 + X2 from all `paper_features`, and the power from the metrics of the
    GPU among them. Half of the predicted X1 + X2 stands for each job, so single speeds mean
    nothing. The trees have scikit-learn's defaults, since the paper names no settings.
    """

    def trees() -> Any:
        return pipeline.Pipeline(
            [
                ("scale", preprocessing.MinMaxScaler()),
                ("trees", ensemble.ExtraTreesRegressor(random_state=SEED)),
            ]
        )

    def learn(rows: Rows) -> Fitted:
        nine = rows.take(rows.kind != UNCAPPED)
        features = paper_features(nine, profiles)
        rates = nine.speed_a * nine.solo_rate_a + nine.speed_b * nine.solo_rate_b
        both = trees().fit(features, rates)
        power = trees().fit(features[:, :_GPU_METRICS], nine.power_w)

        def predict(wanted: Rows) -> Predicted:
            features = paper_features(wanted, profiles)
            whole = [
                _per_job(wanted, profiles, side, lambda profile, _: profile.whole_gpu_rate)
                for side in "ab"
            ]
            speeds = np.column_stack([both.predict(features) / 2 / rate for rate in whole])
            return as_predicted(speeds, power.predict(features[:, :_GPU_METRICS]))

        return predict

    return learn


def paper_features(rows: Rows, profiles: Mapping[tuple[str, str], Profile]) -> Floats:
    """Nine features of both jobs at their shares (sections 3.1 and 3.2 of the paper); (n, 9).

    Percentages are averaged; PCIe rates, rates alone and their slopes over the share are summed.
    """

    def summed(value: Callable[[Profile, Floats], Floats | float]) -> Floats:
        return _per_job(rows, profiles, "a", value) + _per_job(rows, profiles, "b", value)

    columns = [
        summed(lambda profile, shares, name=name: profile.at(shares)[name])
        for name in (*_AVERAGED, *_SUMMED, "rate")
    ]
    means = [column / 2 for column in columns[: len(_AVERAGED)]]
    slopes = summed(
        lambda profile, _: float(np.polyfit(profile.shares, profile.values["rate"], 1)[0])
    )
    return np.column_stack([*means, *columns[len(_AVERAGED) :], slopes])


def _per_job(
    rows: Rows,
    profiles: Mapping[tuple[str, str], Profile],
    side: str,
    value: Callable[[Profile, Floats], Floats | float],
) -> Floats:
    """A value of one job of each row, by its profile and its shares, percent; shape (n,)."""
    jobs, shares = getattr(rows, f"job_{side}"), getattr(rows, f"share_{side}")
    values = np.empty(len(rows))
    for key in set(zip(jobs.tolist(), rows.gpu_model.tolist(), strict=True)):
        its = (jobs == key[0]) & (rows.gpu_model == key[1])
        values[its] = value(profiles[key], shares[its])
    return values


OnFold: TypeAlias = Callable[[str, int, int], None]
"""Takes what is left out, how many folds are done, and how many there are."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HeldOut(Predicted):
    """Predictions of n rows by a learner that was fitted without them.

    Leaving out jobs, a row is tested once for each of its two jobs.

    Attributes:
        left_out: What was left out of the fit, the name of a job or of another group; shape (n,).
        row: Index of the row that is asked for; shape (n,).
        tested: Which rows were not learned from: errors are of these, a split is chosen from all
            of them; shape (n,).
    """

    left_out: Names
    row: Numbers
    tested: Mask

    def by_measurement(self, rows: Rows, which: Mask) -> list[tuple[tuple[str, int], list[int]]]:
        """Places of the answers about rows of a mask, for each (left out, measurement), sorted."""
        places = np.flatnonzero(which[self.row])
        names, numbers = self.left_out[places], rows.measurement[self.row[places]]
        of_answers = zip(names.tolist(), numbers.tolist(), strict=True)
        keys: dict[int, tuple[str, int]] = dict(zip(places.tolist(), of_answers, strict=True))
        return sorted(grouped(keys, keys.__getitem__).items())

    def take(self, which: Mask | Numbers) -> "HeldOut":
        """Some of the answers: by a mask of shape (n,), or by their numbers in any order."""
        return HeldOut(
            left_out=self.left_out[which],
            row=self.row[which],
            tested=self.tested[which],
            speed=self.speed[which],
            heads={name: values[which] for name, values in self.heads.items()},
        )


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One fit: masks of the rows that it learns from, and of those that it is asked for."""

    name: str
    learned: Mask
    tested: Mask


def leave_out(
    rows: Rows,
    learner: Learner,
    draws: Iterable[Draw],
    progress: OnFold | None = None,
    wanted: Rows | None = None,
) -> HeldOut:
    """What a learner expects, fitted once for each draw; `wanted` are other rows to be asked for.

    Fits run side by side, one on each core; how many there are changes no byte.

    Raises:
        InputError: a draw has nothing to learn from.
    """
    draws = [*draws]
    if empty := next((draw for draw in draws if not draw.learned.any()), None):
        raise InputError(
            f"{empty.name} cannot be left out",
            why=f"that leaves none of {len(rows)} rows to learn from",
            fix="measure more pairs: advisor colocate",
        )

    def answered(draw: Draw) -> HeldOut:
        fitted = learner(rows.take(draw.learned))
        if wanted is not None:
            return predicted(fitted, wanted, draw.tested, draw.name)
        return replace(
            predicted(fitted, rows, draw.tested, draw.name), tested=~draw.learned[draw.tested]
        )

    # Threads: growing trees holds no lock of the interpreter, and learners cannot be pickled.
    side_by_side = _JOBLIB.Parallel(n_jobs=-1, prefer="threads", return_as="generator")
    parts: list[HeldOut] = []
    for count, part in enumerate(side_by_side(map(_JOBLIB.delayed(answered), draws)), 1):
        parts.append(part)
        if progress is not None:
            progress(draws[count - 1].name, count, len(draws))
    return joined(parts)


def leave_job_out(
    rows: Rows, learner: Learner, progress: OnFold | None = None, wanted: Rows | None = None
) -> HeldOut:
    """For each job, what a learner that never saw it expects of every row with it.

    `asked` are the rows that are asked for, where they are others than those learned from.

    Raises:
        InputError: without a job there are no rows left to learn from.
    """
    tested = rows if wanted is None else wanted
    draws = [Draw(job, ~rows.of(job), tested.of(job)) for job in tested.jobs]
    return leave_out(rows, learner, draws, progress, wanted)


def _folds(groups: Names) -> list[Draw]:
    """Each group of rows, learned from the other groups; `groups` has that of each row."""
    return [Draw(str(group), groups != group, groups == group) for group in np.unique(groups)]


def predicted(fitted: Fitted, rows: Rows, mask: Mask, name: str) -> HeldOut:
    """What a fitted learner expects of the rows of a mask, which it did not learn from."""
    row = np.flatnonzero(mask)
    prediction = fitted(rows.take(row))
    return HeldOut(
        left_out=np.full(len(row), name),
        row=row,
        tested=np.ones(len(row), dtype=bool),
        speed=prediction.speed,
        heads=prediction.heads,
    )


def joined(parts: Sequence[HeldOut]) -> HeldOut:
    """Predictions one after the other."""
    return HeldOut(
        left_out=np.concatenate([part.left_out for part in parts]),
        row=np.concatenate([part.row for part in parts]),
        tested=np.concatenate([part.tested for part in parts]),
        speed=np.concatenate([part.speed for part in parts]),
        heads={n: np.concatenate([part.heads[n] for part in parts]) for n in parts[0].heads},
    )


# Groups of pairs, each left out once.
_FOLDS = 10

# Part of the rows to learn from where the paper names one ("e.g., 70%", section 5.1).
_PAPER_PART = 0.7

SUBSETS = 10
"""Subsets that the paper deals its rows into, and draws from (section 5.1)."""

PAPER_REPEATS = 10
"""How often the paper repeats the drawing (section 5.1)."""


@dataclass(frozen=True, slots=True)
class _EvaluationProtocol:
    """One way to part rows.

    Attributes:
        meaning: What is left out of training, in words.
        draws: Its fits, in their order.
    """

    meaning: str
    draws: Callable[[Rows], Iterable[Draw]]


def draw_rows(rows: Rows, part: float, repeats: int) -> Iterator[Draw]:
    """The paper's way: so many of ten random subsets of the rows, whatever pair they are of.

    All rows are asked for, since a choice among the splits of a pair needs all of them.
    """
    random = np.random.default_rng(SEED)
    for repeat in range(repeats):
        learned = random.permutation(np.arange(len(rows)) % SUBSETS) < round(part * SUBSETS)
        yield Draw(f"draw {repeat}", learned, np.ones(len(rows), dtype=bool))


def _unseen_pairs(rows: Rows) -> Iterator[Draw]:
    """Each pair, learned from the pairs that have neither of its jobs."""
    for pair in np.unique(rows.pair):
        tested = rows.pair == pair
        first = int(np.flatnonzero(tested)[0])
        job_a, job_b = str(rows.job_a[first]), str(rows.job_b[first])
        yield Draw(f"{job_a} and {job_b}", ~(rows.of(job_a) | rows.of(job_b)), tested)


def _families(rows: Rows) -> Iterator[Draw]:
    """Each family of jobs, learned from the pairs that have none of its jobs."""
    families = np.array([[family_of(job) for job in jobs.tolist()]
                         for jobs in (rows.job_a, rows.job_b)])  # fmt: skip
    for family in np.unique(families):
        tested = (families == family).any(axis=0)
        yield Draw(str(family), ~tested, tested)


def _runs_of_jobs(rows: Rows) -> Iterator[Draw]:
    """Each job in each run, learned without the job, the run, and every card of that run."""
    for job in rows.jobs:
        for run in np.unique(rows.run[rows.of(job)]):
            tested = rows.of(job) & (rows.run == run)
            cards = np.unique(rows.card[rows.run == run])
            yield Draw(job, ~(rows.of(job) | (rows.run == run) | np.isin(rows.card, cards)), tested)


def has_other_runs(rows: Rows) -> bool:
    """Whether each job of each run can be left out with the run and its cards."""
    return all(draw.learned.any() for draw in _runs_of_jobs(rows))


def _tenths_of_pairs(rows: Rows) -> list[Draw]:
    """A tenth of the pairs at a time, each with all of its rows."""
    pairs, place = np.unique(rows.pair, return_inverse=True)
    order = np.random.default_rng(SEED).permutation(len(pairs))
    return _folds(np.array([f"fold {number % _FOLDS}" for number in order])[place])


BY_WORKLOAD = "by workload"
BY_PAIR = "by pair"
RANDOM_ROWS = "random rows"
BOTH_UNSEEN = "both jobs unseen"
BY_GPU_MODEL = "by GPU model"
BY_FAMILY = "by family"
BY_RUN = "by workload, run and card"


PROTOCOLS: Mapping[str, _EvaluationProtocol] = MappingProxyType(
    {
        BY_WORKLOAD: _EvaluationProtocol(
            "every pair of one job, for each job in turn",
            lambda rows: (Draw(job, ~rows.of(job), rows.of(job)) for job in rows.jobs),
        ),
        BOTH_UNSEEN: _EvaluationProtocol(
            "every pair of either of the two jobs, for each pair in turn",
            _unseen_pairs,
        ),
        BY_FAMILY: _EvaluationProtocol(
            "every pair of a family of jobs, such as bert-train, bert-infer and their batches "
            "of two, for each family in turn",
            _families,
        ),
        BY_RUN: _EvaluationProtocol(
            "every pair of one job, and all that was measured in a run or on one of its cards, "
            "for each job and run in turn, where there are several runs",
            _runs_of_jobs,
        ),
        BY_GPU_MODEL: _EvaluationProtocol(
            "every pair on one GPU model, for each in turn, where there are two",
            lambda rows: _folds(rows.gpu_model),
        ),
        BY_PAIR: _EvaluationProtocol(
            "a tenth of the pairs, their jobs seen beside others",
            _tenths_of_pairs,
        ),
        RANDOM_ROWS: _EvaluationProtocol(
            "3 of 10 random splits, whatever their pair, as the paper does it",
            lambda rows: draw_rows(rows, _PAPER_PART, PAPER_REPEATS),
        ),
    }
)
"""Every protocol by name; the first one tells how well an unseen job is served."""


def family_of(job: str) -> str:
    """The family of a job: its name up to the first dash, so `bert` of `bert-train-b2`."""
    stem = job.partition("-")[0]
    # Two names of dense matrix products.
    return "matmul" if stem == "gemm" else stem
