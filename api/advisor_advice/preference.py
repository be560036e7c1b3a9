"""Which pairs of a queue are preferred where they look the same, and what is known of that."""

from dataclasses import dataclass
from pathlib import Path

from advisor.core.records import SoloPoint
from advisor.predict.profiles import Floats
from advisor.settings import Settings
from advisor_advice.power.known import known_power_of
from advisor_advice.power.signatures import signatures_of, unlike_pairs
from advisor_advice.site.known_profiles import ProfileSet
from advisor_data.files.files import read_points

NO_GAIN_MEASURED = (
    "pairs of unlike jobs count as up to 1 % cheaper, as asked for; on 98 measured pairs this said "
    "nothing of the gain that the predictions do not say (docs/component-power.md, C6)"
)
"""What docs/measurements/power/complementary.py found."""


@dataclass(frozen=True, slots=True, eq=False)
class Preference:
    """What is preferred.

    Attributes:
        unlike: As `Problem.unlike`, in the order of the profiles; None: nothing is preferred.
        warnings: What must be said of it.
    """

    unlike: Floats | None = None
    warnings: tuple[str, ...] = ()


NONE = Preference()


def complementary(found: ProfileSet, settings: Settings, file: Path | None) -> Preference:
    """Pairs of jobs with unlike signatures, by weights that are fitted now.

    Args:
        found: Profiles of the jobs.
        settings: Say where points are kept.
        file: Points beside those of the store and the bundle.

    Raises:
        InputError: too few jobs were measured on the GPU model.
        StoreError: points cannot be read.
    """
    more = [p for p in read_points(file) if isinstance(p, SoloPoint)] if file else []
    signatures = signatures_of(known_power_of(found, settings, more))
    names = [p.job for p in found.profiles]
    told = [NO_GAIN_MEASURED]
    if missing := [name for name in names if name not in signatures]:
        told.append(f"not preferred, no window with all counters: {', '.join(missing)}")
    return Preference(unlike=unlike_pairs(names, signatures), warnings=tuple(told))
