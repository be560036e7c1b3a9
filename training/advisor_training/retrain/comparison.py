"""Where the challenger is better or worse than the champion, beyond noise, and what follows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.wording import listed
from advisor_models.manifest import NEGLIGIBLE_PERCENT
from advisor_training.dataset.rows import Rows
from advisor_training.dataset.solo import Classes
from advisor_training.learn.bootstrap import BootstrapEstimate, Resamples
from advisor_training.learn.held_out import Mask
from advisor_training.retrain.rivals import Questions, Scores

FigureName: TypeAlias = Literal["error", "regret"]
FIGURES: tuple[FigureName, ...] = ("error", "regret")

LEAST_JOBS = 4
"""Of a group that decides: drawing again from three jobs hardly ever shows another sign."""

LEAST_PAIRS = 6
"""The same: five pairs that do not hang together have one sign in one case of 16 by chance, which
is above the 5 % that the interval leaves out, and six in one of 32."""

ALL, NEWEST = "all", "newest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One figure of both rivals over one group of tests; less is better.

    Attributes:
        group: "all", "newest", "GPU model NVIDIA H200", "job class HL".
        jobs: How many jobs were left out in turn.
        champion_percent: Mean over the tests.
        gain_percent: Champion less challenger, paired, in points.
        low_percent: Of its 95 % interval over jobs; `high_percent` is its other end.
        decides: Whether there are enough jobs to tell.
    """

    group: str
    figure: FigureName
    tests: int
    jobs: int
    champion_percent: float
    challenger_percent: float
    gain_percent: float
    low_percent: float
    high_percent: float
    decides: bool

    @property
    def is_better(self) -> bool:
        """Beyond noise, and a set of tests in which a gain counts."""
        return self.decides and self.group in (ALL, NEWEST) and self.low_percent > 0

    @property
    def is_worse(self) -> bool:
        """Beyond noise, and by more than a measured rate repeats."""
        return self.decides and self.high_percent < 0 and self.gain_percent < -NEGLIGIBLE_PERCENT


def compare(
    rivals: tuple[Scores, Scores],
    tests: Questions,
    groups: Mapping[str, Mask],
) -> tuple[ComparedFigure, ...]:
    """Both figures of champion and challenger over every group, a mask of tests, that has some."""
    return tuple(
        found
        for group, mask in groups.items()
        for figure in FIGURES
        if (found := _compared(rivals, tests, group, figure, mask)) is not None
    )


def groups_of(rows: Rows, tests: Questions, newest: Mask, classes: Classes) -> dict[str, Mask]:
    """All tests, the newest, those of each GPU model, and those of each class of left-out jobs."""
    row = np.array(tests.row)
    models = rows.gpu_model[row]
    keys = zip(models.tolist(), tests.left_out.tolist(), strict=True)
    codes = np.array([classes.get(key, "") for key in keys])
    return {
        ALL: np.ones(len(row), dtype=bool),
        NEWEST: newest[row],
        **{f"GPU model {name}": models == name for name in np.unique(models)},
        **{f"job class {code}": codes == code for code in np.unique(codes) if code},
    }


def _compared(
    rivals: tuple[Scores, Scores], tests: Questions, group: str, figure: FigureName, mask: Mask
) -> ComparedFigure | None:
    champion, challenger = (_values(scores, figure) for scores in rivals)
    which = np.flatnonzero(mask & ~np.isnan(champion) & ~np.isnan(challenger))
    if not len(which):
        return None
    pairs = [tests.pairs[place] for place in which]
    jobs = len(set(tests.left_out[which].tolist()))
    gain = _percent(Resamples(pairs).mean((champion - challenger)[which]))
    return ComparedFigure(
        group=group,
        figure=figure,
        tests=len(which),
        jobs=jobs,
        champion_percent=round(100 * float(champion[which].mean()), 3),
        challenger_percent=round(100 * float(challenger[which].mean()), 3),
        gain_percent=gain.value,
        low_percent=gain.low,
        high_percent=gain.high,
        decides=jobs >= LEAST_JOBS and len(set(pairs)) >= LEAST_PAIRS,
    )


def _values(scores: Scores, figure: FigureName) -> npt.NDArray[np.float64]:
    return scores.error if figure == "error" else scores.regret


def _percent(part: BootstrapEstimate) -> BootstrapEstimate:
    return BootstrapEstimate(*(round(100 * v, 3) for v in (part.value, part.low, part.high)))


@dataclass(frozen=True, slots=True)
class PromotionDecision:
    """The verdict, and its reason in words."""

    promote: bool
    why: str


def decide(compared: Sequence[ComparedFigure], news: Sequence[str]) -> PromotionDecision:
    """Promote what is worse nowhere.

    What a model learns of a job or a pair cannot show in tests that leave the job out, so a
    challenger need not be better in these: it has learned from newer points. `news` are jobs and
    GPU models that only the challenger has seen.
    """
    if worse := [one for one in compared if one.is_worse]:
        return PromotionDecision(False, f"worse for {listed(map(_words, worse))}")
    if better := [one for one in compared if one.is_better]:
        return PromotionDecision(True, f"better for {listed(map(_words, better))}")
    if news:
        return PromotionDecision(True, f"not worse, and has seen {listed(news)}")
    return PromotionDecision(True, "not worse, and has learned from newer points")


def _words(one: ComparedFigure) -> str:
    gain = f"{abs(one.gain_percent):.2f} [{one.low_percent:.2f} {one.high_percent:.2f}] points"
    return f"{one.group} ({one.figure} by {gain})"
