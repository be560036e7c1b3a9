"""Sets of jobs on one GPU: what is expected of them, what happens, and who may join whom.

Expected is what `advisor.predict.sets` says. What happens is predicted, too: that, off as one of
the measured sets was (errors.py); tails are off by errors drawn from their range. Two jobs that
were measured together, and serve nobody, do as measured.
"""

import functools
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from errors import measured_errors
from policies import Offer, Policy, Rules
from truth import WHOLE, Members, Site, Way

from advisor.core.gpu import MEMORY_MIB, MemoryFit
from advisor.core.interval import Interval
from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from advisor.core.split import ADVISED_JOBS, MOST_JOBS, Split, without_limits
from advisor.decide.limits import UNSURE_BELOW, violations
from advisor.decide.recommendation import Request
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import MOST_TOLERANCE, Profile
from advisor.predict.sets import SetPredictor, fills
from advisor.wire.requests import MIN_GAIN

LONGEST_TAIL = 10.0
"""Promise of each server: a p99 of so many times that alone on the whole GPU (assumed)."""

ASKED = 4
"""So many sets that run are asked about for a job that waits, beyond those known."""

FILLING_LIMITS = (WHOLE, 80.0, 50.0)
"""That a job which fills the GPU may get where it joins others; others get none."""

LEAST_SPEED = 0.02
"""No error makes a job slower: at 0 it never ends."""

_VALUE = OBJECTIVES[DEFAULT_OBJECTIVE].value

_AT_5_PERCENT = 1.6449
"""Standard deviations of a normal distribution below its mean."""


@dataclass(frozen=True, eq=False)
class ExpectedSets:
    """What the law of sets says of kinds of jobs on one GPU model; keeps what was asked."""

    profiles: Mapping[str, Profile]

    @functools.cached_property
    def request(self) -> Request:
        """What every set is to keep: the defaults, and the tails that are promised."""
        tails = {k: LONGEST_TAIL * ms for k, p in self.profiles.items() if (ms := p99_alone(p))}
        return Request(max_p99_ms=tails, unsure_below=UNSURE_BELOW)

    def of(self, members: Members) -> Prediction:
        """Two jobs or more, at their shares."""
        (found,) = SetPredictor().predict(self._profiles(members), [_split(members)])
        return found

    def joined(self, members: Members, kind: str) -> Prediction | None:
        """Of a job that joins others, at the limit at which most energy is saved; last is its own.

        None: nothing keeps all limits, or saves as much as the advice is to.
        """
        if not self.fits([*(k for k, _ in members), kind]):
            return None
        limits = FILLING_LIMITS if fills(self.profiles[kind]) else (WHOLE,)
        ways = [(*members, (kind, share)) for share in limits]
        profiles = self._profiles(ways[0])
        request = self.request.of(profiles)
        kept = [
            found
            for found in SetPredictor().predict(profiles, [_split(way) for way in ways])
            if _VALUE(found.result) >= 1 + MIN_GAIN and not violations(found, profiles, request)
        ]
        return max(kept, key=saved_w, default=None)

    def saved_w(self, members: Members) -> float:
        """Power that a set is expected to save against a card each, for the same work."""
        return saved_w(self.of(members)) if len(members) > 1 else 0.0

    def fits(self, kinds: Collection[str]) -> bool:
        """Whether there is memory for all."""
        profiles = [self.profiles[kind] for kind in kinds]
        needed = tuple(profile.memory_used_mib for profile in profiles)
        return not MemoryFit(needed, MEMORY_MIB[profiles[0].gpu_model]).is_too_much

    def _profiles(self, members: Members) -> list[Profile]:
        return [self.profiles[kind] for kind, _ in members]


def _split(members: Members) -> Split:
    shares = tuple(share for _, share in members)
    return Split(shares) if min(shares) < WHOLE else without_limits("uncapped", len(shares))


def saved_w(found: Prediction) -> float:
    """Power saved against a card each that does the same work; cards without jobs are off."""
    return sum(p.speed.value * p.solo_power_w for p in found.parts) - found.power_w.value


def p99_alone(profile: Profile) -> float | None:
    """On the whole GPU, ms; None: not known, or it serves nobody."""
    return profile.serving and profile.serving.p99_alone_ms(WHOLE)


@dataclass(frozen=True, eq=False)
class Sets:
    """The truth of sets on one GPU model, as a seed draws it.

    Attributes:
        measured: Pairs that were, of jobs that end.
    """

    expected: ExpectedSets
    measured: Site
    seed: int
    _known: dict[Members, Way] = field(default_factory=dict[Members, Way])

    @property
    def idle_power_w(self) -> float:
        """Of a GPU without jobs."""
        return self.measured.idle_power_w

    def together(self, members: Members) -> Way:
        """What one job or more do; the same set does the same wherever it runs."""
        if members not in self._known:
            self._known[members] = self._drawn(members)
        return self._known[members]

    def _drawn(self, members: Members) -> Way:
        profiles = [self.expected.profiles[kind] for kind, _ in members]
        if len(members) == 1:
            return _alone(profiles[0], members[0][1])
        a, b = members[0], members[1]
        known = self.measured.ways.get((a[0], b[0]), {})
        if len(members) == ADVISED_JOBS and (a[1], b[1]) in known:
            return known[a[1], b[1]]
        found = self.expected.of(members)
        rng = np.random.default_rng([self.seed, zlib.crc32(repr(members).encode())])
        speeds, power_w = measured_errors().draw(found, profiles, rng)
        tails = [
            _off(part.latency_p99_ms, rng) / alone_ms
            if part.latency_p99_ms and (alone_ms := p99_alone(profile))
            else 0.0
            for part, profile in zip(found.parts, profiles, strict=True)
        ]
        return _way(profiles, speeds, tails, power_w)


def _off(said: Interval, rng: np.random.Generator) -> float:
    """Drawn so that 5 and 95 % of draws are below the bounds of the range, and half below it."""
    normal = rng.normal() / _AT_5_PERCENT
    bound = said.high if normal > 0 else said.low
    return said.value * (bound / said.value) ** abs(normal)


def _alone(profile: Profile, share: float) -> Way:
    at = profile.at([share])
    alone_ms, here_ms = p99_alone(profile), profile.serving and profile.serving.p99_alone_ms(share)
    tail = here_ms / alone_ms if here_ms and alone_ms else 0.0
    speed = min(1.0, float(at["rate"][0]) / profile.whole_gpu_rate)
    return _way([profile], [speed], [tail], float(at["power_w"][0]))


def _way(profiles: list[Profile], speeds: list[float], tails: list[float], power_w: float) -> Way:
    """A server ends when its time is over, whatever it serves."""
    misses = [
        p.serving is not None and (speed < 1 - MOST_TOLERANCE or tail > LONGEST_TAIL)
        for p, speed, tail in zip(profiles, speeds, tails, strict=True)
    ]
    done = [
        1.0 if p.serving else max(LEAST_SPEED, speed)
        for p, speed in zip(profiles, speeds, strict=True)
    ]
    return Way(tuple(done), power_w, tuple(tails), tuple(misses))


Answer = Callable[[Members, str], Offer | None]
"""Whether a kind of job may join those that run."""


@dataclass(frozen=True, eq=False)
class Packing:
    """Whom jobs join; a set that is known to be worth most first, so that few kinds of sets arise.

    Asking costs, so of sets that nobody has asked about only `ASKED` are.
    """

    answer: Answer
    _known: dict[str, dict[Members, Offer | None]] = field(
        default_factory=dict[str, dict[Members, Offer | None]]
    )

    def __call__(self, kind: str, running: Collection[Members]) -> Iterator[Offer]:
        """The best of the offers, if any."""
        known = self._known.setdefault(kind, {})
        asked = 0
        best: Offer | None = None
        for members in running:
            if members not in known:
                if asked == ASKED:
                    continue
                asked += 1
                known[members] = self.answer(members, kind)
            offer = known[members]
            if offer and (best is None or offer.worth > best.worth):
                best = offer
        if best:
            yield best


def as_many_as_fit(expected: ExpectedSets) -> Answer:
    """Without limits while there is memory, on the fullest GPU."""

    @functools.cache
    def answer(members: Members, kind: str) -> Offer | None:
        if not expected.fits([*(k for k, _ in members), kind]):
            return None
        return Offer(WHOLE, members, float(len(members)))

    return answer


def at_the_advice(expected: ExpectedSets) -> Answer:
    """Where all are to keep their limits and the set saves more energy with the job."""

    @functools.cache
    def answer(members: Members, kind: str) -> Offer | None:
        found = expected.joined(members, kind)
        if found is None:
            return None
        gained_w = saved_w(found) - expected.saved_w(members)
        return Offer(found.split.shares[-1], members, gained_w) if gained_w > 0 else None

    return answer


def packed(gpu_model: str, answer: Answer, most: int = MOST_JOBS) -> Policy:
    """Jobs join where they may before they take a GPU of their own."""
    return Policy(rules={gpu_model: Rules(joins=Packing(answer), most=most, packs=True)})
