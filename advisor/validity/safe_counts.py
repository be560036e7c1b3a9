"""Safe counts of units: those at which the libraries of this host compute right results. Pure.

Under MPS with a limited number of SMs a library may leave parts of a result out, at some counts and
not at others. `advisor check` finds them out; what a job says of its own results goes before that.
"""

import functools
import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from advisor.core.gpu import Vendor
from advisor.core.units import grantable

Counts: TypeAlias = tuple[int, ...]
"""Units of each job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCounts:
    """What a check found on one GPU model.

    Attributes:
        checked: Counts at which operations were compared.
        wrong: Names of the operations with wrong results, by count; a count without any is safe.
    """

    gpu_model: str
    units_total: int
    checked: frozenset[int]
    wrong: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Safety:
    """What is known of the counts at which one job may run; by default nothing.

    Attributes:
        units_total: SMs or CUs of the GPU; None where they are not known, and nothing is avoided
            then.
        vendor: Of the GPU: it says which counts can be granted.
        host: What the check of this host found; None: there was none.
        right: Counts at which the job's own results were right; they go before the check.
        wrong: Counts at which its own results were wrong; they go before both.
    """

    units_total: int | None = None
    host: CheckedCounts | None = None
    right: frozenset[int] = field(default=frozenset())
    wrong: frozenset[int] = field(default=frozenset())
    vendor: Vendor = "nvidia"

    @functools.cached_property
    def unsafe(self) -> frozenset[int]:
        """Counts at which the job must not run."""
        if self.units_total is None:
            return frozenset()
        by_host = {units for units, names in self.host.wrong.items() if names} if self.host else ()
        return (frozenset(by_host) - self.right) | self.wrong

    @functools.cached_property
    def allowed(self) -> tuple[int, ...]:
        """All counts that can be granted and that are not unsafe, ascending."""
        counts = grantable(self.units_total, self.vendor) if self.units_total else ()
        return tuple(units for units in counts if units not in self.unsafe)

    def is_unchecked(self, units: int) -> bool:
        """Whether nobody has looked at results at this count; it is allowed all the same."""
        known = self.right | self.wrong | (self.host.checked if self.host else frozenset[int]())
        return units not in known

    def nearest(self, units: int) -> int | None:
        """The allowed count nearest to this one, of two the smaller; None: there is none."""
        return min(self.allowed, key=lambda count: (abs(count - units), count), default=None)

    def around(self, units: int) -> tuple[int, ...]:
        """The next allowed counts below and above this one, as far as there are any."""
        below = [count for count in self.allowed if count <= units]
        above = [count for count in self.allowed if count > units]
        return (*below[-1:], *above[:1])


def safe_counts(
    wanted: Counts, units_total: int, safeties: Sequence[Safety], *, mirrored: bool = False
) -> Counts | None:
    """The allowed counts of jobs that are nearest to the wanted ones.

    Nearest by the sum of all distances; of equally near ones the larger sum, then the more even,
    then the one that gives more to the job that was to have more.

    Args:
        wanted: Counts of all jobs.
        units_total: SMs of the GPU; all counts together never exceed them.
        safeties: What is known of each job.
        mirrored: Of two mirror images that are left then, the one that gives the last job less,
            not the first: see `advisor.core.split.evenness`. Where the jobs and this are swapped,
            so is the answer.

    Returns:
        None where no allowed counts fit on the GPU.
    """
    # Of a job whose number of SMs is not known nothing is avoided.
    every = tuple(grantable(units_total))
    allowed = tuple(every if s.units_total is None else s.allowed for s in safeties)
    return _nearest(wanted, units_total, allowed, mirrored)


# The same few splits are asked for with every pair of jobs.
@functools.lru_cache(maxsize=4096)
def _nearest(
    wanted: Counts, units_total: int, allowed: tuple[Counts, ...], mirrored: bool
) -> Counts | None:
    def apart(counts: Counts) -> int:
        return sum(map(abs, map(operator.sub, counts, wanted)))

    def order(counts: Counts) -> tuple[int, int, int, Counts]:
        gap = max(counts) - min(counts)
        return -sum(counts), gap, _turned(counts, wanted), counts[::-1] if mirrored else counts

    near = _near(wanted, units_total, allowed)
    fitting = [c for c in itertools.product(*near) if sum(c) <= units_total]
    nearest = min(map(apart, fitting), default=0)
    return min((c for c in fitting if apart(c) == nearest), key=order, default=None)


def _near(wanted: Counts, units_total: int, allowed: tuple[Counts, ...]) -> tuple[Counts, ...]:
    """Of each job the allowed counts that can be among the nearest: pairs of all are thousands.

    Where the wanted counts fit, so do the allowed ones next below them; a count that is farther off
    than these are together is not among the nearest.
    """
    jobs = tuple(zip(allowed, wanted, strict=True))
    below = [[count for count in counts if count <= units] for counts, units in jobs]
    if sum(wanted) > units_total or not all(below):
        return allowed
    most = sum(wanted) - sum(map(max, below))
    return tuple(tuple(n for n in counts if abs(n - units) <= most) for counts, units in jobs)


def _turned(counts: Counts, wanted: Counts) -> int:
    """Index pairs whose order of shares was inverted by rounding to safe counts."""
    pairs = itertools.combinations(zip(counts, wanted, strict=True), 2)
    return sum(
        (one - other) * (asked - other_asked) < 0 for (one, asked), (other, other_asked) in pairs
    )
