"""How many copies of one job a GPU holds, and what ends their number. Pure.

So many copies are decided on as any set of so many jobs is. A copy of a server brings its own
demand; a copy of another job takes what it gets.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from advisor.core.gpu import ISOLATING
from advisor.decide.decision import (
    Decision,
    Outlook,
    RatedSplit,
    best_of,
    check_request,
    decide,
    nearest,
)
from advisor.decide.limits import RULES, Request, violations_alone
from advisor.errors import NoSplitError
from advisor.predict.profiles import Profile


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FoundCopies:
    """How many copies of a job one GPU holds.

    Attributes:
        best: Number of copies to run.
        decisions: Of two copies and more, up to `best`, and of one more, where that was looked at.
        ended_by: What one more lacks, or the limit that it breaks; None: no more were asked for.
        why: The same in words.
    """

    best: int
    decisions: tuple[Decision, ...]
    ended_by: str | None
    why: str


def replicas(outlooks: Iterable[Outlook], request: Request) -> FoundCopies:
    """The largest number of copies that are to share, each of which adds work.

    Args:
        outlooks: Of two copies, of three, and so on; looked at until one more is too many.
        request: Limits of each copy; `min_gain` is also what one more must add to the rate of all.

    Raises:
        InputError: limits that are not for this job.
        NoSplitError: not even one keeps its limits.
    """
    found, rate, number = list[Decision](), 1.0, 1
    for number, outlook in enumerate(outlooks, start=2):
        profile = outlook.profiles[0]
        check_request([profile], request)
        if broken := violations_alone(profile, request):
            raise NoSplitError(f"not even one copy keeps its limits: {broken[0].text}")
        decision = decide(outlook, request)
        found.append(decision)
        more = way_of(decision).prediction.stp.value
        if end := _end(decision, more / rate - 1):
            ended_by, why = end
            return FoundCopies(best=number - 1, decisions=tuple(found), ended_by=ended_by, why=why)
        rate = more
    why = f"no more than {number} were asked for"
    return FoundCopies(best=number, decisions=tuple(found), ended_by=None, why=why)


def way_of(decision: Decision) -> RatedSplit:
    """The option that a decision names; else the best that breaks a limit or saves too little."""
    if decision.way:
        return decision.way
    ways, policy = decision.options[:-1], decision.request.policy
    if decision.request.isolate:
        ways = tuple(o for o in ways if o.sharing in ISOLATING) or ways
    if barred := [o for o in ways if o.worth >= decision.apart.worth * (1 + policy.min_gain)]:
        return nearest(barred)
    kept = [option for option in ways if not option.violations]
    return best_of(kept or ways, decision.profiles, policy.tie)


def _end(decision: Decision, added: float) -> tuple[str, str] | None:
    """Why the last copy is one too many: a code and a sentence; None: it is not."""
    profiles, request, way = decision.profiles, decision.request, way_of(decision)
    scarce, least = _scarce(profiles[0]), request.policy.min_gain
    if decision.choice is None:
        for limit, rule in RULES.items():
            for places, violation in rule(way.predictions, profiles, request):
                if way.place in places:
                    return scarce if limit == "speed" else limit, violation.text
        gain = 100 * (way.worth / decision.apart.worth - 1)
        gained = f"{gain:.1f} %, less than {100 * least:g} %" if gain > 0 else "nothing"
        return scarce, f"{len(profiles)} copies would gain {gained}"
    if added < least:
        return scarce, f"one more adds {100 * added:.1f} % to the rate of all"
    return None


def _scarce(profile: Profile) -> str:
    """What copies run out of first: a server's demand leaves room for either."""
    sm, dram = (float(profile.values[f"{name}_active_percent"][-1]) for name in ("sm", "dram"))
    return "DRAM" if dram > sm else "SMs"
