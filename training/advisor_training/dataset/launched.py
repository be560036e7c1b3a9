"""What the launches of a site teach, by the checks of counts that its host keeps."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from advisor.core.observations import Observation
from advisor.core.records import PairPoint, SoloPoint
from advisor.predict.profiles import make_profiles
from advisor_data.files.checked import checked_counts
from advisor_training.dataset.observed import Teaching, teach


def taught_here(seen: Sequence[Observation], alone: Sequence[SoloPoint], home: Path) -> Teaching:
    """What launches teach at the site that keeps its checks of counts in `home`.

    Raises:
        StoreError: a check of counts cannot be read.
    """
    checks = {model: checked_counts(home, model) for model in {o.gpu_model for o in seen}}
    return teach(seen, alone, {model: check for model, check in checks.items() if check})


def profiles_that_lack(
    pairs: Iterable[PairPoint | Observation],
    alone: Iterable[SoloPoint],
    others: Iterable[SoloPoint],
) -> list[SoloPoint]:
    """Those of other points, of the pairs' jobs, that make no profile of their own."""
    wanted = {(job, point.gpu_model) for point in pairs for job in point.jobs}
    lacking = wanted - make_profiles(alone).keys()
    return [point for point in others if (point.job, point.gpu_model) in lacking]
