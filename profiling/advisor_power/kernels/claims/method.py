"""F6: what the steps of the method do to the readings."""

from collections.abc import Sequence

from advisor.wire.kernel_power import Estimate, Scatter
from advisor_power.kernels.claims.finding import (
    Finding,
    Verdict,
    at_least,
    at_most,
    not_yet,
    percents,
)
from advisor_power.kernels.estimates import mean_of
from advisor_power.kernels.scatter import FEW_RUNS

FALLS = 0.20
"""Part by which scatter falls by each of synchronisation and binning."""

FEW_DIFFER = 0.03
"""Part by which few runs differ from all."""


def steps_reduce_scatter(scatters: Sequence[Scatter]) -> Finding:
    """The method's own claim, over kernels; intervals are between kernels."""
    sync = [_fall(s.full_w, s.unsynchronised_w) for s in scatters if s.unsynchronised_w is not None]
    # Where all runs are golden, binning has nothing to do.
    binned = [_fall(s.full_w, s.unbinned_w or s.full_w) for s in scatters]
    few = [s.few_runs_differ for s in scatters if s.few_runs_differ is not None]
    if not sync or not few:
        return not_yet("F6", "no kernel has enough golden runs with the time of their launch")
    by_sync, by_binning, differ = mean_of(sync), mean_of(binned), mean_of(few)
    ours = (
        f"scatter falls by {percents(by_sync)} by synchronisation, {percents(by_binning)} by "
        f"binning; {FEW_RUNS} runs differ by {percents(differ)} from all; {len(scatters)} kernels"
    )
    why = f"each fall >= {FALLS:.0%} and {FEW_RUNS} runs within {FEW_DIFFER:.0%}"
    return Finding("F6", ours, _verdict((by_sync, by_binning), differ), why)


def _fall(full_w: float, without_w: float) -> float:
    return 1 - full_w / without_w if without_w else 0.0


def _verdict(falls: Sequence[Estimate], differ: Estimate) -> Verdict:
    if all(fall.value >= FALLS for fall in falls) and differ.value <= FEW_DIFFER:
        return "confirmed"
    falls_not = any(at_most(fall, FALLS) for fall in falls)
    return "refuted" if falls_not or at_least(differ, FEW_DIFFER) else "open"
