"""What launches of this host say of model, cards and checks."""

from advisor.settings import Settings
from advisor.wire.observed import DriftReport
from advisor_advice.site.conditions import checks_of, experience_of, stored_factor
from advisor_advice.site.to_wire import card_to_wire, drift_to_wire
from advisor_data import open_store
from advisor_data.store.store import is_begun
from advisor_models.registry import Registry


def drift_report(settings: Settings) -> DriftReport:
    """The newest observations against the model in use.

    Raises:
        ModelError: there is no model, or it is damaged.
        StoreError: the store, or what a check found, cannot be read.
    """
    if not is_begun(settings.database_url, settings.home):
        return DriftReport(observations=0, drifts=(), cards=(), outdated_checks=())
    predictor = Registry(settings.home / "models").open_champion()
    with open_store(settings.database_url, settings.home) as store:
        found = experience_of(store, predictor, checks_of(settings), settings.home)
        cards = sorted(
            {(one.observation.gpu_model, one.observation.gpu_uuid) for one in found.expected}
        )
        factors = [stored_factor(model, card, found.expected, store) for model, card in cards]
    return DriftReport(
        observations=len(found.expected),
        drifts=tuple(map(drift_to_wire, found.drifts)),
        cards=tuple(card_to_wire(factor) for factor in factors if factor),
        outdated_checks=tuple(found.outdated.values()),
    )
