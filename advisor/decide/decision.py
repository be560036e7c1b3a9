"""How two to seven jobs are to run: the option that is worth most and keeps every limit. Pure.

Request, profiles and a predictor give the options, each option its prediction, its worth and the
limits that it breaks; the policy says which one is offered. The answer does not depend on the order
of the jobs.

Copies of one job are decided on as any set of so many jobs is. A copy of a server brings its own
demand; a copy of another job takes what it gets.

Options: no limits, limits for jobs that fill the GPU, the same limit for all jobs, time slicing,
and separate GPUs; for two jobs also the nine splits, and a job that fills the GPU below normal
priority. All limits are at counts of SMs or CUs at which libraries
compute right results (docs/measurements/results.md).

`reasons` and `warnings` say why, and what to know before the jobs are started.
"""

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from advisor.core.gpu import (
    ADVISED_JOBS,
    ALL_GPUS,
    ISOLATING,
    MOST_GPUS,
    MOST_JOBS,
    NINE,
    SHARINGS,
    UNIT_NAMES,
    WHOLE,
    Share,
    Sharing,
    Split,
    best_within_tie,
    fine_splits,
    read_bound,
    share_for_units,
    units_for_share,
    vendor_of,
    without_limits,
)
from advisor.core.objectives import (
    ADVISED,
    COST,
    DEFAULT_OBJECTIVE,
    HOUR_S,
    NO_PRICES,
    Finish,
    Interval,
    Objective,
    Prices,
    Rest,
    SplitResult,
    Work,
)
from advisor.core.records import (
    DOUBTFUL,
    FLAGS,
    JOB_CHANGED,
    PRIOR,
    SINGLE_WINDOW,
    SLOW_ALONE,
    UNCOUNTED_UNIT,
    grouped,
)
from advisor.core.wording import counted, in_digits, less_or_more, limits_text, listed, percent
from advisor.decide.limits import (
    RULES,
    TO_THE_END,
    Request,
    Violation,
    check_jobs_fit,
    is_served,
    memory_unknown,
    most_power_w,
    sure_p99_ms,
    sure_speeds,
)
from advisor.errors import InputError, NoSplitError
from advisor.predict.predictions import (
    Prediction,
    Predictions,
    Predictor,
    is_within,
    safe_splits_of,
)
from advisor.predict.profiles import (
    FULL_BANDWIDTH_PERCENT,
    MEASURED_ON,
    Profile,
    Serving,
    hold_several,
)
from advisor.predict.sets import alone_at, fills, why_not_below_normal
from advisor.validity.safe_counts import CheckedCounts, unchecked_texts
from advisor.wire.answers import Replicas, SharingVerdict

MOST_OPTIONS = 60
"""With limits: the levels of each job that fills are spread evenly, so that all of its options
together are no more. One such job is looked at under each safe count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Jobs that run together and keep their shares, beside which another one is to run.

    Attributes:
        cap_percent: The largest share that the newcomer can get.
        may_be_low: It can begin below normal priority, as the caller knows.
    """

    split: Split
    cap_percent: float
    may_be_low: bool = False


def options_of(
    profiles: Sequence[Profile],
    checked: CheckedCounts | None = None,
    measured: Iterable[Split] = (),
    *,
    fine: bool = False,
    most_options: int = MOST_OPTIONS,
    running: Running | None = None,
) -> tuple[Split, ...]:
    """Every option, limited ones first, a GPU for each job last.

    Args:
        profiles: Of the jobs, on one GPU model.
        checked: What the check of the GPU model found.
        measured: Splits at which these jobs were measured together; kept where they are safe.
        fine: Of two jobs every split in steps of the GPU's quantum, too.
        most_options: Most options with a limit for those that fill.
        running: All but the last job run already: only the share of that one is open.

    Raises:
        InputError: fine splits of more than two jobs, or of a GPU whose units are not known.
    """
    is_amd = vendor_of(profiles[0].gpu_model) == "amd"
    if hold_several(profiles):
        splits = _over_gpus(profiles, checked, most_options)
    elif running is not None:
        splits = _joining(running, profiles, checked)
    else:
        # AMD GPUs have no time slicing to choose: without masks processes run side by side.
        free: tuple[Sharing, ...] = ("uncapped",) if is_amd else ("uncapped", "time-sliced")
        splits = itertools.chain(
            _of_two(profiles, checked, fine=fine),
            _for_everybody(profiles, checked),
            _for_filling(profiles, checked, most_options),
            below_normal(profiles, checked),
            (without_limits(sharing, len(profiles)) for sharing in free),
            _safe(measured, profiles, checked),
        )
    kept = {split for split in splits if not is_amd or split.can_be_masked}
    kept.add(without_limits("exclusive", len(profiles)))
    order = attrgetter("below_normal", "shares", "gpus")
    return tuple(sorted(kept, key=lambda split: (SHARINGS.index(split.sharing), order(split))))


def _over_gpus(
    profiles: Sequence[Profile], checked: CheckedCounts | None, most_options: int
) -> Iterator[Split]:
    """Beside a job of two GPUs: each neighbour on either, with limits for those that fill."""
    [rank] = [n for n, profile in enumerate(profiles) if profile.gpus > 1]
    # The GPUs are alike, so the first neighbour is on the first.
    first = int(rank == 0)
    numbers = [
        (ALL_GPUS,) if n == rank else (0,) if n == first else range(MOST_GPUS)
        for n in range(len(profiles))
    ]
    seatings = [*itertools.product(*numbers)]
    most = max(2, int((most_options / len(seatings)) ** (1 / max(1, sum(map(fills, profiles))))))
    levels = [
        (*_spread(limits_of(p, checked), most - 1), WHOLE) if fills(p) else (WHOLE,)
        for p in profiles
    ]
    for gpus, shares in itertools.product(seatings, itertools.product(*levels)):
        split = Split(shares, "limited" if min(shares) < WHOLE else "uncapped", (), gpus)
        limits = ([shares[n] for n in on if shares[n] < WHOLE] for on in split.each_gpu)
        if all(sum(limits_of_gpu) <= WHOLE + 1 for limits_of_gpu in limits):
            yield split


def wanted_splits(profiles: Sequence[Profile], *, fine: bool) -> tuple[Split, ...]:
    """The splits of two jobs before any is replaced by a safe one, or left out."""
    if len(profiles) != ADVISED_JOBS:
        return ()
    return (*NINE, *_unit_splits(profiles)) if fine else NINE


def _of_two(
    profiles: Sequence[Profile], checked: CheckedCounts | None, *, fine: bool
) -> Iterator[Split]:
    """In the place of a split with an unsafe count stands the nearest safe one."""
    if fine and len(profiles) != ADVISED_JOBS:
        raise InputError(
            f"fine splits are of {ADVISED_JOBS} jobs, not of {len(profiles)}",
            fix="leave them out, or name two jobs",
        )
    for split in safe_splits_of(profiles, wanted_splits(profiles, fine=fine), checked):
        if split and is_within(split, profiles):
            yield split


def _unit_splits(profiles: Sequence[Profile]) -> tuple[Split, ...]:
    gpu_model = profiles[0].gpu_model
    vendor = vendor_of(gpu_model)
    total = next((p.units_total for p in profiles if p.units_total), None)
    if total is None:
        raise InputError(
            f"the number of {UNIT_NAMES[vendor]} of {gpu_model} is not known",
            why="no point of the profiles has units_total",
            fix="leave out the fine splits",
        )
    return fine_splits(total, vendor)


def _for_everybody(profiles: Sequence[Profile], checked: CheckedCounts | None) -> Iterator[Split]:
    """The same limit for all, at the largest safe counts that together fit the GPU."""
    shares = [_even_share(profile, checked, len(profiles)) for profile in profiles]
    if None not in shares:
        yield Split(tuple(share for share in shares if share))


@functools.lru_cache(maxsize=4096)
def _even_share(profile: Profile, checked: CheckedCounts | None, jobs: int) -> float | None:
    """The largest share of which so many jobs have units of their own; None: there is none."""
    safety, limits = profile.safety(checked), limits_of(profile, checked)
    if (total := safety.units_total) is None:
        return max((share for share in limits if share * jobs <= WHOLE), default=None)
    units = {share: units_for_share(share, total, safety.vendor) for share in limits}
    return max((share for share in limits if units[share] * jobs <= total), default=None)


def _for_filling(
    profiles: Sequence[Profile], checked: CheckedCounts | None, most_options: int
) -> Iterator[Split]:
    """Limits for some or all of those that fill the GPU, side by side; the others have none."""
    filling = (seat for seat, profile in enumerate(profiles) if fills(profile))
    seats = grouped(filling, lambda seat: profiles[seat].job)
    if not seats:
        return
    most_levels = _most_levels(tuple(map(len, seats.values())), most_options)
    choices: list[Iterable[tuple[float, ...]]] = []
    for group in seats.values():
        limits = limits_of(profiles[group[0]], checked)
        levels = (*_spread(limits, most_levels - 1), WHOLE)
        choices.append(itertools.combinations_with_replacement(levels, len(group)))
    for chosen in itertools.product(*choices):
        shares = [WHOLE] * len(profiles)
        for group, of_copies in zip(seats.values(), chosen, strict=True):
            for seat, share in zip(group, of_copies, strict=True):
                shares[seat] = share
        limits = [share for share in shares if share < WHOLE]
        # Limits that overlap each other were never measured.
        if limits and sum(limits) <= WHOLE + 1:
            yield Split(tuple(shares))


def below_normal(
    profiles: Sequence[Profile], checked: CheckedCounts | None = None
) -> tuple[Split, ...]:
    """Two jobs of which one fills the GPU, below normal priority; none where that gives nothing."""
    seats = tuple(seat for seat, profile in enumerate(profiles) if fills(profile))
    if len(profiles) != ADVISED_JOBS or len(seats) != 1:
        return ()
    free = Split((WHOLE,) * len(profiles), "uncapped", seats)
    # Pairs were measured with priority on this GPU model alone, without a limit for the job below
    # normal and with one of 50 %, from which the safe limit may be 10 % off.
    is_measured = profiles[0].gpu_model == "NVIDIA H200" and all(p.kernels for p in profiles)
    if not is_measured or why_not_below_normal(profiles, free):
        return ()
    limits = limits_of(profiles[seats[0]], checked)
    half = min(limits, key=lambda share: abs(share - 50), default=WHOLE)
    if abs(half - 50) > 10:
        return (free,)
    shares = tuple(half if seat in seats else WHOLE for seat in range(len(profiles)))
    return free, Split(shares, below_normal=seats)


def _joining(
    running: Running, profiles: Sequence[Profile], checked: CheckedCounts | None
) -> Iterator[Split]:
    """Every share that the last job can get, none among them where nothing bounds it.

    None beside a job below normal priority where that was not measured. A job that fills the GPU
    may run below normal itself beside one that has all of it.
    """
    limits = limits_of(profiles[-1], checked) if running.split.is_limited else ()
    seats = [(share, False) for share in (*limits, WHOLE)]
    if running.may_be_low and running.split in (Split((WHOLE,)), without_limits("uncapped", 1)):
        seats += [(WHOLE, True) for low in below_normal(profiles, checked)[:1] if low.seats[1][1]]
    for split in itertools.starmap(running.split.joined_by, seats):
        is_measured = not split.below_normal or not why_not_below_normal(profiles, split)
        if split.shares[-1] <= running.cap_percent and is_measured:
            yield split


@functools.cache
def _most_levels(copies: tuple[int, ...], most_options: int) -> int:
    """How many levels each job that fills may have, no limit among them; of copies, so many each.

    Which of several copies has which limit makes no difference.
    """
    return max(
        (
            levels
            for levels in range(2, most_options + 1)
            if math.prod(math.comb(levels + n - 1, n) for n in copies) <= most_options
        ),
        default=1,
    )


def _safe(
    splits: Iterable[Split], profiles: Sequence[Profile], checked: CheckedCounts | None
) -> Iterator[Split]:
    """Those of the splits at which no job has an unsafe count, nor a priority of no known use."""
    safeties = [profile.safety(checked) for profile in profiles]
    for split in splits:
        if split.below_normal and why_not_below_normal(profiles, split):
            continue
        if not any(
            share < WHOLE
            and s.units_total
            and units_for_share(share, s.units_total, s.vendor) in s.unsafe
            for share, s in zip(split.shares, safeties, strict=True)
        ):
            yield split


@functools.lru_cache(maxsize=4096)
def limits_of(profile: Profile, checked: CheckedCounts | None) -> tuple[float, ...]:
    """Limits of one job at safe counts, ascending, as far as its profile reaches."""
    safety, least = profile.safety(checked), float(profile.shares[0])
    total = safety.units_total
    if total is None:
        shares = [float(share) for share in range(10, 100, 10)]
    else:
        allowed = (units for units in safety.allowed if units < total)
        shares = [share_for_units(units, total, safety.vendor) for units in allowed]
    return tuple(share for share in shares if least <= share < WHOLE)


def _spread(shares: Sequence[float], most: int) -> list[float]:
    places = (round((n + 0.5) * len(shares) / most - 0.5) for n in range(most))
    return list(shares) if len(shares) <= most else [shares[place] for place in places]


def check_set(jobs: int) -> None:
    """Refuse more jobs than sets were measured of, or fewer.

    Raises:
        InputError: so many jobs.
    """
    if not ADVISED_JOBS <= jobs <= MOST_JOBS:
        raise InputError(
            f"there is no advice for {jobs} job{'s' if jobs != 1 else ''} on one GPU",
            why=f"sets of two to {MOST_JOBS} were measured",
            fix="name two to seven jobs; for a queue of jobs ask for a plan: advisor place",
        )


# How much more than under MPS time slicing must be worth: few were measured, and contexts start
# slowly there.
_SLICING_MARGIN = 0.05


@dataclass(frozen=True)
class RatedSplit:
    """One option of running jobs on one GPU.

    Attributes:
        predictions: Of all options.
        place: Of this one among them.
        value: By the objective that decides.
        violations: Limits that it breaks; empty: it can be chosen.
    """

    predictions: Predictions = field(repr=False, compare=False)
    place: int
    split: Split
    value: float
    violations: tuple[Violation, ...]

    @functools.cached_property
    def prediction(self) -> Prediction:
        """What is expected of the jobs."""
        return self.predictions[self.place]

    @property
    def name(self) -> str:
        """The split as people write it: 30/70, `uncapped` or `exclusive`."""
        return str(self.split)

    @property
    def sharing(self) -> Sharing:
        """How the jobs use the GPU."""
        return self.split.sharing

    @property
    def score(self) -> float:
        """Objective value divided by (1 + margin); only time slicing has a margin."""
        return with_margin(self.value, self.sharing)

    def gain_over(self, other: "RatedSplit") -> float:
        """Relative difference of the value; 0.1 is a tenth more than the other's."""
        return self.value / other.value - 1 if other.value else float("inf")

    @property
    def worst_violation(self) -> Violation:
        """The limit that an option misses by most."""
        return max(self.violations, key=lambda violation: (violation.by, violation.text))

    def environments(self, profiles: Sequence[Profile]) -> tuple[dict[str, str], ...]:
        """Variables that limit each job, and that bound its memory as in its profile.

        Raises:
            InputError: an AMD GPU of which no profile has the number of CUs.
        """
        total = next((p.units_total for p in profiles if p.units_total), None)
        limits = self.split.environments(total, vendor_of(profiles[0].gpu_model))
        return tuple(
            limit | read_bound(profile.memory_bound)[0]
            for limit, profile in zip(limits, profiles, strict=True)
        )

    def accepting(self, profiles: Sequence[Profile], request: Request) -> str:
        """The command line options that accept it; empty: it misses more than floors and tails.

        A server's demand is no floor that a lower number loosens.
        """
        options, p, place = list[str](), self.predictions, self.place
        speeds = sure_speeds(p.speeds[0, :, place], p.speeds[1, :, place], request.policy.chance)
        for job, (profile, speed) in enumerate(zip(profiles, speeds.tolist(), strict=True)):
            if speed < request.floor(profile):
                if is_served(profile):
                    return ""
                options.append(f"--min-speed {profile.job}={math.floor(100 * speed) / 100:g}")
            most_ms = request.longest_p99_ms(profile)
            beside = p.part(place, job).latency_p99_ms
            chance = request.p99_chance(profile, profiles)
            if most_ms and beside and sure_p99_ms(beside, chance) > most_ms:
                sure_ms = sure_p99_ms(beside, request.p99_chance(profile, profiles, is_given=True))
                options.append(f"--max-p99 {profile.job}={math.ceil(sure_ms)}ms")
        return "" if len(options) < len(self.violations) else " ".join(dict.fromkeys(options))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Decision:
    """How jobs are to run, and every option that was looked at.

    Attributes:
        profiles: Of the jobs, in the order asked.
        request: With the memory of the card, where it is known.
        options: Limited ones by their shares, then without limits, a GPU for each job last.
        choice: One of them; None: a GPU for each job.
        call: Where there is no choice, an option that saves GPU time for little more energy, so
            that prices decide; None: there is none.
    """

    profiles: tuple[Profile, ...]
    request: Request
    options: tuple[RatedSplit, ...]
    choice: RatedSplit | None
    call: RatedSplit | None

    @property
    def sharing_option(self) -> RatedSplit | None:
        """The option of sharing that the answer is about; None: there is none."""
        return self.choice or self.call

    @property
    def verdict(self) -> SharingVerdict:
        """Whether to share."""
        return "share" if self.choice else "your call" if self.call else "do not share"

    @property
    def apart(self) -> RatedSplit:
        """A GPU for each job; of jobs that can wait the same energy one after the other."""
        return self.options[-1]

    @property
    def chosen(self) -> RatedSplit:
        """What is advised: an option of sharing, or a GPU for each job."""
        return self.choice or self.apart

    def best_of_each(self) -> tuple[RatedSplit, ...]:
        """The best option of each kind of sharing; where none keeps the limits, the nearest.

        Those with a job below normal priority are a kind. The one that the answer is about is among
        them.
        """
        tie, best = self.request.policy.tie, list[RatedSplit]()
        for options in grouped(self.options, lambda o: o.split.below_normal or o.sharing).values():
            if kept := [option for option in options if not option.violations]:
                best.append(best_of(kept, self.profiles, tie))
            else:
                least = min(option.worst_violation.by for option in options)
                near = [option for option in options if option.worst_violation.by == least]
                best.append(best_of(near, self.profiles, tie))
        if self.sharing_option and self.sharing_option not in best:
            best.append(self.sharing_option)
        return tuple(best)

    def picks(self) -> Mapping[str, RatedSplit]:
        """What would be chosen by each objective that is shown next to the one that decides."""
        request, profiles = self.request, self.profiles
        kept = [o for o in self.options if not o.violations or o is self.apart]
        picks: dict[str, RatedSplit] = {}
        # Energy and time are shown next to the objective that decides.
        for name in dict.fromkeys((request.objective.name, DEFAULT_OBJECTIVE, "throughput")):
            by = request.policy.prices.priced(ADVISED[name])
            values = _values_of(kept[0].predictions, profiles, by, request)
            valued = [replace(option, value=values[option.place]) for option in kept]
            picks[name] = self.options[best_of(valued, profiles, request.policy.tie).place]
        picks[request.objective.name] = self.chosen
        return picks

    def same_work(self, option: RatedSplit) -> "_WorkToTheEnd":
        """The work of the request, or of an hour of an option: that way and one after the other."""
        split, result, request = option.split, option.prediction.result, self.request
        work = request.work or result.work_in(HOUR_S)
        return _WorkToTheEnd(
            work=work,
            choice=_to_the_end(split, result, self.profiles, work),
            restarted=result.finish(work) if split.is_limited and request.work else None,
            exclusive=self.apart.prediction.result.sequential(work),
        )

    def near_miss(self) -> str | None:
        """The nearest better option expected to keep every limit, and the flag to accept it."""
        request, profiles = self.request, self.profiles
        least = self.choice.score if self.choice else 1 + request.policy.min_gain
        enough = least * (1 + request.policy.tie)
        if not (better := [o for o in self.options if o.violations and o.score > enough]):
            return None
        as_expected = replace(request, policy=replace(request.policy, chance=0.5))
        broken = as_expected.violations(self.apart.predictions, profiles)
        for option in sorted(better, key=lambda option: (option.worst_violation.by, -option.score)):
            if not broken[option.place] and (accepted := option.accepting(profiles, request)):
                jobs = (profile.job for profile in profiles)
                limits = "" if option.split.below_normal else limits_text(jobs, option.split.shares)
                saved = less_or_more(option.prediction.energy_saved.value, 0)
                return (
                    f"{limits or option.name} would take {saved} energy; accept it with {accepted}"
                )
        return None

    @property
    def sharing_or_nearest(self) -> RatedSplit:
        """The option that it names; else the best that breaks a limit or saves too little."""
        if self.sharing_option:
            return self.sharing_option
        options, policy = self.options[:-1], self.request.policy
        if self.request.isolate:
            options = tuple(o for o in options if o.sharing in ISOLATING) or options
        if barred := [o for o in options if o.score >= self.apart.score * (1 + policy.min_gain)]:
            return nearest(barred)
        kept = [option for option in options if not option.violations]
        return best_of(kept or options, self.profiles, policy.tie)


class Outlook:
    """Options of jobs and what they would do, each worked out once for all requests.

    Args:
        profiles: Of two to seven jobs on one GPU model, copies as often as they run.
        predictor: Says what to expect of options.
        checked: What the check of this GPU model found; no option has a count that is unsafe.
        measured: Splits at which these jobs were measured together.

    Raises:
        InputError: fewer jobs, or more.
    """

    def __init__(
        self,
        profiles: Sequence[Profile],
        predictor: Predictor,
        checked: CheckedCounts | None = None,
        measured: Iterable[Split] = (),
    ) -> None:
        check_set(len(profiles))
        self.profiles, self.checked, self._predictor = tuple(profiles), checked, predictor
        self.measured = tuple(measured)
        # Two threads that ask at once both work it out.
        self.expected = functools.cache(self._expected)

    def _expected(self, *, fine: bool = False, running: Running | None = None) -> Predictions:
        """Predictions of all options."""
        return self.predict(
            options_of(self.profiles, self.checked, self.measured, fine=fine, running=running)
        )

    def predict(self, splits: Sequence[Split]) -> Predictions:
        """What the jobs would do at other splits."""
        return self._predictor.predict(self.profiles, splits)


def decide(
    outlook: Outlook,
    request: Request | None = None,
    *,
    running: Running | None = None,
) -> Decision:
    """The option that is worth most and keeps every limit, or a GPU for each job.

    Jobs share where that is worth the least gain of the policy more than a GPU for each; of options
    worth the same that with the fewest and the loosest limits is taken. Where all but the last job
    are `running`, only the share of that one is open.

    Raises:
        InputError: profiles of two GPU models, a limit for a job that is not there, a card too
            small for one job alone, an unknown objective, or fine splits that cannot be meant.
        NoSplitError: nothing keeps every limit, not even a GPU for each job.
    """
    profiles = outlook.profiles
    request = (request or Request()).with_card_memory(profiles[0].gpu_model)
    _check_request(profiles, request)
    objective, policy = request.objective, request.policy
    predictions = outlook.expected(fine=request.fine, running=running)
    values = _values_of(predictions, profiles, objective, request)
    broken = request.violations(predictions, profiles)
    each = zip(itertools.count(), predictions.splits, values, broken, strict=False)
    *shared, apart = options = tuple(RatedSplit(predictions, *rated) for rated in each)
    kept = [option for option in shared if not option.violations]
    # Where a GPU for each breaks a limit, too, an option that keeps all need not gain anything.
    only_shared = any(request.violations_alone(profile) for profile in profiles)
    least = apart.value * (1 + policy.min_gain)
    enough = [option for option in kept if only_shared or option.score >= least]
    if not enough and only_shared:
        raise _no_option(options, profiles, request)
    # Time slicing saves hours by a prediction that is less sure.
    calls: Sequence[Sharing] = ISOLATING if request.isolate else ("limited", "uncapped")
    return Decision(
        profiles=profiles,
        request=request,
        options=options,
        choice=best_of(enough, profiles, policy.tie) if enough else None,
        call=None if enough else _their_call(kept, policy.prices, calls),
    )


def _check_request(profiles: Sequence[Profile], request: Request) -> None:
    """Refuse profiles of several GPU models, and limits that are for none of these jobs.

    Raises:
        InputError: there are such.
    """
    if len({profile.gpu_model for profile in profiles}) > 1:
        raise InputError(
            f"the profile of {', that of '.join(f'{p.job} is of {p.gpu_model}' for p in profiles)}",
            why="jobs that share a GPU run on the same one",
            fix="give profiles of one GPU model",
        )
    request.check_limits(profiles)
    check_jobs_fit(profiles, request.memory_mib)
    several = [profile.job for profile in profiles if profile.gpus > 1]
    wishes = "max_power_w", "work", "fine", "isolate"
    given = [name for name in wishes if several and getattr(request, name)] + several[1:]
    if given:
        raise InputError(
            f"{several[0]}, which holds several GPUs, cannot be advised with {given[0]} yet",
            why="one such job with neighbours on each GPU, under MPS, is what can be said",
            fix="leave that out",
        )


def _values_of(
    p: Predictions, profiles: Sequence[Profile], by: Objective, request: Request
) -> list[float]:
    """What each option is worth."""
    if not request.work or by.name not in TO_THE_END:
        return p.values(by)
    work, prices = request.work, request.policy.prices
    return [
        gain_to_the_end(prediction.split, profiles, work, by, prices)(prediction.result)
        for prediction in p
    ]


def with_margin(value: float, sharing: Sharing) -> float:
    """The value, lowered for time slicing by the lead it must have."""
    return value / (1 + _SLICING_MARGIN) if sharing == "time-sliced" else value


def best_of(options: Iterable[RatedSplit], profiles: Sequence[Profile], tie: float) -> RatedSplit:
    """The option that is worth most; of those within the tie that with the fewest, loosest limits.

    Raises:
        InputError: there is no option.
    """
    jobs = [profile.job for profile in profiles]
    return best_within_tie(
        options,
        lambda option: option.score,
        tie,
        lambda option, value: fewest_limits(option.split, jobs, value),
    )


def fewest_limits(split: Split, jobs: Sequence[str], value: float) -> tuple[object, ...]:
    """What orders splits that are worth the same, the smallest first, in any order of the jobs.

    The fewest limits and priorities, the most even ones, the loosest, then what is worth more.
    """
    limits = [WHOLE - share for share in split.shares if share < WHOLE]
    return (
        len(limits) + len(split.below_normal),
        split.gap_percent if limits else 0.0,
        sum(limits),
        SHARINGS.index(split.sharing),
        -value,
        sorted(zip(jobs, split.shares, strict=True)),
    )


def most_valuable(options: Iterable[RatedSplit]) -> RatedSplit:
    """The option with the highest value, limits or not, without a tie."""
    return best_within_tie(
        options,
        lambda o: o.value,
        0.0,
        lambda o, _: (SHARINGS.index(o.sharing), o.split.gap_percent, o.name),
    )


def nearest(options: Iterable[RatedSplit]) -> RatedSplit:
    """Of options that all break limits, the one whose worst miss is the smallest."""
    return min(
        options,
        key=lambda o: (
            o.worst_violation.by,
            SHARINGS.index(o.sharing),
            o.split.gap_percent,
            o.name,
        ),
    )


LEAST_TIME_SAVED = 0.05
"""Part of the GPU time that makes it a question at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Savings:
    """Parts that are saved for the same work, against one after the other; below 0 it takes more.

    Attributes:
        gpu_time: Of the hours that a GPU is held.
        energy: With the watts of the server, where they are set.
        energy_idle: The same against separate GPUs, where freed GPUs idle.
        cost: None: nothing has a price.
    """

    gpu_time: Interval
    energy: Interval
    energy_idle: Interval
    cost: Interval | None


def savings_of(p: Prediction, prices: Prices, idle_w: float = 0.0) -> _Savings:
    """Savings of an option; free GPUs draw idle power, W."""
    beside = p.range_of(lambda result: prices.with_host(result).energy_saved)
    energy = beside if prices.host_w else p.energy_saved
    cost = p.range_of(lambda result: _saved(prices.cost_ratio(result))) if prices.are_set else None
    time = Interval(_saved(p.stp.value), _saved(p.stp.low), _saved(p.stp.high))
    result = prices.with_host(p.result)
    # One after the other takes one card as well: nothing becomes free.
    freed_w = 0.0 if p.split.sharing == "exclusive" else idle_w
    more = result.energy_saved - result.energy_saved_beside(freed_w) if freed_w else 0.0
    idle = Interval(energy.value - more, energy.low - more, energy.high - more)
    return _Savings(gpu_time=time, energy=energy, energy_idle=idle, cost=cost)


def _their_call(
    options: Iterable[RatedSplit], prices: Prices, sharings: Collection[Sharing]
) -> RatedSplit | None:
    """The way that saves most GPU time for little more energy, where jobs are not to share.

    None: no way of these sharings that keeps the limits saves enough.
    """
    open_options = [
        o
        for o in options
        if o.sharing in sharings
        and not o.violations
        and _saved(o.prediction.result.stp) >= LEAST_TIME_SAVED
        # Where sharing takes up to a tenth more energy and saves GPU time, it is a question of
        # prices: at 2.50 a GPU hour and 0.15 a kWh energy is about 3 % of the cost.
        and prices.with_host(o.prediction.result).energy_saved >= -0.1
    ]
    return max(open_options, key=lambda o: _saved(o.prediction.result.stp), default=None)


def _saved(ratio: float) -> float:
    return 1 - 1 / ratio if ratio > 0 else -float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorkToTheEnd:
    """One amount of work, done in several ways.

    Attributes:
        work: What was asked for; else what the chosen way does in an hour.
        choice: The chosen way; where one job ends first, the other goes on under its limit.
        restarted: The same, the other restarted without a limit; None where both end together.
        exclusive: One job after the other.
    """

    work: Work
    choice: Finish
    restarted: Finish | None
    exclusive: Finish


def gain_to_the_end(
    split: Split,
    profiles: Sequence[Profile],
    work: Work,
    objective: Objective,
    prices: Prices = NO_PRICES,
) -> Callable[[SplitResult], float]:
    """Energy, time or cost of the work one after the other, for each one that it takes this way."""

    def spent(done: Finish) -> float:
        if objective.name == COST:
            return prices.of(done.time_s, done.energy_j)
        if objective.name == DEFAULT_OBJECTIVE:
            return done.energy_j + prices.host_w * done.time_s
        return done.time_s

    def gain(result: SplitResult) -> float:
        return spent(result.sequential(work)) / spent(_to_the_end(split, result, profiles, work))

    return gain


def _to_the_end(
    split: Split, result: SplitResult, profiles: Sequence[Profile], work: Work
) -> Finish:
    """All jobs until they are done; the limit of the one that goes on stays."""
    if split.sharing == "exclusive":
        return result.sequential(work)
    rests = map(rest_of, profiles, split.shares) if split.is_limited else ()
    return result.finish(work, [*rests])


@functools.lru_cache(maxsize=4096)
def rest_of(profile: Profile, share: float) -> Rest:
    """A job alone under its limit, from its profile."""
    at = profile.at([share])
    return Rest(
        float(at["rate"][0]) / profile.whole_gpu_rate, profile.gpus * float(at["power_w"][0])
    )


def _no_option(
    options: Sequence[RatedSplit], profiles: Sequence[Profile], request: Request
) -> NoSplitError:
    """The error of options that all break limits: what comes nearest, and what would help."""
    ceiling_w, gpu_model = request.max_power_w, profiles[0].gpu_model
    enough = _enough(options, profiles, request)
    if ceiling_w is not None and ceiling_w < profiles[0].idle_power_w:
        return NoSplitError(
            f"nothing runs within {ceiling_w:g} W",
            why=f"the {gpu_model} draws {profiles[0].idle_power_w:.4g} W without any job",
            fix=enough or "allow more",
        )
    near, jobs = nearest(options), counted(profile.job for profile in profiles)
    accepted = near.accepting(profiles, request)
    accepted = f"allow it: {accepted}" if accepted else "loosen that limit"
    worst = max(
        itertools.chain.from_iterable(map(request.violations_alone, profiles)),
        key=lambda violation: violation.by,
        default=None,
    )
    replaced = (
        f"; a GPU for each does not help: {worst.text}"
        if worst
        else ", or give each job a GPU of its own"
    )
    return NoSplitError(
        f"{jobs} cannot run on one {gpu_model} within these limits",
        why=f"nearest is {near.name}: {'; '.join(dict.fromkeys(v.text for v in near.violations))}",
        fix=f"{enough or accepted}{replaced}",
    )


def _enough(
    options: Sequence[RatedSplit], profiles: Sequence[Profile], request: Request
) -> str | None:
    """The lowest ceiling of power at which something keeps all other limits; None: it is not it."""
    if request.max_power_w is None:
        return None
    free, p = replace(request, max_power_w=None), options[0].predictions
    broken = free.violations(p, profiles)
    kept = {o: most_power_w(p, o.place, profiles) for o in options if not broken[o.place]}
    if (least := min(kept, key=kept.__getitem__, default=None)) is None:
        return None
    what = "one after the other" if least.sharing == "exclusive" else least.name
    # Rounded up, so that it is enough.
    return f"allow {math.ceil(kept[least])} W, which {what} needs"


def replicas(
    outlooks: Iterable[Outlook], request: Request
) -> tuple[tuple[Decision, ...], Replicas]:
    """The largest number of copies that are to share, each of which adds work.

    Args:
        outlooks: Of two copies, of three, and so on; looked at until one more is too many.
        request: Limits of each copy; `min_gain` is also what one more must add to the rate of all.

    Returns:
        Decisions on two copies and more, up to the best number, and on one more, where that was
        looked at; and the answer, still without the figures of its copies.

    Raises:
        InputError: limits that are not for this job.
        NoSplitError: not even one keeps its limits.
    """
    decisions, best, rate, ended = list[Decision](), 1, 1.0, None
    copies = tuple(outlooks)
    most = max((n for n, outlook in enumerate(copies, start=2) if outlook.measured), default=0)
    for number, outlook in enumerate(copies, start=2):
        if ended and number > most:
            break
        profile = outlook.profiles[0]
        _check_request([profile], request)
        if broken := request.violations_alone(profile):
            raise NoSplitError(f"not even one copy keeps its limits: {broken[0].text}")
        decisions.append(decision := decide(outlook, request))
        option = decision.sharing_or_nearest
        more = option.prediction.stp.value
        end = _end(decision, (more / rate) ** (1 / (number - best)) - 1)
        # Where more were measured to keep their limits, fewer do, whatever is predicted of them.
        if end is None and (ended is None or option.split in outlook.measured):
            best, rate, ended = number, more, None
        ended = ended or end
    ended_by, why = ended or (None, f"{best} is the most that was looked at (--most)")
    return tuple(decisions[:best]), Replicas(best=best, copies=(), ended_by=ended_by, why=why)


def _scarce(copies: Sequence[Profile]) -> str:
    """What copies want most of, for each 1 that there is; watts, for which the clock falls, too."""
    measured = [copy.measured or copy for copy in copies]
    jobs, limit_w = alone_at(measured, np.full((len(copies), 1), WHOLE)), copies[0].power_limit_w
    clock = jobs.clock(jobs.could, limit_w).item() if limit_w else 1.0
    wanted = {
        "SMs": np.where(jobs.needs > 0, jobs.needs, jobs.sm).sum(),
        "DRAM": jobs.dram.sum() * WHOLE / FULL_BANDWIDTH_PERCENT,
        "power": 1 / clock if clock < 1 else 0.0,
    }
    return max(wanted, key=wanted.__getitem__)


def _end(decision: Decision, added: float) -> tuple[str, str] | None:
    """Why the last copy is one too many: a code and a sentence; None: it is not."""
    profiles, request, option = decision.profiles, decision.request, decision.sharing_or_nearest
    scarce, least = _scarce(profiles), request.policy.min_gain
    if decision.choice is None:
        for limit, rule in RULES.items():
            for places, violation in rule(option.predictions, profiles, request):
                if option.place in places:
                    return scarce if limit == "speed" else limit, violation.text
        gain = 100 * (option.score / decision.apart.score - 1)
        gained = f"{gain:.1f} %, less than {100 * least:g} %" if gain > 0 else "nothing"
        return scarce, f"{len(profiles)} copies would gain {gained}"
    why = f"one more adds {100 * added:.1f} % to the rate of all"
    return (scarce, why) if added < least else None


def reasons(decision: Decision) -> tuple[str, ...]:
    """Why this way, what each job keeps at its share, and what both want together."""
    each = (_why_not_more, _why_this_option, _shares, _supply)
    return tuple(dict.fromkeys(text for of in each for text in of(decision)))


def warnings(decision: Decision) -> tuple[str, ...]:
    """What a reader should know before doing it."""
    at_risk = decision.request.risks(decision.chosen.predictions, decision.chosen.place)
    # Of a job beside itself everything is said once.
    return tuple(
        dict.fromkeys(
            (
                *_starved(decision),
                *_served(decision),
                *_unlimited(decision),
                *(f"at the bad end of its interval {risk.text}" for risk in at_risk),
                *_crowds(decision),
                *itertools.chain.from_iterable(map(_of_profile, decision.profiles)),
                *memory_unknown(decision.profiles, decision.request.memory_mib),
            )
        )
    )


def why_unsure(decision: Decision, checked: CheckedCounts | None) -> tuple[str, ...]:
    """Unchecked counts of the chosen split, on a GPU model that was checked."""
    split, profiles = decision.chosen.prediction.split, decision.profiles
    safeties = [profile.safety(checked) for profile in profiles]
    texts = unchecked_texts(split, [p.job for p in profiles], safeties)
    return tuple(dict.fromkeys(texts)) if split.is_limited else ()


def _why_not_more(decision: Decision) -> Iterator[str]:
    """Better options, and why they lose: too little gain, a tie, or a broken limit."""
    chosen, policy = decision.chosen, decision.request.policy
    if kept := [o for o in decision.options[:-1] if not o.violations]:
        possible = most_valuable(kept)
        gain = possible.gain_over(chosen)
        if possible.sharing == "time-sliced" and gain > 0:
            least = 0.0 if decision.choice else policy.min_gain
            needed = percent((1 + _SLICING_MARGIN) * (1 + least) - 1, 1)
            yield (
                f"{possible.name} is {percent(gain, 2)} better, and has to be {needed} better: its "
                "prediction is uncertain"
            )
        elif decision.choice is None and 0 < gain < policy.min_gain:
            yield (
                f"{possible.name} would gain {percent(gain, 1)}, below the minimum gain of "
                f"{percent(policy.min_gain)}: --min-gain 0 accepts it"
            )
        elif gain > 0:
            yield (
                f"{possible.name} is {percent(gain, 2)} better, which is a tie: the fewest and the "
                "loosest limits win"
            )
    barred = most_valuable(decision.options)
    if barred.violations and barred.gain_over(chosen) > policy.tie and barred is not decision.apart:
        more = percent(barred.gain_over(chosen), 1)
        yield f"{barred.name} would be {more} better, but {barred.worst_violation.text}"


def _why_this_option(decision: Decision) -> Iterator[str]:
    """For no sharing, or no limits: how the best of the other options compares."""
    chosen = decision.chosen
    if chosen.sharing == "limited":
        return
    others = [o for o in decision.options if o.sharing not in (chosen.sharing, "exclusive")]
    what = "sharing" if chosen.sharing == "exclusive" else "a split"
    if possible := [o for o in others if not o.violations]:
        other = most_valuable(possible)
        if other.gain_over(chosen) <= 0:
            less = -other.gain_over(chosen)
            worse = f"{percent(less, 1)} worse" if less >= 0.0005 else "no better"
            yield f"{what} does not pay: the best one, {other.name}, is {worse}"
    elif others:
        near = nearest(others)
        yield f"{what} breaks a limit: {near.name} is nearest, but {near.worst_violation.text}"


def _shares(decision: Decision) -> Iterator[str]:
    """Speed of each job alone at its share, and beside the others."""
    p = decision.chosen.prediction
    if not p.split.is_limited:
        return
    for profile, share, part in zip(decision.profiles, p.split.shares, p.parts, strict=True):
        alone = profile.at([share])["rate"][0] / profile.whole_gpu_rate
        yield (
            f"{profile.job} alone at {share:g} % runs at {percent(alone)} of its full speed, "
            f"beside the others at {percent(part.speed.value)}"
        )


def _supply(decision: Decision) -> Iterator[str]:
    """Power and memory bandwidth that all need together and the GPU lacks."""
    p = decision.chosen.prediction
    if p.split.sharing in ISOLATING or p.split.gpus:
        return
    jobs = alone_at([q.measured or q for q in decision.profiles], np.array([p.split.shares]).T)
    wanted_w, dram = float(jobs.together_w(jobs.could)[0]), WHOLE * float(jobs.dram.sum())
    limit_w = min(q.power_limit_w or math.inf for q in decision.profiles)
    if wanted_w > limit_w:
        left = float(jobs.clock(jobs.could, limit_w)[0])
        yield (
            f"all would draw {wanted_w:.0f} W: at the limit of {limit_w:.0f} W the clock falls by "
            f"{percent(1 - left)}"
        )
    if dram > FULL_BANDWIDTH_PERCENT:
        yield (
            f"together they need {dram:.0f} % of the memory bandwidth; "
            f"{FULL_BANDWIDTH_PERCENT:.0f} % is the most that jobs reach"
        )


def _starved(decision: Decision) -> Iterator[str]:
    p = decision.chosen.prediction
    for profile, part in zip(decision.profiles, p.parts, strict=True):
        if p.split.sharing != "exclusive" and (speed := part.speed.value) < 0.3:
            yield (
                f"{profile.job} runs at {percent(speed)} of its speed only; "
                "if that is too slow, ask for a minimum speed"
            )


def _served(decision: Decision) -> Iterator[str]:
    """Demand, latency and energy of servers under the chosen split."""
    p = decision.chosen.prediction
    if p.split.sharing == "exclusive":
        return
    for profile, part, share in zip(decision.profiles, p.parts, p.split.shares, strict=True):
        if profile.serving is None:
            continue
        if profile.serving.is_behind(profile.whole_gpu_rate):
            served = profile.whole_gpu_rate / (profile.serving.offered_rate or 1)
            yield f"{profile.job} serves {percent(served)} of its demand alone on the whole GPU"
        elif profile.serving.offered_rate is None:
            yield _undeclared(profile, profile.serving)
        yield _latency(profile, share, part.latency_p99_ms, decision.request)
    if any(map(is_served, decision.profiles)) and p.result.energy_saved < 0:
        more = percent(-p.result.energy_saved, 1)
        yield f"this takes {more} more energy than the same work with a GPU for each job"


def _undeclared(profile: Profile, serving: Serving) -> str:
    """What is known of the demand of a server that declares none.

    Clients that wait for answers are as many at half of the GPU, so by Little's law it answers less
    there as it answers later; one that falls behind what arrives answers far later than that.
    """
    whole, share = profile.whole_gpu_rate, max(WHOLE / 2, float(profile.shares[0]))
    rate = f"{in_digits(whole)} {profile.rate_unit}/s"
    gain = whole / float(profile.at([share], "rate")["rate"][0])
    later = (serving.p99_alone_ms(share) or 0.0) / (serving.p99_alone_ms(WHOLE) or math.inf)
    if gain > 1.1 and later < 1.5 * gain:
        return f"{profile.job} answers as fast as it can: {rate} alone"
    return (
        f"{rate} arrived at {profile.job} while it ran alone: not declared; to have them served "
        "whatever else runs, set `offered_rate` in its job file"
    )


def _latency(profile: Profile, share: float, beside: Interval | None, request: Request) -> str:
    if beside is None:
        return f"the latency of {profile.job} was not measured at {share:g} %"
    most_ms = request.longest_p99_ms(profile)
    alone_ms = profile.serving and profile.serving.p99_alone_ms(share)
    limit = "" if most_ms is None else f" of {most_ms:.4g} ms allowed"
    alone = "" if alone_ms is None else f": alone at {share:g} % it is {alone_ms:.3g} ms"
    return (
        f"the p99 latency of {profile.job} is expected at {in_digits(beside.value)} ms "
        f"({in_digits(beside.low)} to {in_digits(beside.high)}){limit}{alone}"
    )


def _unlimited(decision: Decision) -> Iterator[str]:
    if low := decision.chosen.split.below_normal:
        names = listed(decision.profiles[n].job for n in low)
        yield (
            f"{names} runs below normal priority: that is in its environment, and the driver does "
            "not tell whether it is taken"
        )
    elif decision.chosen.sharing == "uncapped":
        yield "without limits a job can take what another needs: speeds are hard to predict"
    elif decision.chosen.sharing == "time-sliced":
        model = decision.profiles[0].gpu_model
        elsewhere = f"; none was measured on {model}, so ranges are wide"
        yield (
            "time slicing is predicted by physics fitted to measured sets and pairs "
            f"(how far off: docs/measurements/sets.md){'' if model in MEASURED_ON else elsewhere}"
        )


def _crowds(decision: Decision) -> Iterator[str]:
    """Jobs that MPS gives more than their limit."""
    for profile, share in zip(decision.profiles, decision.chosen.split.shares, strict=True):
        if (clients := profile.mps_clients) > 1 and share < WHOLE:
            yield f"{profile.job} {Share(share).most_of(clients, None, None)}"


def _of_profile(profile: Profile) -> Iterator[str]:
    """What a profile lacks, or may have wrong."""
    if profile.missing:
        yield f"the profile of {profile.job} lacks {', '.join(profile.missing)}"
    if doubtful := sorted(DOUBTFUL & set(profile.flags)):
        meanings = "; ".join(f"{flag}: {FLAGS[flag]}" for flag in doubtful)
        yield f"the profile of {profile.job} has doubtful points ({meanings})"
    if options := read_bound(profile.memory_bound)[1]:
        yield f"{profile.job} {options}"
    if SINGLE_WINDOW in profile.flags:
        prior = f" by a prior with wide ranges (no job was learned from on {profile.gpu_model})"
        yield (
            f"{profile.job} was seen on the whole GPU alone, so its other shares are estimated"
            f"{prior if PRIOR in profile.flags else ''}; "
            f"measure them: advisor profile {profile.job}"
        )
    if profile.rate_unit == UNCOUNTED_UNIT:
        yield (
            f"the progress of {profile.job} was not counted while it was watched: its speeds are "
            "relative, and a launch of it has no forecast (docs/progress.md)"
        )
    if JOB_CHANGED in profile.flags:
        yield (
            f"{profile.job} was profiled again, on {profile.profiled_at[:10]}, after its job file "
            "changed: older points are not used"
        )
    if SLOW_ALONE in profile.flags:
        yield (
            f"{profile.job} was slower on the whole GPU than at a smaller share, held up by its "
            f"host: its speeds are uncertain; measure it again: advisor profile {profile.job}"
        )
    if profile.shares[0] > NINE[0].shares[0]:
        yield (
            f"{profile.job} was not measured below {profile.shares[0]:g} %: "
            "splits that give it less are left out"
        )
