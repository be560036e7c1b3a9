"""Which split, and who shares with whom: the calls that work something out and change nothing."""

from collections.abc import Sequence
from typing import Any, TypeVar

from advisor.client.exchange import Ask, Exchange
from advisor.formats.wire import to_plain
from advisor.wire.input_power import InputAsked, InputPowerRequest, InputPredictions
from advisor.wire.placement import Placement
from advisor.wire.recommendation import BatchAnswer, BatchItem, Recommendation
from advisor.wire.requests import (
    BatchRequest,
    PlacementRequest,
    RecommendationRequest,
)

T = TypeVar("T")

_PREDICTING_S = 30.0
"""What predicting all pairs of a large placement may take on top of the search."""

_FILLING_S = 10.0
"""What filling the largest matrices and counting their bits may take."""


class Recommending(Exchange):
    """Calls that work something out."""

    def recommend(self, asked: RecommendationRequest) -> Recommendation:
        """Which split of one GPU does the most for two jobs."""
        return self._post("/v1/recommendations", asked, Recommendation)

    def recommend_batch(self, asked: Sequence[RecommendationRequest]) -> tuple[BatchItem, ...]:
        """Many recommendations at once, in order; an error that one of them has is in its place."""
        body = BatchRequest(requests=tuple(map(to_plain, asked)))
        return self._post("/v1/recommendations/batch", body, BatchAnswer).answers

    def place(self, asked: PlacementRequest) -> Placement:
        """Who shares a GPU with whom in a queue of jobs, at what split, when and where."""
        patience_s = asked.time_limit_s + _PREDICTING_S
        return self._post("/v1/placements", asked, Placement, patience_s)

    def input_power(self, asked: Sequence[InputAsked]) -> InputPredictions:
        """What matrix products are expected to draw by their data, in order.

        Operands as text are filled by the service, which takes seconds where they are large.
        """
        body = InputPowerRequest(inputs=tuple(asked))
        patience_s = _FILLING_S * len(body.inputs)
        return self._post("/v1/power/input", body, InputPredictions, patience_s)

    def _post(self, path: str, body: Any, kind: type[T], patience_s: float = 0.0) -> T:
        ask = Ask(method="POST", path=path, body=body, patience_s=patience_s)
        return self._ask(ask, kind)
