"""A recommendation by the model in use."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

from advisor.core.split import ADVISED_JOBS, ISOLATING, Split
from advisor.core.wording import count_of, listed
from advisor.decide.recommend import Outlook, recommend_by
from advisor.decide.recommendation import Decision, Request
from advisor.errors import InputError
from advisor.predict.card_factor import CardFactor
from advisor.predict.sets import AnyWay, is_by_physics
from advisor.settings import Settings
from advisor.validity.safe_counts import CheckedCounts
from advisor.wire.answers import DriftedJob, MeasuredTogether
from advisor.wire.requests import RecommendationRequest, WayRequest
from advisor_advice.gpu_warnings import gpu_warnings
from advisor_advice.idle_power import with_idle_power
from advisor_advice.site.conditions import Conditions
from advisor_advice.site.known_jobs import KnownJobs
from advisor_advice.site.known_profiles import ProfileSet
from advisor_advice.site.promises import promised_p99_ms
from advisor_models.manifest import Manifest
from advisor_models.model_predictor import ModelPredictor

_NAMED = 3
"""How many features outside of the training data are named; there can be dozens."""


def request_of(request: RecommendationRequest, settings: Settings) -> Request:
    """As the arithmetic takes it; settings and job files say what the request leaves out.

    Raises:
        InputError: limits that cannot be meant.
    """
    whole = set_request_of(request, settings)
    return dataclasses.replace(whole, fine=request.fine)


def set_request_of(request: WayRequest, settings: Settings) -> Request:
    """The same of any number of jobs.

    Raises:
        InputError: limits that cannot be meant, or work of other jobs than two.
    """
    is_pair = len(request.jobs) == ADVISED_JOBS
    if not is_pair and any(job.work_s is not None for job in request.jobs):
        raise InputError(
            f"an amount of work says nothing of {count_of(len(request.jobs), 'job')}",
            why="what those that are left do when one has ended was measured of two jobs only",
            fix="leave it out: others are told as jobs that run on; for a queue: advisor place",
        )
    return Request(
        objective=request.objective,
        min_speed=request.min_speeds(),
        default_min_speed=settings.min_speed,
        max_p99_ms=promised_p99_ms(request.names, settings.jobs_dir) | request.p99_by_job_ms,
        default_max_p99_ms=request.max_p99_ms,
        max_power_w=request.max_power_w,
        memory_mib=request.memory_mib,
        prices=settings.prices,
        min_gain=request.min_gain,
        isolate=request.isolate,
        host_cores=request.host_cores,
        work=request.work,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ModelAdvice:
    """A recommendation, and what it is by."""

    recommendation: Decision
    manifest: Manifest
    card: CardFactor | None = None
    """By which power was corrected for the card; None: it was not."""
    drifts: tuple[DriftedJob, ...] = ()
    measured: MeasuredTogether | None = None
    """Of these jobs together; the answer takes it in."""


def answer(known: KnownJobs, request: Request) -> ModelAdvice:
    """What is recommended for two jobs.

    Raises:
        InputError: the request does not fit the jobs.
        NoSplitError: nothing keeps every limit.
    """
    return known_pair(known).answer(request)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KnownPair:
    """Two jobs, and all that is known of them before anybody says what is wanted."""

    predictor: ModelPredictor
    outlook: Outlook
    conditions: Conditions
    found: ProfileSet
    warnings: tuple[str, ...]
    """Whatever is wanted."""
    _outside: dict[Split, list[str]] = field(default_factory=dict[Split, list[str]])
    """Features that no training data had, by the split that was chosen."""

    def answer(self, request: Request) -> ModelAdvice:
        """What is recommended.

        Raises:
            InputError: the request does not fit the jobs.
            NoSplitError: nothing keeps every limit.
        """
        given = recommend_by(self.outlook, request)
        more = (*self._of_model(given), *self.warnings)
        given = dataclasses.replace(given, warnings=(*given.warnings, *more))
        split = (given.call or given.choice).prediction.split
        return ModelAdvice(
            given,
            self.predictor.manifest,
            self.conditions.card_of(self.found.profiles),
            self.conditions.drifts_of(self.found.profiles),
            self.conditions.measured_of(self.outlook.profiles, split),
        )

    def _of_model(self, given: Decision) -> Iterator[str]:
        split = given.choice.prediction.split
        yield from gpu_warnings(self.predictor.manifest, given.profiles)
        if split.sharing in ISOLATING or is_by_physics(given.profiles, split):
            return
        if split not in self._outside:
            self._outside[split] = self.predictor.extrapolation(given.profiles, [split])
        if outside := self._outside[split]:
            more = f" and {len(outside) - _NAMED} more" if len(outside) > _NAMED else ""
            yield f"unlike anything the model has seen in {', '.join(outside[:_NAMED])}{more}"


def known_pair(known: KnownJobs) -> KnownPair:
    """Two jobs, made ready for whatever is asked of them.

    Raises:
        InputError: not two profiles.
    """
    found, assumed = with_idle_power(known.found, known.model.manifest.fill)
    there, profiles = known.conditions.applied(AnyWay(known.model), found.profiles)
    return KnownPair(
        predictor=known.model,
        outlook=Outlook(profiles, there, known.checked),
        conditions=known.conditions,
        found=found,
        warnings=(
            *of_check(found, known.checked),
            *of_input(found),
            *assumed,
            *known.conditions.warnings(found.profiles),
        ),
    )


def of_check(profile_set: ProfileSet, checked: CheckedCounts | None) -> Iterator[str]:
    """Whether anybody knows which counts are safe on the GPU model of these profiles."""
    if checked is None and not any(p.right_units or p.wrong_units for p in profile_set.profiles):
        yield (
            "nobody has checked at which numbers of SMs libraries compute right results on "
            f"{profile_set.a.gpu_model}: advisor check"
        )


def of_input(profile_set: ProfileSet) -> Iterator[str]:
    """The data card of the bundled points says so of all of them."""
    if profile_set.other_models:
        yield (
            f"all were profiled on {listed(profile_set.other_models)}, too: --gpu-model, or "
            "`gpu_model` in a request"
        )
    if names := " and ".join(profile_set.bundled):
        yield f"bundled, so measured with random input, on which power depends: {names}"
