"""What launches took, beside what the same work takes with a whole GPU for each job. Pure.

Both are of the time in which jobs ran: neither holds a start, which each job has alone as well.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from advisor.core.objectives import Prices

_KWH_J = 3.6e6
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Observed: counted steps, and the energy of the GPU; rates and power alone are of profiles.

    Attributes:
        held_s: How long jobs had the GPU.
        energy_j: Of the GPU in that time, as far as it was read.
        alone_s: How long the same steps hold a GPU, each job alone on all of one.
        alone_j: Energy of that, for the steps of the time in which energy was read.
        freed_idle_j: What the cards that sharing frees draw meanwhile where they idle; None: the
            idle power is not known.
        unread_s: Part of `held_s` of which no energy is known; nothing counts as saved in it. 0
            where that is less than a hundredth.
        starts_s, starts_j: From taking the GPU to opening the gates, and its energy as far as it
            was read; not part of `held_s` and `energy_j`.
    """

    held_s: float
    energy_j: float
    alone_s: float
    alone_j: float
    freed_idle_j: float | None
    unread_s: float = 0.0
    starts_s: float = 0.0
    starts_j: float = 0.0

    def part(self, of: float) -> "Ledger":
        """As much of all, from 0 to 1."""
        return Ledger(
            held_s=of * self.held_s,
            energy_j=of * self.energy_j,
            alone_s=of * self.alone_s,
            alone_j=of * self.alone_j,
            freed_idle_j=None if self.freed_idle_j is None else of * self.freed_idle_j,
            unread_s=of * self.unread_s,
            starts_s=of * self.starts_s,
            starts_j=of * self.starts_j,
        )


def add(one: Ledger | None, other: Ledger | None) -> Ledger | None:
    """Both together; what is not known of one is left out."""
    if one is None or other is None:
        return one or other
    idle = (one.freed_idle_j, other.freed_idle_j)
    return Ledger(
        held_s=one.held_s + other.held_s,
        energy_j=one.energy_j + other.energy_j,
        alone_s=one.alone_s + other.alone_s,
        alone_j=one.alone_j + other.alone_j,
        freed_idle_j=None if None in idle else sum(j for j in idle if j is not None),
        unread_s=one.unread_s + other.unread_s,
        starts_s=one.starts_s + other.starts_s,
        starts_j=one.starts_j + other.starts_j,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What launches saved in a time, observed; below 0 they took more.

    Attributes:
        since: Begin of the time, ISO 8601.
        launches: How many ran in it.
        uncounted: Those of them of which nothing is known: not every job has a profile, the
            energy could not be read, results were wrong, or a limit was broken.
        gpu_hours: For which the GPUs were held.
        gpu_hours_unread: Those of them of which no energy is known, and none counts as saved.
        kwh: Of these GPUs.
        gpu_hours_saved: Against a whole GPU for each job, for the same work.
        kwh_saved: The same, where cards that become free are switched off.
        kwh_saved_idle: Where they idle; of `idle_known` launches, None where that is 0.
        idle_known: Launches of which the idle power is known.
        cost_saved: By the prices of the settings; None: nothing has a price.
    """

    since: str
    launches: int
    uncounted: int
    gpu_hours: float
    gpu_hours_unread: float
    kwh: float
    gpu_hours_saved: float
    kwh_saved: float
    kwh_saved_idle: float | None
    idle_known: int
    cost_saved: float | None


def saved(since: str, ledgers: Iterable[Ledger | None], prices: Prices) -> Saved:
    """The sum of launches; None: one of which nothing is known."""
    found = [*ledgers]
    known = [one for one in found if one is not None]
    idle = [
        one.alone_j - one.energy_j - one.freed_idle_j
        for one in known
        if one.freed_idle_j is not None
    ]
    held_s, energy_j = sum(one.held_s for one in known), sum(one.energy_j for one in known)
    alone_s, alone_j = sum(one.alone_s for one in known), sum(one.alone_j for one in known)
    cost = prices.of(alone_s, alone_j) - prices.of(held_s, energy_j)
    return Saved(
        since=since,
        launches=len(found),
        uncounted=len(found) - len(known),
        gpu_hours=held_s / _HOUR_S,
        gpu_hours_unread=sum(one.unread_s for one in known) / _HOUR_S,
        kwh=energy_j / _KWH_J,
        gpu_hours_saved=(alone_s - held_s) / _HOUR_S,
        kwh_saved=(alone_j - energy_j) / _KWH_J,
        kwh_saved_idle=sum(idle) / _KWH_J if idle else None,
        idle_known=len(idle),
        cost_saved=cost if prices.are_set else None,
    )
