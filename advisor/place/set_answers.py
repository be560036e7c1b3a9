"""What each set of a pool gives and costs, and whether it keeps every limit: asked once of each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement

import numpy as np

from advisor.core.gpu import MEMORY_PART, WHOLE
from advisor.core.split import ADVISED_JOBS, MOST_JOBS, NINE, Split, without_limits
from advisor.decide.constraints import violations, violations_alone
from advisor.decide.limits import UNSURE_BELOW, Limits, check_limits, with_card_memory
from advisor.place.many_sets import NONE, ManyAlone, many_alone
from advisor.place.running import PlacedSet, Placing, Pool
from advisor.predict.predictions import Prediction, Predictor, is_within, safe_splits_of
from advisor.predict.profiles import Floats, Profile
from advisor.predict.sets import SetPredictor

_LAW = SetPredictor()


@dataclass(slots=True, eq=False)
class SetAnswers:
    """Of one pool; keeps what was asked.

    Attributes:
        there: Kinds with a profile; `many` knows them in this order.
    """

    placing: Placing
    number: int
    there: tuple[int, ...]
    many: ManyAlone
    _known: dict[tuple[tuple[int, ...], int], PlacedSet | None] = field(
        default_factory=dict[tuple[tuple[int, ...], int], PlacedSet | None]
    )

    @property
    def pool(self) -> Pool:
        """Its cards."""
        return self.placing.pools[self.number]

    def of(self, kinds: tuple[int, ...]) -> PlacedSet | None:
        """One job alone, or two, kinds ascending; None: it keeps not all limits."""
        if len(kinds) == ADVISED_JOBS and self.pool.of_pairs:
            return self._known_or((kinds, NONE), self.pool.of_pairs)
        return self.by_law(kinds)

    def by_law(self, kinds: tuple[int, ...], level: int = 0) -> PlacedSet | None:
        """By the law of sets; jobs that fill the GPU are limited to a level."""
        return self._known_or((kinds, level), _LAW)

    def _known_or(self, key: tuple[tuple[int, ...], int], by: Predictor) -> PlacedSet | None:
        if key not in self._known:
            self._known[key] = self._asked(*key, by)
        return self._known[key]

    def singles(self) -> Iterator[PlacedSet]:
        """Each kind alone, where it may."""
        return (one for kind in self.there if (one := self.of((kind,))))

    def copies(self) -> Iterator[PlacedSet]:
        """Three of one kind and more, as many as may share a card."""
        for kind in self.there:
            for number in range(
                ADVISED_JOBS + 1, min(MOST_JOBS, self.placing.kinds[kind].count) + 1
            ):
                if (one := self.by_law((kind,) * number)) is None:
                    break
                yield one

    def pairs(self) -> Iterator[PlacedSet]:
        """Of all kinds, where a model of pairs knows them; else they are sets like others."""
        if self.pool.of_pairs:
            counts = self.placing.counts
            for pair in combinations_with_replacement(self.there, 2):
                if pair[0] != pair[1] or counts[pair[0]] > 1:
                    found = self.of(pair)
                    if found:
                        yield found

    @property
    def memory(self) -> tuple[Floats, float]:
        """MiB that each kind needs, 0 where it is not known, and the most together."""
        most = with_card_memory(self.pool.limits, self.pool.gpu_model).memory_mib
        needed = [self._profile(kind).memory_used_mib or 0.0 for kind in self.there]
        return np.array([*needed, 0.0]), MEMORY_PART * most if most else np.inf

    def _profile(self, kind: int) -> Profile:
        found = self.pool.profiles[kind]
        assert found is not None
        return found

    def _asked(self, kinds: tuple[int, ...], level: int, by: Predictor) -> PlacedSet | None:
        profiles = [self._profile(kind) for kind in kinds]
        limits = with_card_memory(self.pool.limits, self.pool.gpu_model)
        if level != NONE:
            limits = replace(limits, unsure_below=UNSURE_BELOW)
        if len(kinds) == 1:
            return self._alone(kinds, profiles[0], limits)
        splits = self.ways(kinds, profiles, level)
        kept = [
            self._placed(kinds, profiles, found)
            for found in (by.predict(profiles, splits) if splits else ())
            if not violations(found, profiles, limits)
        ]
        return min(kept, key=lambda one: (one.cost, one.power_w), default=None)

    def _alone(self, kinds: tuple[int, ...], profile: Profile, limits: Limits) -> PlacedSet | None:
        too_much = limits.memory_mib and (profile.memory_used_mib or 0) > limits.memory_mib
        if too_much or violations_alone(profile, limits):
            return None
        watts = profile.whole_gpu_power_w
        return PlacedSet(
            kinds=kinds,
            pool=self.number,
            split=None,
            speeds=(1.0,),
            p99_ms=(profile.serving and profile.serving.p99_alone_ms(WHOLE),),
            power_w=watts,
            cost=self.placing.cost(self.number, kinds, (1.0,), watts),
        )

    def ways(self, kinds: tuple[int, ...], profiles: Sequence[Profile], level: int) -> list[Split]:
        """Of two jobs for the model of pairs, the nine splits; else the one at this level."""
        if level == NONE:
            safe = safe_splits_of(profiles, NINE, self.pool.checked)
            return [s for s in dict.fromkeys(safe) if s and is_within(s, profiles)]
        places = [self.there.index(kind) for kind in kinds]
        shares = tuple(map(float, self.many.shares[places, level]))
        limited = min(shares) < WHOLE
        return [Split(shares) if limited else without_limits("uncapped", len(kinds))]

    def _placed(
        self, kinds: tuple[int, ...], profiles: Sequence[Profile], found: Prediction
    ) -> PlacedSet:
        seats = zip(profiles, found.parts, found.split.shares, strict=True)
        tails = [part.p99_ms(profile, found.split, share) for profile, part, share in seats]
        speeds = tuple(part.speed.value for part in found.parts)
        return PlacedSet(
            kinds=kinds,
            pool=self.number,
            split=found.split,
            speeds=speeds,
            p99_ms=tuple(tail and tail.high for tail in tails),
            power_w=found.power_w.value,
            cost=self.placing.cost(self.number, kinds, speeds, found.power_w.value),
        )


def set_answers(placing: Placing, number: int) -> SetAnswers:
    """Of one of the pools.

    Raises:
        InputError: a limit for no job that is there.
    """
    pool = placing.pools[number]
    there = tuple(n for n, profile in enumerate(pool.profiles) if profile is not None)
    profiles = [profile for profile in pool.profiles if profile is not None]
    check_limits(pool.limits, profiles)
    return SetAnswers(placing, number, there, many_alone(profiles, pool.checked))
