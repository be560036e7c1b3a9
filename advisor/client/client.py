"""The client: one class of all that the service can be asked."""

from collections.abc import Sequence
from typing import Any, TypeVar

from advisor.client.errors import ApiError, TooSlowError, UnreachableError
from advisor.client.exchange import Ask, quoted
from advisor.client.launching import Launching
from advisor.client.recorded import Recorded
from advisor.formats.wire import to_plain
from advisor.wire.answers import BatchAnswer, BatchItem, Gains, Recommendation, Replicas, SetAdvice
from advisor.wire.lists import AuditEntry, AuditLog, Champion, ModelDetails, ModelList
from advisor.wire.placement import Placement, SetPlacement
from advisor.wire.power import InputAsked, InputPowerRequest, InputPredictions
from advisor.wire.requests import (
    BatchRequest,
    GainsRequest,
    PlacementRequest,
    RecommendationRequest,
    ReplicasRequest,
    SetPlacementRequest,
    SetRequest,
)

T = TypeVar("T")

_PREDICTING_S = 30.0
"""What predicting all pairs of a large placement may take on top of the search."""

_FILLING_S = 10.0
"""What filling the largest matrices and counting their bits may take."""


class Client(Recorded, Launching):
    """A service, spoken to one request after the other; several threads may share it.

    Args:
        url: Such as `http://127.0.0.1:8765`; of a Unix socket `unix:/run/advisor.sock`.
        token: As `advisor tokens create` printed it; None: what may be done without.
        timeout_s: For each answer. What takes the service longer by nature gets that on top.
        verify: Whose certificate is trusted: True, those that the system trusts; a file, those in
            it; False, anyone's, so that anyone on the way can read the token.

    Raises:
        InputError: one of these cannot be used.

    Every method raises a `ClientError`: `ApiError` where the service refuses or fails,
    `UnreachableError`, `TooSlowError` or `AnswerError` where it gives no answer that can be used.
    """

    def recommend(self, asked: RecommendationRequest) -> Recommendation:
        """Which split of one GPU does the most for two jobs."""
        return self._post("/v1/recommendations", asked, Recommendation)

    def recommend_set(self, asked: SetRequest) -> SetAdvice:
        """How three to seven jobs are to run: together on one GPU, or with a card each."""
        return self._post("/v1/sets", asked, SetAdvice)

    def replicas(self, asked: ReplicasRequest) -> Replicas:
        """How many copies of a job one GPU holds, and what ends their number."""
        return self._post("/v1/replicas", asked, Replicas)

    def recommend_batch(self, asked: Sequence[RecommendationRequest]) -> tuple[BatchItem, ...]:
        """Many recommendations at once, in order; an error that one of them has is in its place."""
        body = BatchRequest(requests=tuple(map(to_plain, asked)))
        return self._post("/v1/recommendations/batch", body, BatchAnswer).answers

    def gains(self, asked: GainsRequest) -> Gains:
        """What each job of a GPU model gains beside each other one, or beside one of them."""
        return self._post("/v1/gains", asked, Gains, _PREDICTING_S)

    def place(self, asked: PlacementRequest) -> Placement:
        """Who shares a GPU with whom in a queue of jobs, at what split, when and where."""
        patience_s = asked.time_limit_s + _PREDICTING_S
        return self._post("/v1/placements", asked, Placement, patience_s)

    def place_sets(self, asked: SetPlacementRequest) -> SetPlacement:
        """Which jobs, up to seven, share a GPU from now on."""
        return self._post("/v1/placements/sets", asked, SetPlacement, asked.time_limit_s)

    def input_power(self, asked: Sequence[InputAsked]) -> InputPredictions:
        """What matrix products are expected to draw by their data, in order.

        Operands as text are filled by the service, which takes seconds where they are large.
        """
        body = InputPowerRequest(inputs=tuple(asked))
        patience_s = _FILLING_S * len(body.inputs)
        return self._post("/v1/power/input", body, InputPredictions, patience_s)

    def models(self) -> ModelList:
        """The models of the service, and when which of them became the champion."""
        return self._get("/v1/models", ModelList)

    def model(self, version: str) -> ModelDetails:
        """All that is known of one model; `bundled` came with advisor."""
        return self._get(_of_model(version), ModelDetails)

    def evaluation(self, version: str) -> dict[str, Any]:
        """What `advisor evaluate` found of a model that carries it."""
        return self._get(f"{_of_model(version)}/evaluation", dict[str, Any])

    def promote(self, version: str) -> Champion:
        """Make a model the champion: the next answer is made with it."""
        return self._change(f"{_of_model(version)}/promote")

    def rollback(self) -> Champion:
        """Go back to the champion that the last promotion replaced."""
        return self._change("/v1/models/rollback")

    def audit(self, *, limit: int = 100, before: int | None = None) -> tuple[AuditEntry, ...]:
        """Who changed or launched what, the newest first.

        Args:
            limit: At most this many, up to 1000.
            before: Only entries with a lower number.
        """
        return self._get("/v1/audit", AuditLog, limit=limit, before=before).entries

    def healthy(self) -> bool:
        """Whether the service lives: now, so it is asked once."""
        return self._says_ok("/healthz")

    def ready(self) -> bool:
        """Whether it can answer: its database and its model, too. It is asked once."""
        return self._says_ok("/readyz")

    def _post(self, path: str, body: Any, kind: type[T], patience_s: float = 0.0) -> T:
        ask = Ask(method="POST", path=path, body=body, patience_s=patience_s)
        return self._ask(ask, kind)

    def _change(self, path: str) -> Champion:
        # Not repeated: each one is a change of its own, and two rollbacks go back twice.
        return self._ask(Ask(method="POST", path=path, repeatable=False), Champion)

    def _says_ok(self, path: str) -> bool:
        try:
            self._answered(Ask(method="GET", path=path, repeatable=False))
        except (UnreachableError, TooSlowError):
            return False
        except ApiError as error:
            if error.status != 503:
                raise
            return False
        return True


def _of_model(version: str) -> str:
    return f"/v1/models/{quoted(version)}"
