"""C6 of CompPow: do unlike signatures say which jobs gain from sharing a GPU?

    .venv/bin/python docs/measurements/power/complementary.py

Takes about a minute on one core. From the bundled pairs that were measured on a quiet host. The
gain of a pair is the best measured objective value (energy of the same work one after the other,
for each one that it takes shared) of its measured splits. The present score, by which `advisor
place` chooses, is the best predicted value of the same splits, by a model that has seen one of the
two jobs in no pair, the mean over both. The signature of a job is what its power above the floor
goes to, alone on the whole GPU; two are unlike by 1 less the cosine between them.

Both together: least squares of the gain over present score and unlikeness, fitted to all pairs that
share no job with the pair. Confirmed: its rank correlation (Spearman) with the gain is higher than
the present score's by 0.05 or more. Refuted: it is not higher. Nothing was chosen by these figures.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, SplitResult
from advisor.core.records import SoloPoint
from advisor.predict.profiles import Floats
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.files.dataset import select
from advisor_power.components.activity import activity_of
from advisor_power.components.parts import components
from advisor_power.components.weights import ComponentWeights, fit_components, trusted
from advisor_training.dataset.rows import Rows
from advisor_training.evaluation.data import make_data
from advisor_training.learn.held_out import HeldOut, leave_one_job_out
from advisor_training.learn.learners import extra_trees, fit
from advisor_training.learn.scoring import measured_result

ADDED = 0.05

Signatures = Mapping[tuple[str, str], Floats]


@dataclass(frozen=True, slots=True)
class Scored:
    """A pair on a GPU model: measured gain, present score and how unlike the signatures are."""

    gpu_model: str
    jobs: frozenset[str]
    gain: float
    present: float
    unlike: float


def main() -> None:
    """Print the correlations and the verdict."""
    data = make_data(
        select(bundled_pair_points()).points, bundled_solo_points(), bundled_reference_points()
    )
    held_out = leave_one_job_out(data.rows, lambda rows: fit(extra_trees, rows))
    pairs = list(scored(data.rows, held_out, signatures()))
    both = [expected(p, pairs) for p in pairs]
    judge("all", pairs, both)
    for model in sorted({p.gpu_model for p in pairs}):
        mine = [n for n, p in enumerate(pairs) if p.gpu_model == model]
        judge(model, [pairs[n] for n in mine], [both[n] for n in mine])


def judge(on: str, pairs: Sequence[Scored], both: Sequence[float]) -> None:
    """Rank correlations with the measured gain, and the verdict."""
    gain = np.array([p.gain for p in pairs])
    present = rank_correlation(np.array([p.present for p in pairs]), gain)
    alone = rank_correlation(np.array([p.unlike for p in pairs]), gain)
    together = rank_correlation(np.array(both), gain)
    print(f"{on}: {len(pairs)} pairs; rank correlation with the measured gain, jobs left out:")
    print(f"  present score {present:.3f}, unlikeness {alone:.3f}, both {together:.3f}")
    added = together - present
    verdict = "confirmed" if added >= ADDED else "refuted" if added <= 0 else "open"
    print(f"C6, {on}, signatures add {ADDED:g} to the present score: {added:+.3f}: {verdict}")


def signatures() -> Signatures:
    """Parts of the power above the floor, of length 1, by GPU model and job."""
    solos = trusted(bundled_solo_points())
    found: dict[tuple[str, str], Floats] = {}
    for model in sorted({p.gpu_model for p in solos}):
        mine = [p for p in solos if p.gpu_model == model]
        weights = fit_components(mine)
        for p in mine:
            if p.share_percent == 100 and (own := signature(weights, p)) is not None:
                found[model, p.job] = own
    return found


def signature(weights: ComponentWeights, point: SoloPoint) -> Floats | None:
    """Parts of the power above the floor, of length 1; None: a reading is missing.

    The memory is by weights even where its sensor was read: only what is known alike of all jobs
    can be compared.
    """
    activity = activity_of(point)
    if activity is None or not point.power_w:
        return None
    parts = components(weights, activity, point.power_w).parts_w
    watts = np.array([part.value for name, part in parts.items() if name != "floor"])
    return watts / np.linalg.norm(watts)


def unlikeness(one: Floats, other: Floats) -> float:
    """1 less the cosine between two signatures: 0 alike, 1 nothing in common."""
    return float(np.clip(1 - one @ other, 0.0, 1.0))


def scored(rows: Rows, held_out: HeldOut, known: Signatures) -> Iterator[Scored]:
    """Every pair of which both jobs have a signature; means over its measurements."""
    value = OBJECTIVES[DEFAULT_OBJECTIVE].value
    measured: dict[int, list[float]] = {}
    said: dict[tuple[int, str], list[float]] = {}
    for test, row in enumerate(held_out.row.tolist()):
        number = int(rows.measurement[row])
        measured.setdefault(number, []).append(value(measured_result(rows, row)))
        left_out = str(held_out.left_out[test])
        said.setdefault((number, left_out), []).append(
            value(predicted_result(rows, held_out, test))
        )
    groups: dict[tuple[str, str, str], list[int]] = {}
    for number in measured:
        row = int(np.flatnonzero(rows.measurement == number)[0])
        key = (str(rows.gpu_model[row]), str(rows.job_a[row]), str(rows.job_b[row]))
        groups.setdefault(key, []).append(number)
    for (model, a, b), numbers in sorted(groups.items()):
        if a != b and (model, a) in known and (model, b) in known:
            scores = [max(found) for (n, _), found in said.items() if n in numbers]
            yield Scored(
                model,
                frozenset((a, b)),
                float(np.mean([max(measured[n]) for n in numbers])),
                float(np.mean(scores)),
                unlikeness(known[model, a], known[model, b]),
            )


def predicted_result(rows: Rows, held_out: HeldOut, test: int) -> SplitResult:
    """What was expected of a row, beside what its jobs do alone."""
    measured = measured_result(rows, int(held_out.row[test]))
    parts = [
        dataclasses.replace(part, rate=float(speed) * part.solo_rate)
        for part, speed in zip(measured.parts, held_out.speed[test], strict=True)
    ]
    return SplitResult(tuple(parts), float(held_out.power_w[test]))


def expected(pair: Scored, pairs: list[Scored]) -> float:
    """The gain by present score and unlikeness, as pairs of other jobs have it."""
    others = [p for p in pairs if not p.jobs & pair.jobs]
    seen = np.array([[1.0, p.present, p.unlike] for p in others])
    slopes = np.linalg.lstsq(seen, np.array([p.gain for p in others]), rcond=None)[0]
    return float(slopes @ [1.0, pair.present, pair.unlike])


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's."""
    return float(spearmanr(a, b).statistic)


if __name__ == "__main__":
    main()
