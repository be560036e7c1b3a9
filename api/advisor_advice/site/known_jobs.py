"""All that is known of jobs on a GPU model before anybody says what is wanted of them."""

from dataclasses import dataclass

from advisor.settings import Settings
from advisor.validity.safe_counts import CheckedCounts
from advisor_advice.site.conditions import NOTHING, Conditions, read_conditions
from advisor_advice.site.known_profiles import ProfileSet, checked_on
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import Registry


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KnownJobs:
    """What an answer about jobs is made of.

    Attributes:
        found: Their profiles.
        model: What predicts; sets take from it what stands in for idle power.
        checked: What a check of the GPU model found; None: there was none.
        conditions: What was seen of the card, of drifting jobs, and of these jobs together.
    """

    found: ProfileSet
    model: ModelPredictor
    checked: CheckedCounts | None = None
    conditions: Conditions = NOTHING


def read_known(
    found: ProfileSet, settings: Settings, gpu_uuid: str | None = None, *, any_of: bool = False
) -> KnownJobs:
    """What this host knows, by the model in use; `any_of` is as in `measured_windows`.

    Raises:
        ModelError: there is no model, or it is damaged.
        StoreError: observations, or what the check of this GPU model found, cannot be read.
    """
    model = Registry(settings.home / "models").open_champion()
    return KnownJobs(
        found=found,
        model=model,
        checked=checked_on(found, settings),
        conditions=read_conditions(settings, model, found.profiles, gpu_uuid, any_of=any_of),
    )
