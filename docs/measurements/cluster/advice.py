"""What the advisor allows and recommends of measured pairs: as a policy of the cluster.

Limits and the choice are those of `advisor recommend`; predictions come from `expected.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from expected import Expected
from policies import Forecast, Policy, advised
from truth import Kinds, Shares, Site

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from advisor.decide.constraints import violations
from advisor.decide.limits import Limits
from advisor.decide.recommendation import TIE, choose
from advisor.predict.predictions import Prediction, predict_exclusive
from advisor_training.rows import Data

_VALUE = OBJECTIVES[DEFAULT_OBJECTIVE].value


def advise(
    data: Data,
    sites: Mapping[str, Site],
    expected: Expected,
    min_speed: float,
    *,
    knows_work: bool = False,
) -> Policy:
    """The policy of an advisor who expects that.

    Args:
        data: What the predictions are of.
        sites: The pairs that may share.
        expected: Of all ways of these pairs.
        min_speed: Relative speed that each job keeps, at the low end of its interval.
        knows_work: The advisor knows how long jobs run, as with `--work`: it goes by the energy
            until both have ended. Else by what sharing saves while both run.
    """
    limits = Limits(default_min_speed=min_speed)
    joins: dict[str, dict[Kinds, dict[Shares, float]]] = {model: {} for model in sites}
    together: dict[str, dict[Kinds, dict[Shares, float]]] = {model: {} for model in sites}
    forecasts: dict[str, dict[Kinds, dict[Shares, Forecast]]] = {model: {} for model in sites}
    for model, site in sites.items():
        for pair, number in site.measured_as.items():
            profiles = data.profiles_of(data.measurements[number])
            ways = [p for p in expected[number] if not violations(p, profiles, limits)]
            alone = predict_exclusive(profiles)
            best = _best([*ways, alone])
            starts = [] if best is alone else [best]
            better = [p for p in ways if _best([p, alone]) is p]
            _add(joins[model], pair, ways if knows_work else better)
            _add(together[model], pair, ways if knows_work else starts)
            for p in ways if knows_work else ():
                _foresee(forecasts[model], site, pair, p)
    return advised(joins, together, forecasts)


def _best(ways: Sequence[Prediction]) -> Prediction:
    return choose(ways, lambda p: _VALUE(p.result), TIE, mirrored=False)


def _add(
    found: dict[Kinds, dict[Shares, float]], pair: Kinds, predictions: Iterable[Prediction]
) -> None:
    for prediction in predictions:
        s, t = prediction.split.shares
        found.setdefault(pair, {})[s, t] = _VALUE(prediction.result)
        found.setdefault((pair[1], pair[0]), {})[t, s] = _VALUE(prediction.result)


def _foresee(
    found: dict[Kinds, dict[Shares, Forecast]], site: Site, pair: Kinds, prediction: Prediction
) -> None:
    """What jobs do alone at a share is known from their profiles."""
    s, t = prediction.split.shares
    rests = site.alone[pair[0], s], site.alone[pair[1], t]
    result = prediction.result
    turned = replace(result, parts=result.parts[::-1])
    found.setdefault(pair, {})[s, t] = Forecast(result, rests)
    found.setdefault((pair[1], pair[0]), {})[t, s] = Forecast(turned, (rests[1], rests[0]))
