"""Points that are far from what the champion expects while their neighbours are not."""

from collections.abc import Iterator, Sequence

from advisor_training.retrain.refused import Refused, refuse
from advisor_training.retrain.surprises import Surprise

FARTHEST = 3.0
"""Times the distance from the prediction to the bound of its 90 % interval."""

LEAST_NEWS = 3
"""Points of a measurement that can be news: a launch has one, and by itself it may be disturbed."""


def outliers(found: Sequence[Surprise]) -> Iterator[Refused]:
    """Points beyond `FARTHEST` of whose measurement fewer than half are, or fewer than three.

    Where most points of a measurement are that far off, it is not an outlier but news: a job that
    the champion does not understand, which is what retraining is for. Of launches on one card the
    third that is off makes all of them news.
    """
    groups: dict[tuple[str, ...], list[Surprise]] = {}
    for one in found:
        p = one.point
        groups.setdefault((*p.jobs, p.gpu_model, p.gpu_uuid, p.run), []).append(one)
    for group in groups.values():
        far = [one for one in group if one.largest > FARTHEST]
        if 2 * len(far) < len(group) or len(far) < LEAST_NEWS:
            yield from (_refused(one) for one in far)


def _refused(one: Surprise) -> Refused:
    why = f"{one.largest:.1f} times as far from the prediction as its bound"
    return refuse(one.point, "outlier", why)
