"""Who may run beside whom, at which shares: exclusive, uncapped, half and half, and the advisor.

A job keeps the share at which it started: MPS cannot lift the limit of a running job. So a policy
says three things: at which share a job starts on an empty GPU, which two jobs that wait start
together, and which job may join those that run on a GPU at some shares.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from truth import WHOLE, Kinds, Members, Shares, Site

from advisor.core.objectives import Rest, SplitResult, Work, finish

HALF: Shares = (50.0, 50.0)
UNLIMITED: Shares = (WHOLE, WHOLE)

Values = Mapping[Kinds, Mapping[Shares, float]]
"""What ways of sharing are worth, for those that a policy allows: above 0."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What an advisor expects of two jobs: together, and each at its share after the other."""

    together: SplitResult
    rests: tuple[Rest, Rest]

    def saved(self, own_s: float, other_s: float, other: Rest) -> float:
        """Part of the energy saved, where both jobs run to their ends.

        Args:
            own_s: Work of the job that waits.
            other_s: Work that the other one has left.
            other: What the other one does without this job.
        """
        apart_j = own_s * self.together.parts[0].solo_power_w
        apart_j += other_s / other.speed * other.power_w
        return 1 - finish(self.together, Work((own_s, other_s)), self.rests).energy_j / apart_j


@dataclass(frozen=True, slots=True)
class Offer:
    """A place beside others.

    Attributes:
        share: Of the job that asks.
        members: Whom it joins.
        worth: More is better; above 0.
        forecast: For policies that know how long jobs run; they go by what it saves.
    """

    share: float
    members: Members
    worth: float
    forecast: Forecast | None = None

    def worth_of(self, own_s: float, other_s: float, other: Rest) -> float:
        """What the offer is worth to jobs with that much work; 0 or less is no gain."""
        return self.forecast.saved(own_s, other_s, other) if self.forecast else self.worth


Forecasts = Mapping[Kinds, Mapping[Shares, Forecast]]

Joins = Callable[[str, Collection[Members]], Iterable[Offer]]
"""For a job that waits, and whoever runs somewhere: whom it may join."""


def _nobody(kind: str, running: Collection[Members]) -> Iterable[Offer]:
    return ()


@dataclass(frozen=True, slots=True)
class Rules:
    """What a policy does on one GPU model.

    Attributes:
        alone_share: At which a job starts on an empty GPU.
        together: For a job that waits, others to start with on an empty GPU; the best first.
        most: So many jobs on one GPU.
        packs: Whether jobs join others while GPUs are free.
    """

    alone_share: float = WHOLE
    joins: Joins = _nobody
    together: Mapping[str, tuple[Offer, ...]] = field(default_factory=dict[str, tuple[Offer, ...]])
    most: int = 2
    packs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules for each GPU model."""

    rules: Mapping[str, Rules]


def exclusive(sites: Collection[str]) -> Policy:
    """Each job alone on a whole GPU."""
    return Policy(rules={model: Rules() for model in sites})


def uncapped(sites: Mapping[str, Site]) -> Policy:
    """A second job joins without limits."""
    return _of(sites, lambda site: _rules(_only(site, UNLIMITED), {}))


def equal(sites: Mapping[str, Site]) -> Policy:
    """Two places of half a GPU each; a job that is alone has half of it as well."""
    return _of(sites, lambda site: _rules(_only(site, HALF), {}, alone_share=HALF[0]))


def advised(
    joins: Mapping[str, Values],
    together: Mapping[str, Values],
    forecasts: Mapping[str, Forecasts],
) -> Policy:
    """What an advisor allows.

    Args:
        joins: By GPU model, every way by which a job may join another one.
        together: Ways in which two jobs that wait may start.
        forecasts: Of all of them, where it is known how long jobs run; else empty.
    """
    rules = {m: _rules(joins[m], together[m], forecasts[m]) for m in joins}
    return Policy(rules=rules)


def _of(sites: Mapping[str, Site], rules: Callable[[Site], Rules]) -> Policy:
    return Policy(rules={model: rules(site) for model, site in sites.items()})


def _only(site: Site, shares: Shares) -> Values:
    return {pair: {shares: 1.0} for pair, known in site.ways.items() if shares in known}


def _rules(
    joins: Values,
    together: Values,
    forecasts: Forecasts = MappingProxyType({}),
    *,
    alone_share: float = WHOLE,
) -> Rules:
    known = _offers(joins, forecasts)
    return Rules(alone_share, lambda kind, _: known.get(kind, ()), _offers(together, forecasts))


def _offers(values: Values, forecasts: Forecasts) -> dict[str, tuple[Offer, ...]]:
    """For each kind its partners, what is worth most first; names decide between equals."""
    found: dict[str, list[Offer]] = {}
    for (own, other), known in values.items():
        for (share, its), worth in known.items():
            forecast = forecasts.get((own, other), {}).get((share, its))
            offer = Offer(share, ((other, its),), worth, forecast)
            found.setdefault(own, []).append(offer)
    return {
        own: tuple(sorted(offers, key=lambda o: (-o.worth, o.members[0][0], o.share)))
        for own, offers in found.items()
    }
