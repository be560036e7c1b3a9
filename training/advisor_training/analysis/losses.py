"""Where sharing loses: pairs that do more one after the other, by more than the noise."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from advisor.core.objectives import Objective
from advisor_training.dataset.noise import worse
from advisor_training.dataset.pairs import MeasuredPair, Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A pair that is better off one after the other.

    Attributes:
        best_shared: The best of all splits under limits and of `uncapped`.
        loss_percent: How much less it is worth than `exclusive`.
        solo_source: Where the solo points of `exclusive` come from.
    """

    jobs: tuple[str, str]
    gpu_uuid: str
    run: str
    best_shared: str
    loss_percent: float
    solo_source: str


def losses(pairs: Iterable[MeasuredPair], objective: Objective, tie: float) -> tuple[Loss, ...]:
    """The pairs whose best shared option is worth less than `exclusive`, the worst first.

    Args:
        pairs: What is looked through.
        objective: What it is worth by.
        tie: As for `advisor.core.objectives.best`; a smaller loss is none.
    """
    found = (loss for pair in pairs if (loss := _loss(pair.main, objective, tie)))
    return tuple(sorted(found, key=lambda loss: (-loss.loss_percent, loss.jobs)))


def _loss(measurement: Measurement, objective: Objective, tie: float) -> Loss | None:
    value, name = max(_shared_options(measurement, objective))
    alone = objective.value(measurement.exclusive)
    if not worse(value, alone, tie):
        return None
    return Loss(
        jobs=measurement.jobs,
        gpu_uuid=measurement.gpu_uuid,
        run=measurement.run,
        best_shared=name,
        loss_percent=100 * (1 - value / alone),
        solo_source=measurement.solo_source,
    )


def _shared_options(measurement: Measurement, objective: Objective) -> Iterator[tuple[float, str]]:
    for kind, results in measurement.splits.items():
        for split, result in results.items():
            if kind != "time-sliced":
                yield objective.value(result), str(split)
