"""Cards and drifts as command line, service and client tell them."""

from dataclasses import fields

from advisor.predict.card_factor import CardFactor
from advisor.validity.drift import Drift
from advisor.wire.observed import CardPower, DriftedJob


def card_to_wire(card: CardFactor) -> CardPower:
    """What power was corrected by."""
    return CardPower(
        gpu_uuid=card.gpu_uuid,
        power_factor=card.factor,
        references=card.references,
        observations=card.observations,
    )


def drift_to_wire(drift: Drift) -> DriftedJob:
    """A job that does not do what is expected of it."""
    return DriftedJob(**{field.name: getattr(drift, field.name) for field in fields(DriftedJob)})
