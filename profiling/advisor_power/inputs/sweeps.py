"""Kept results put together: the sweep of each claim, its change and its verdict."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from advisor.wire.power import (
    ClaimQuantity,
    ClaimVerdict,
    Estimate,
    InputCasePower,
    InputReport,
    InputSweep,
    SweepLevel,
)
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.claims import CLAIMS, Claim, with_seed
from advisor_power.inputs.result import InputPower
from advisor_power.inputs.verdicts import (
    Level,
    SweepChange,
    change_of,
    level_of,
    quantity_of,
    verdict_of,
)
from advisor_power.kernels.estimates import STANDARD_ERRORS_95, around

SEEDS = 3
"""Seeds of a level that are put together: 0, 1, 2."""


@dataclass(frozen=True, slots=True)
class MeasuredSweep:
    """A claim and the levels that were measured of it."""

    claim: Claim
    levels: dict[float, Level]
    quantity: ClaimQuantity
    left_out: int
    """Levels with outputs that are not finite."""

    @property
    def change(self) -> SweepChange | None:
        """Over the sweep."""
        return change_of(self.levels, self.claim.pattern)

    @property
    def verdict(self) -> ClaimVerdict:
        """What it says of the claim."""
        return verdict_of(self.change, self.claim.pattern)

    @property
    def clocks_mhz(self) -> tuple[float, float] | None:
        """Lowest and highest mean clock of a level; None: not read."""
        known = [one.clock_mhz for one in self.levels.values() if one.clock_mhz is not None]
        return (min(known), max(known)) if known else None


def asked_of(claim: Claim, dtype: str) -> bool:
    """Whether a claim is looked at with a type: int8 knows no NaN, and copies are copies."""
    return {"N2": dtype != "int8", "N3": dtype == "fp16", "N4 copy": dtype == "bf16"}.get(
        claim.name, True
    )


def measured_sweeps(own: Sequence[InputPower], dtype: str) -> Iterator[MeasuredSweep]:
    """Those of which anything was measured, of one type.

    Results are of one card under one set of conditions, with ratios to references.
    """
    for claim in CLAIMS:
        if asked_of(claim, dtype):
            sweep = measured_sweep(claim, own, dtype)
            if sweep.levels or sweep.left_out:
                yield sweep


def measured_sweep(claim: Claim, own: Sequence[InputPower], dtype: str) -> MeasuredSweep:
    """Levels of a claim that were measured, in the order of the sweep."""
    by_level: dict[float, list[InputPower]] = {}
    for x, case in claim.cases(dtype).items():
        seeds = _seeds_of(case)
        if found := _newest([r for r in own if r.case in seeds]):
            by_level[x] = found
    quantity = quantity_of([r for rs in by_level.values() for r in rs], in_watts=claim.in_watts)
    levels: dict[float, Level] = {}
    left_out = 0
    for x, found in by_level.items():
        usable = [r for r in found if r.outputs.finite or not claim.finite]
        level = level_of(usable, quantity)
        left_out += not usable
        if level is not None:
            levels[x] = level
    return MeasuredSweep(claim, levels, quantity, left_out)


def input_reports(results: Iterable[InputPower]) -> Iterator[InputReport]:
    """For each card, number of SMs and type, under the conditions that were met last.

    Results have ratios to references.
    """
    key = attrgetter("conditions.gpu_model", "conditions.gpu_uuid", "case.dtype")
    for _, group in groupby(sorted(results, key=key), key=key):
        of_type = list(group)
        for units in sorted({r.conditions.units or 0 for r in of_type}):
            here = [r for r in of_type if (r.conditions.units or 0) == units]
            newest = max(here, key=lambda r: r.moment_s)
            yield _report([r for r in here if r.conditions == newest.conditions], newest)


def _report(own: Sequence[InputPower], newest: InputPower) -> InputReport:
    where, dtype = newest.conditions, newest.case.dtype
    # Many sweeps begin with the reference: that alone is none of them.
    sweeps = [s for s in measured_sweeps(own, dtype) if len(s.levels) + s.left_out > 1]
    in_sweeps = {
        seeded
        for sweep in sweeps
        for case in sweep.claim.cases(dtype).values()
        for seeded in _seeds_of(case)
    }
    others = {r.case: r for r in own if r.case not in in_sweeps}
    return InputReport(
        gpu_model=where.gpu_model,
        gpu_uuid=where.gpu_uuid,
        driver=where.driver,
        torch=where.torch,
        units=where.units,
        dtype=dtype,
        measured_at=newest.measured_at,
        sweeps=tuple(map(_told, sweeps)),
        others=tuple(map(_told_case, others.values())),
    )


def _newest(results: Sequence[InputPower]) -> list[InputPower]:
    """One of each case: the newest of those whose clock nothing held back, if there is any."""
    ordered = sorted(results, key=lambda r: (not r.held_back, r.moment_s))
    return list({r.case: r for r in ordered}.values())


def _seeds_of(case: InputCase) -> set[InputCase]:
    return {with_seed(case, seed) for seed in range(SEEDS)}


def _told(sweep: MeasuredSweep) -> InputSweep:
    change = sweep.change
    return InputSweep(
        name=sweep.claim.name,
        says=sweep.claim.says,
        paper=sweep.claim.paper,
        quantity=sweep.quantity,
        levels=tuple(
            SweepLevel(level=x, value=_interval(level)) for x, level in sweep.levels.items()
        ),
        left_out=sweep.left_out,
        change=None if change is None else _interval(change),
        clocks_mhz=sweep.clocks_mhz,
        verdict=sweep.verdict,
    )


def _interval(found: Level | SweepChange) -> Estimate:
    return around(found.value, STANDARD_ERRORS_95 * found.error)


def _told_case(result: InputPower) -> InputCasePower:
    return InputCasePower(
        case=str(result.case),
        power_w=result.power_w,
        ratio=result.reference_ratio,
        energy_pj=result.energy_pj,
        flags=result.flags,
    )
