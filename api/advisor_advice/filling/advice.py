"""What is known of the jobs of a queue on one GPU: profiles, and who runs well beside whom."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from advisor.core.gpu import WHOLE, Gpu
from advisor.core.job import Job
from advisor.core.split import MOST_JOBS, Sharing, Split
from advisor.decide.filling import Beside, alone, best_beside
from advisor.decide.limits import is_served
from advisor.decide.recommendation import Request
from advisor.decide.ways import Running, SetDecision, recommend_set
from advisor.errors import InputError, NoSplitError
from advisor.launch.spec import LaunchPart, LaunchSet
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile
from advisor.predict.sets import SetPredictor
from advisor.settings import Settings
from advisor.validity.safe_counts import CheckedCounts
from advisor_advice import forecasting
from advisor_advice.forecasting import criteria_of
from advisor_advice.resolved_launch import ResolvedLaunch
from advisor_advice.set_advice import with_set_idle_power
from advisor_advice.site.conditions import NOTHING, Conditions, read_conditions
from advisor_advice.site.known_profiles import checked_on, find_profiles
from advisor_models.registry import Registry

_TIE = 0.05
"""Limits stay when neighbours have ended, so of ways that are worth about the same the loosest."""

_Key = tuple[tuple[str, ...], Running | None]


@dataclass(frozen=True, eq=False, kw_only=True)
class FillAdvice:
    """Advice on one GPU.

    Attributes:
        profiles: By name of job.
        lacking: Names of jobs that can only run alone, and why.
    """

    profiles: Mapping[str, Profile]
    lacking: Mapping[str, str]
    request: Request = field(default_factory=Request)
    conditions: Conditions = NOTHING
    checked: CheckedCounts | None = None
    _asked: dict[_Key, SetDecision | None] = field(default_factory=dict[_Key, SetDecision | None])

    def first_set(
        self, waiting: Sequence[str], spare: int
    ) -> tuple[tuple[str, ...], Prediction] | None:
        """Those that start on an empty GPU, servers first, and how; None: none of them is known.

        `spare` jobs are left for GPUs that are empty, too.
        """
        rest = [self.profiles[name] for name in waiting if name in self.profiles]
        rest.sort(key=lambda profile: not is_served(profile))
        if not rest:
            return None
        there = [rest.pop(0)]
        now = self._alone(there[0], WHOLE)
        while len(there) < MOST_JOBS:
            servers = [profile for profile in rest if is_served(profile)]
            if not servers and len(rest) <= spare:
                break
            found = self._next(there, now, servers or rest)
            if found is None and servers:
                # It waits for another GPU.
                found = self._next(there, now, [p for p in rest if not is_served(p)])
            if found is None:
                break
            there.append(found.profile)
            rest.remove(found.profile)
            now = found.prediction
        return tuple(profile.job for profile in there), now

    def _next(
        self, there: Sequence[Profile], now: Prediction, waiting: Sequence[Profile]
    ) -> Beside | None:
        return best_beside(there, now, waiting, self._ask)

    def joining(
        self, running: Sequence[str], there: Running, waiting: Iterable[str]
    ) -> Beside | None:
        """The waiting job that is to join those that run; None: all better wait."""
        now = self.expected(running, there.shares, there.sharing)
        if now is None:
            return None
        profiles = [self.profiles[name] for name in running]
        known = [self.profiles[name] for name in waiting if name in self.profiles]
        return best_beside(profiles, now, known, self._ask, there)

    def expected(
        self, jobs: Sequence[str], shares: Sequence[float], sharing: Sharing
    ) -> Prediction | None:
        """What jobs do together; None: one of them has no profile, or none at its share."""
        if not jobs or any(job not in self.profiles for job in jobs):
            return None
        profiles = [self.profiles[job] for job in jobs]
        try:
            if len(jobs) == 1:
                return self._alone(profiles[0], shares[0])
            predictor, profiles = self.conditions.applied(SetPredictor(), profiles)
            return predictor.predict(profiles, [Split(tuple(shares), sharing)])[0]
        except InputError:
            return None

    def held_to(self, part: LaunchPart) -> LaunchPart:
        """The job with what is asked for it: it is watched, and who is let join is held to it."""
        profile = self.profiles.get(part.job.name)
        if profile is None:
            return part
        least = self.request.min_speed.get(profile.job)
        most_ms = self.request.longest_p99_ms(profile)
        return replace(part, min_speed=least, max_p99_ms=most_ms)

    def _alone(self, profile: Profile, share_percent: float) -> Prediction:
        _, (own,) = self.conditions.applied(SetPredictor(), [profile])
        return alone(own, share_percent)

    def _ask(self, profiles: Sequence[Profile], running: Running | None) -> SetDecision | None:
        key = tuple(profile.job for profile in profiles), running
        if key not in self._asked:
            self._asked[key] = self._decided(profiles, running)
        return self._asked[key]

    def _decided(self, asked: Sequence[Profile], running: Running | None) -> SetDecision | None:
        predictor, profiles = self.conditions.applied(SetPredictor(), asked)
        request = _of(self.request, profiles)
        splits = self.conditions.splits_of(profiles)
        try:
            return recommend_set(
                profiles, predictor, request, self.checked, splits, running=running
            )
        except NoSplitError:
            return None


def read_advice(jobs: Sequence[Job], wanted: ResolvedLaunch, settings: Settings) -> FillAdvice:
    """What is known of jobs on the card that is wanted; a job without a profile runs alone.

    Raises:
        InputError: a limit is for none of the jobs.
        ModelError: there is no model, or it is damaged.
        StoreError: the store cannot be read.
    """
    known: list[Job] = []
    lacking: dict[str, str] = {}
    for job in {job.name: job for job in jobs}.values():
        try:
            find_profiles([job.name], settings, wanted.gpu_model, wanted.profiles)
            known.append(job)
        except InputError as error:
            lacking[job.name] = error.what
    if not known:
        return FillAdvice(profiles={}, lacking=lacking)
    profile_set, request = criteria_of(known, wanted, settings)
    model = Registry(settings.home / "models").open_champion()
    filled, _ = with_set_idle_power(profile_set, model.manifest.fill)
    return FillAdvice(
        profiles={profile.job: profile for profile in filled.profiles},
        lacking=lacking,
        request=request,
        conditions=read_conditions(settings, model, filled.profiles, wanted.gpu_uuid, any_of=True),
        checked=checked_on(profile_set, settings),
    )


def _of(request: Request, profiles: Sequence[Profile]) -> Request:
    """The same of these jobs: a limit for all that serve is for nobody where none does."""
    serves = any(profile.serving for profile in profiles)
    default_ms = request.default_max_p99_ms if serves else None
    return replace(request.of(profiles), default_max_p99_ms=default_ms, tie=_TIE)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCard:
    """A GPU of the queue: what launches on it are asked for with, and what is known of jobs."""

    wanted: ResolvedLaunch
    advice: FillAdvice

    @property
    def gpu(self) -> Gpu:
        """The card; a queue runs on none that was not seen."""
        assert self.wanted.card is not None
        return self.wanted.card

    def launch_set(self, jobs: Sequence[Job], split: Split, settings: Settings) -> LaunchSet:
        """Jobs at a split, with what to expect of them and what they are held to.

        Raises:
            StoreError: what the check of the GPU model found cannot be read.
        """
        parts = tuple(self.advice.held_to(LaunchPart(job=job)) for job in jobs)
        # Nobody has a limit, but who joins may need one.
        split = Split(split.shares) if split.sharing == "uncapped" else split
        made = LaunchSet(split=split, parts=parts, open_percent=WHOLE)
        return forecasting.with_forecast(made, self.wanted, settings)[0]
