"""Which waiting job runs next beside those that run on a GPU, and what that saves. Pure.

What is compared is the same work: all together now, against those that run going on without the
newcomer, which has the GPU for itself afterwards.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from advisor.core.gpu import WHOLE
from advisor.core.interval import Interval
from advisor.core.split import ISOLATING, Split
from advisor.decide.decision import Decision
from advisor.decide.limits import is_served
from advisor.decide.options import Running
from advisor.predict.predictions import Prediction, predicted_part
from advisor.predict.profiles import Profile

_Ask = Callable[[Sequence[Profile], Running | None], Decision | None]
"""The advice for a set, all but the last of which may be running; None: there is no way."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Beside:
    """A job beside those that run.

    Attributes:
        time_saved: Part of the GPU time of the same work, against waiting; below 0 it takes more.
        energy_saved: The same of energy.
    """

    profile: Profile
    prediction: Prediction
    time_saved: float
    energy_saved: float

    @property
    def worth(self) -> float:
        """The energy times the time of waiting, for each 1 of this."""
        return 1 / ((1 - self.time_saved) * (1 - self.energy_saved))


def best_beside(
    there: Sequence[Profile],
    now: Prediction,
    waiting: Iterable[Profile],
    ask: _Ask,
    running: Running | None = None,
) -> Beside | None:
    """The waiting job that saves most beside those that are there; None: all better wait.

    Jobs share where their decision is to share. A server never ends, so no job can wait for it:
    beside a server every option that keeps the limits is taken.

    Args:
        there: Those on the GPU.
        now: What they do without a newcomer.
        waiting: Those among whom is chosen.
        ask: The advice for sets.
        running: Their shares, which stay; None: they are yet to start.
    """
    found: list[Beside] = []
    for profile in {profile.job: profile for profile in waiting}.values():
        decision = ask((*there, profile), running)
        if decision is None:
            continue
        way = decision.choice
        if way is None and any(map(is_served, (*there, profile))):
            kept = (o for o in decision.options if not o.violations and o.sharing != "exclusive")
            way = max(kept, key=lambda option: option.worth, default=None)
        # Of jobs in time slicing nobody who joins could have a limit.
        if way is not None and way.sharing not in ISOLATING:
            found.append(_beside(profile, way.prediction, now))
    return max(found, key=lambda beside: beside.worth, default=None)


def alone(profile: Profile, share_percent: float = WHOLE) -> Prediction:
    """What a job does that has the GPU for itself; a server has no more than its demand to do."""
    at = profile.at([share_percent])
    speed = min(1.0, float(at["rate"][0]) / profile.whole_gpu_rate)
    power_w = float(at["power_w"][0])
    return Prediction(
        split=Split((share_percent,)),
        parts=(predicted_part(profile, Interval(speed, speed, speed)),),
        power_w=Interval(power_w, power_w, power_w),
    )


def _beside(profile: Profile, together: Prediction, now: Prediction) -> Beside:
    *those, own = (part.speed.value for part in together.parts)
    # As much as they do together in a second takes so long without the newcomer.
    without_s = sum(those) / sum(part.speed.value for part in now.parts)
    waiting_s = without_s + own
    waiting_j = without_s * now.power_w.value + own * together.parts[-1].solo_power_w
    return Beside(
        profile=profile,
        prediction=together,
        time_saved=1 - 1 / waiting_s,
        energy_saved=1 - together.power_w.value / waiting_j,
    )
