"""Predictions of rows that a learner was not fitted to, and the ways to part rows for that."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.errors import InputError
from advisor_training.learners import SEED, Fitted, Learner, Predicted
from advisor_training.rows import Names, Rows

OnFold: TypeAlias = Callable[[str, int, int], None]
"""Takes what is left out, how many folds are done, and how many there are."""

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HeldOut(Predicted):
    """Predictions of n rows by a learner that was fitted without them.

    Leaving out jobs, a row is tested once for each of its two jobs.

    Attributes:
        left_out: What was left out of the fit, the name of a job or of another group; shape (n,).
        row: Index of the tested row; shape (n,).
    """

    left_out: Names
    row: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)

    def by_measurement(self, rows: Rows, which: Mask) -> list[tuple[tuple[str, int], list[int]]]:
        """Places of the answers about rows of a mask, for each (left out, measurement), sorted."""
        places = np.flatnonzero(which[self.row])
        names, numbers = self.left_out[places], rows.measurement[self.row[places]]
        found: dict[tuple[str, int], list[int]] = {}
        for *key, place in zip(names.tolist(), numbers.tolist(), places.tolist(), strict=True):
            found.setdefault((key[0], key[1]), []).append(place)
        return sorted(found.items())

    def take(self, which: Mask | npt.NDArray[np.int64]) -> "HeldOut":
        """Some of the answers: by a mask of shape (n,), or by their numbers in any order."""
        return HeldOut(
            left_out=self.left_out[which],
            row=self.row[which],
            speed=self.speed[which],
            heads={name: values[which] for name, values in self.heads.items()},
        )


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One fit: masks of the rows that it learns from, and of those that it is asked for."""

    name: str
    learned: Mask
    asked: Mask


def _leave_out(
    rows: Rows,
    learner: Learner,
    draws: Sequence[Draw],
    progress: OnFold | None = None,
    asked: Rows | None = None,
) -> HeldOut:
    """What a learner expects, fitted once for each draw; `asked` are other rows to be asked for.

    Raises:
        InputError: a draw has nothing to learn from.
    """
    parts: list[HeldOut] = []
    for count, draw in enumerate(draws, 1):
        if not draw.learned.any():
            raise InputError(
                f"{draw.name} cannot be left out",
                why=f"that leaves none of {len(rows)} rows to learn from",
                fix="measure more pairs: advisor colocate",
            )
        fitted = learner(rows.take(draw.learned))
        parts.append(predicted(fitted, rows if asked is None else asked, draw.asked, draw.name))
        if progress is not None:
            progress(draw.name, count, len(draws))
    return joined(parts)


def leave_one_job_out(
    rows: Rows, learner: Learner, progress: OnFold | None = None, asked: Rows | None = None
) -> HeldOut:
    """For each job, what a learner that never saw it expects of every row with it.

    `asked` are the rows that are asked for, where they are others than those learned from.

    Raises:
        InputError: without a job there are no rows left to learn from.
    """
    tested = rows if asked is None else asked
    draws = [Draw(job, ~rows.of(job), tested.of(job)) for job in tested.jobs]
    return _leave_out(rows, learner, draws, progress, asked)


def folds(groups: npt.NDArray[Any]) -> list[Draw]:
    """Each group of rows, learned from the other groups; `groups` has that of each row."""
    return [Draw(str(group), groups != group, groups == group) for group in np.unique(groups)]


def predicted(fitted: Fitted, rows: Rows, mask: Mask, name: str) -> HeldOut:
    """What a fitted learner expects of the rows of a mask, which it did not learn from."""
    tested = np.flatnonzero(mask)
    found = fitted(rows.take(tested))
    return HeldOut(
        left_out=np.full(len(tested), name), row=tested, speed=found.speed, heads=found.heads
    )


def joined(parts: Sequence[HeldOut]) -> HeldOut:
    """Predictions one after the other."""
    return HeldOut(
        left_out=np.concatenate([part.left_out for part in parts]),
        row=np.concatenate([part.row for part in parts]),
        speed=np.concatenate([part.speed for part in parts]),
        heads={n: np.concatenate([part.heads[n] for part in parts]) for n in parts[0].heads},
    )


FOLDS = 10
"""Groups of pairs, each left out once."""

PAPER_PART = 0.7
"""Part of the rows to learn from where the paper names one ("e.g., 70%", section 5.1)."""

SUBSETS = 10
"""Subsets that the paper deals its rows into, and draws from (section 5.1)."""

PAPER_REPEATS = 10
"""How often the paper repeats the drawing (section 5.1)."""

AfterFit: TypeAlias = Callable[[], None]
"""Called after each fit."""


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What a learner expects of rows under a protocol.

    Attributes:
        held_out: The predictions; a split is chosen from all of them.
        tested: Which of them are of rows that were not learned from: errors are of these; (n,).
    """

    held_out: HeldOut
    tested: Mask


@dataclass(frozen=True, slots=True)
class _EvaluationProtocol:
    """One way to part rows.

    Attributes:
        meaning: What is left out of training, in words.
    """

    name: str
    meaning: str
    draws: Callable[[Rows], Iterable[Draw]]

    def fits(self, rows: Rows) -> int:
        """How many fits it takes."""
        return sum(1 for _ in self.draws(rows))

    def answer(self, rows: Rows, learner: Learner, tick: AfterFit) -> Answers:
        """What a learner expects of rows.

        Raises:
            InputError: a draw has nothing to learn from.
        """
        return answer_draws(rows, learner, self.draws(rows), tick)


def answer_draws(rows: Rows, learner: Learner, draws: Iterable[Draw], tick: AfterFit) -> Answers:
    """What a learner expects, fitted once for each draw.

    Raises:
        InputError: a draw has nothing to learn from.
    """
    drawn = list(draws)
    held_out = _leave_out(rows, learner, drawn, lambda name, done, total: tick())
    return Answers(held_out, np.concatenate([~draw.learned[draw.asked] for draw in drawn]))


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
        asked = rows.pair == pair
        first = int(np.flatnonzero(asked)[0])
        job_a, job_b = str(rows.job_a[first]), str(rows.job_b[first])
        yield Draw(f"{job_a} and {job_b}", ~(rows.of(job_a) | rows.of(job_b)), asked)


def _families(rows: Rows) -> Iterator[Draw]:
    """Each family of jobs, learned from the pairs that have none of its jobs."""
    families = np.array([[family_of(job) for job in jobs.tolist()]
                         for jobs in (rows.job_a, rows.job_b)])  # fmt: skip
    for family in np.unique(families):
        asked = (families == family).any(axis=0)
        yield Draw(str(family), ~asked, asked)


def _runs_of_jobs(rows: Rows) -> Iterator[Draw]:
    """Each job in each run, learned without the job, the run, and every card of that run."""
    for job in rows.jobs:
        for run in np.unique(rows.run[rows.of(job)]):
            asked = rows.of(job) & (rows.run == run)
            cards = np.unique(rows.card[rows.run == run])
            learned = ~(rows.of(job) | (rows.run == run) | np.isin(rows.card, cards))
            yield Draw(job, learned, asked)


def has_other_runs(rows: Rows) -> bool:
    """Whether each job of each run can be left out with the run and its cards."""
    return all(draw.learned.any() for draw in _runs_of_jobs(rows))


def _tenths_of_pairs(rows: Rows) -> list[Draw]:
    """A tenth of the pairs at a time, each with all of its rows."""
    pairs, place = np.unique(rows.pair, return_inverse=True)
    order = np.random.default_rng(SEED).permutation(len(pairs))
    return folds(np.array([f"fold {number % FOLDS}" for number in order])[place])


BY_WORKLOAD = "by workload"
BY_PAIR = "by pair"
RANDOM_ROWS = "random rows"
BOTH_UNSEEN = "both jobs unseen"
BY_GPU_MODEL = "by GPU model"
BY_FAMILY = "by family"
BY_RUN = "by workload, run and card"


PROTOCOLS: Mapping[str, _EvaluationProtocol] = MappingProxyType(
    {
        protocol.name: protocol
        for protocol in (
            _EvaluationProtocol(
                BY_WORKLOAD,
                "every pair of one job, for each job in turn",
                lambda rows: (Draw(job, ~rows.of(job), rows.of(job)) for job in rows.jobs),
            ),
            _EvaluationProtocol(
                BOTH_UNSEEN,
                "every pair of either of the two jobs, for each pair in turn",
                _unseen_pairs,
            ),
            _EvaluationProtocol(
                BY_FAMILY,
                "every pair of a family of jobs, such as bert-train, bert-infer and their batches "
                "of two, for each family in turn",
                _families,
            ),
            _EvaluationProtocol(
                BY_RUN,
                "every pair of one job, and all that was measured in a run or on one of its cards, "
                "for each job and run in turn, where there are several runs",
                _runs_of_jobs,
            ),
            _EvaluationProtocol(
                BY_GPU_MODEL,
                "every pair on one GPU model, for each in turn, where there are two",
                lambda rows: folds(rows.gpu_model),
            ),
            _EvaluationProtocol(
                BY_PAIR,
                "a tenth of the pairs, their jobs seen beside others",
                _tenths_of_pairs,
            ),
            _EvaluationProtocol(
                RANDOM_ROWS,
                "3 of 10 random splits, whatever their pair, as the paper does it",
                lambda rows: draw_rows(rows, PAPER_PART, PAPER_REPEATS),
            ),
        )
    }
)
"""Every protocol by name; the first one tells how well an unseen job is served."""


def family_of(job: str) -> str:
    """The family of a job: its name up to the first dash, so `bert` of `bert-train-b2`."""
    stem = job.partition("-")[0]
    # Two names of dense matrix products.
    return "matmul" if stem == "gemm" else stem
