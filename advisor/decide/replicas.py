"""How many copies of one job a GPU holds, and what ends their number. Pure.

A copy of a server brings its own demand; a copy of another job takes what it gets.
"""

from collections.abc import Iterator

from advisor.core.gpu import MPS_CLIENTS
from advisor.core.interval import Interval
from advisor.core.objectives import NO_PRICES
from advisor.core.split import MOST_JOBS, Sharing, without_limits
from advisor.decide.decision import worth_of
from advisor.decide.limits import (
    RULES,
    Request,
    check_limits,
    violations_alone,
    with_card_memory,
)
from advisor.errors import InputError, NoSplitError
from advisor.predict.predictions import Prediction, Predictor, predicted_part
from advisor.predict.profiles import Profile
from advisor.predict.sets import SetPredictor
from advisor.wire.answers import Copies, Replicas

NOTHING_SAVED = Interval(0.0, 0.0, 0.0)


def replicas(
    profile: Profile,
    request: Request,
    *,
    most: int = MOST_JOBS,
    predictor: Predictor | None = None,
) -> Replicas:
    """How many copies fit, under MPS without limits, or in turns where faults must stay apart.

    Args:
        profile: Of the job.
        request: Limits of each copy; `min_gain` is what one more must add to the rate of all.
        most: How many are looked at; beyond seven nothing was measured.
        predictor: Says what to expect of any number of them; None: physics alone.

    Raises:
        InputError: no such number, or limits that are not for this job.
        NoSplitError: not even one keeps its limits.
    """
    if not 1 <= most <= MPS_CLIENTS:
        raise InputError(
            f"{most} copies are not possible",
            why=f"MPS has {MPS_CLIENTS} clients for each GPU",
            fix=f"give a number from 1 to {MPS_CLIENTS}",
        )
    request = with_card_memory(request, profile.gpu_model)
    check_limits(request, [profile])
    if broken := violations_alone(profile, request):
        raise NoSplitError(f"not even one copy keeps its limits: {broken[0].text}")
    predictor = predictor or SetPredictor()
    sharing: Sharing = "time-sliced" if request.isolate else "uncapped"
    found, beyond, ended_by = [_alone(profile)], None, None
    why = f"no more than {most} were asked for"
    while beyond is None and len(found) < most:
        number = len(found) + 1
        split = without_limits(sharing, number)
        (p,) = predictor.predict([profile] * number, [split])
        more = _copies(p, profile)
        if end := next(_ends(profile, request, p, found[-1], more), None):
            beyond, (ended_by, why) = more, end
        else:
            found.append(more)
    return Replicas(
        job=profile.job,
        gpu_model=profile.gpu_model,
        rate_unit=profile.rate_unit,
        sharing=sharing,
        best=len(found),
        copies=tuple(found),
        beyond=beyond,
        ended_by=ended_by,
        why=why,
    )


def _ends(
    profile: Profile,
    request: Request,
    prediction: Prediction,
    fewer: Copies,
    more: Copies,
) -> Iterator[tuple[str, str]]:
    for limit, rule in RULES.items():
        for violation in rule(prediction, [profile] * more.number, request):
            yield _scarce(profile) if limit == "speed" else limit, violation.text
    gain = more.rate.value / fewer.rate.value - 1
    if gain < request.policy.min_gain:
        yield _scarce(profile), f"one more adds {100 * gain:.1f} % to the rate of all"


def _scarce(profile: Profile) -> str:
    """What copies run out of first: a server's demand leaves room for either."""
    sm, dram = (float(profile.values[f"{name}_active_percent"][-1]) for name in ("sm", "dram"))
    return "DRAM" if dram > sm else "SMs"


def _alone(profile: Profile) -> Copies:
    """One: measured, so the bounds are the values."""
    part = predicted_part(profile, Interval(1.0, 1.0, 1.0))
    watts = Interval(*[profile.whole_gpu_power_w] * 3)
    p99_ms = profile.serving and profile.serving.p99_alone_ms(float(profile.shares[-1]))
    return Copies(
        number=1,
        rate=part.rate,
        speed=part.speed,
        power_w=watts,
        joules=watts.times(1 / profile.whole_gpu_rate),
        energy_saved=NOTHING_SAVED,
        energy_saved_idle=NOTHING_SAVED,
        latency_p99_ms=Interval(p99_ms, p99_ms, p99_ms) if p99_ms else None,
    )


def _copies(p: Prediction, profile: Profile) -> Copies:
    part, number = p.parts[0], len(p.parts)
    worth = worth_of(p, NO_PRICES, profile.idle_power_w)
    rate = part.rate.times(number)
    joules = p.power_w.value / rate.value
    low, high = p.efficiency_factors or (1.0, 1.0)
    return Copies(
        number=number,
        rate=rate,
        speed=part.speed,
        power_w=p.power_w,
        joules=Interval(joules, joules / high, joules / low),
        energy_saved=worth.energy,
        energy_saved_idle=worth.energy_idle,
        latency_p99_ms=part.latency_p99_ms,
    )
