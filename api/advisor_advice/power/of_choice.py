"""What the power of the recommended way goes to, as a part of the answer."""

import dataclasses
from collections.abc import Callable

from advisor.decide.recommend import Recommendation
from advisor.errors import InputError
from advisor.wire import recommendation as wire
from advisor_advice.power.known import KnownPower
from advisor_advice.power.of_pair import components_at


def with_components(
    told: wire.Recommendation, given: Recommendation, known: Callable[[], KnownPower]
) -> wire.Recommendation:
    """The answer with the parts of the power at its choice, or why there are none.

    Args:
        told: The answer.
        given: What it tells.
        known: Finds what is known of both jobs' power; it may raise an `InputError`.

    Raises:
        StoreError: the store cannot be read.
    """
    try:
        parts = components_at(known(), given.choice.prediction)
    except InputError as error:
        return dataclasses.replace(told, components_unknown=str(error))
    return dataclasses.replace(told, components=parts)
