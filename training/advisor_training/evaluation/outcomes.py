"""What many choices come to: energy and time for the same work, and parts of the oracle."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from advisor_training.dataset.noise import quantile
from advisor_training.dataset.pairs import BASELINES
from advisor_training.evaluation.choices import Choice
from advisor_training.learn.bootstrap import BootstrapEstimate, Resamples


@dataclass(frozen=True, slots=True)
class Over:
    """Gain over one baseline in percent, of this many choices.

    The mean of ratios hangs on few pairs in which the baseline starves a job; the median does not.
    """

    choices: int
    mean_percent: float
    median_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceFigures:
    """Many choices in short, in percent where nothing else is said, with 95 % intervals by job.

    Attributes:
        pairs: Of jobs, whatever GPU model; `jobs` that are in them.
        saved: Energy saved for the same work against one after the other, mean;
            `saved_median` likewise.
        loses: Choices that cost more energy than one after the other.
        shared: Choices that are not one after the other.
        missed: Of these, those in which a job is below the minimum speed that was asked for; None
            where none was asked for or nothing is shared.
        fraction: Value for each one of the oracle.
        p10_percent: A tenth of the choices reaches less of the oracle.
        worst_choice: What was chosen there, and what the oracle is.
        over: Gain over each baseline; without those that were never measured.
    """

    choices: int
    pairs: int
    jobs: int
    saved: BootstrapEstimate
    saved_median: BootstrapEstimate
    loses: BootstrapEstimate
    stp: BootstrapEstimate
    slower: BootstrapEstimate
    shared: BootstrapEstimate
    missed: BootstrapEstimate | None
    fraction: BootstrapEstimate
    p10_percent: float
    worst_percent: float
    worst_pair: tuple[str, str]
    worst_choice: tuple[str, str]
    over: Mapping[str, Over]

    @property
    def mean_percent(self) -> float:
        """Mean fraction of the oracle."""
        return self.fraction.value


def figures_of(choices: Sequence[Choice]) -> ChoiceFigures | None:
    """The choices in short; None of none."""
    if not choices:
        return None
    drawn = Resamples([c.jobs for c in choices])

    def mean(value: Callable[[Choice], float]) -> BootstrapEstimate:
        return drawn.mean([100 * value(choice) for choice in choices])

    worst = min(choices, key=lambda choice: choice.fraction)
    return ChoiceFigures(
        choices=len(choices),
        pairs=len({c.jobs for c in choices}),
        jobs=len({job for c in choices for job in c.jobs}),
        saved=mean(lambda c: c.energy_saved),
        saved_median=drawn.median([100 * c.energy_saved for c in choices]),
        loses=mean(lambda c: c.energy_saved < 0),
        stp=drawn.mean([c.stp for c in choices]),
        slower=mean(lambda c: c.slower_speed),
        shared=mean(lambda c: c.chosen != "exclusive"),
        missed=_missed(choices),
        fraction=mean(lambda c: c.fraction),
        p10_percent=100 * quantile([choice.fraction for choice in choices], 0.1),
        worst_percent=100 * worst.fraction,
        worst_pair=worst.jobs,
        worst_choice=(worst.chosen, worst.oracle),
        over=_gains(choices),
    )


def _missed(choices: Sequence[Choice]) -> BootstrapEstimate | None:
    asked = [c for c in choices if c.missed is not None]
    if not asked:
        return None
    drawn = Resamples([c.jobs for c in asked])
    return drawn.mean([100.0 if c.missed else 0.0 for c in asked])


def _gains(choices: Sequence[Choice]) -> dict[str, Over]:
    over = {name: [c.over[name] for c in choices if name in c.over] for name in BASELINES}
    return {name: _over(ratios) for name, ratios in over.items() if ratios}


def _over(ratios: Sequence[float]) -> Over:
    means = statistics.mean(ratios), statistics.median(ratios)
    return Over(len(ratios), 100 * (means[0] - 1), 100 * (means[1] - 1))
