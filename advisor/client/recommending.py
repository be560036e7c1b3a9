"""Which split, and who shares with whom: the calls that work something out and change nothing."""

from collections.abc import Sequence
from typing import Any

from advisor.client.exchange import Ask, Flow, exchange
from advisor.formats.wire import to_plain
from advisor.wire.input_power import InputAsked, InputPowerRequest, InputPredictions
from advisor.wire.placement import Placement
from advisor.wire.recommendation import BatchAnswer, BatchItem, Recommendation
from advisor.wire.requests import (
    AdviceRequest,
    BatchRequest,
    PlacementRequest,
    RecommendationRequest,
)

_PREDICTING_S = 30.0
"""What predicting all pairs of a large placement may take on top of the search."""

_FILLING_S = 10.0
"""What filling the largest matrices and counting their bits may take."""


def recommend(asked: RecommendationRequest) -> Flow[Recommendation]:
    """Which split of one GPU does the most for two jobs."""
    ask = _ask("/v1/recommendations", asked, patience_s=filling_s(asked))
    return exchange(ask, Recommendation)


def recommend_batch(asked: Sequence[RecommendationRequest]) -> Flow[tuple[BatchItem, ...]]:
    """Many recommendations at once, in order; an error that one of them has is in its place."""
    body = BatchRequest(requests=tuple(map(to_plain, asked)))
    found = yield from exchange(_ask("/v1/recommendations/batch", body), BatchAnswer)
    return found.answers


def place(asked: PlacementRequest) -> Flow[Placement]:
    """Who shares a GPU with whom in a queue of jobs, at what split, when and where."""
    patience_s = asked.time_limit_s + _PREDICTING_S + filling_s(asked)
    return exchange(_ask("/v1/placements", asked, patience_s=patience_s), Placement)


def input_power(asked: Sequence[InputAsked]) -> Flow[InputPredictions]:
    """What matrix products are expected to draw by their data, in order.

    Operands as text are filled by the service, which takes seconds where they are large.
    """
    body = InputPowerRequest(inputs=tuple(asked))
    ask = _ask("/v1/power/input", body, patience_s=_FILLING_S * len(body.inputs))
    return exchange(ask, InputPredictions)


def filling_s(asked: AdviceRequest) -> float:
    """What filling the data that are told may take."""
    return _FILLING_S * len(set(asked.data_by_job.values()))


def _ask(path: str, body: Any, *, patience_s: float = 0.0) -> Ask:
    return Ask(method="POST", path=path, body=body, patience_s=patience_s)
