"""Predictions of jobs that drift: the same values, with bounds that hold what was observed too."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from advisor.core.split import Split
from advisor.predict.predictions import Prediction, Predictor
from advisor.predict.profiles import Profile
from advisor.validity.drift import Drift, widened


class DriftPredictor:
    """Predicts with wider bounds for jobs that drift.

    Args:
        predictor: What is widened.
        drifts: By job and quantity.
    """

    def __init__(self, predictor: Predictor, drifts: Mapping[tuple[str, str], Drift]) -> None:
        self._predictor, self._drifts = predictor, drifts

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
        """One prediction for each split, in their order.

        Raises:
            InputError: as the predictor does.
        """
        names = [profile.job for profile in profiles]
        return [self._wider(found, names) for found in self._predictor.predict(profiles, splits)]

    def _wider(self, found: Prediction, names: Sequence[str]) -> Prediction:
        drifts = self._drifts
        parts = tuple(
            replace(part, speed=widened(part.speed, drift.ratio))
            if (drift := drifts.get((name, "rate")))
            else part
            for name, part in zip(names, found.parts, strict=True)
        )
        power_w = found.power_w
        for name in dict.fromkeys(names):
            if drift := drifts.get((name, "power")):
                power_w = widened(power_w, drift.ratio)
        if parts == found.parts and power_w == found.power_w:
            return found
        # The errors of the quotient are known of jobs that do as expected, so not of these.
        return replace(found, parts=parts, power_w=power_w, efficiency_factors=None)
