"""How well is the clock of pairs at the power limit known from each job alone?

    .venv/bin/python docs/measurements/power/pair_clock.py

No GPU: bundled pairs that draw 97 % of the limit or more, with the rates and the power that were
measured. Compared are the clock of `held_back.clock_together` and the middle of all clocks of the
same GPU model, with the energy of work growing by several powers of the clock. Errors in MHz; the
intervals hold 95 % of the means when other pairs are drawn.
"""

from collections.abc import Iterator, Sequence
from unittest import mock

import numpy as np
from measured_pair import MeasuredPair
from measured_pair import at_limit as is_at_limit

from advisor.predict.profiles import Floats, make_profiles
from advisor_data.files.bundled import bundled_pair_points, bundled_solo_points
from advisor_power.model import held_back

EXPONENTS = (1.0, 1.25, 1.5, 2.0)
DRAWS = 1000


def main() -> None:
    """Print the table."""
    found = list(at_limit())
    print("| GPU model | exponent | pairs | off, MHz | mean error | nine of ten | correlation |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for gpu_model in sorted({one.point.gpu_model for one in found}):
        own = [one for one in found if one.point.gpu_model == gpu_model]
        measured = np.array([one.point.sm_clock_mhz or 0.0 for one in own])
        for exponent in EXPONENTS:
            with mock.patch.object(held_back, "WORK_EXPONENT", exponent):
                clocks = np.array([expected_mhz(one) for one in own])
            print(f"| {gpu_model} | {exponent:g} {row(own, clocks, measured)}")
        middle = np.full(len(own), float(np.median(measured)))
        print(f"| {gpu_model} | the middle clock {row(own, middle, measured)}")


def at_limit() -> Iterator[MeasuredPair]:
    """Bundled pairs whose power the limit held down, and both jobs alone on that GPU model."""
    profiles = make_profiles(bundled_solo_points())
    for point in bundled_pair_points():
        own = [profiles.get((job, point.gpu_model)) for job in point.jobs]
        one, other = own if len(own) == 2 else (None, None)
        told = point.power_w and point.power_limit_w and point.sm_clock_mhz
        if not (one and other and told) or "failed" in point.flags:
            continue
        if is_at_limit(point):
            yield MeasuredPair(point, (one, other))


def expected_mhz(one: MeasuredPair) -> float:
    """The clock from both jobs alone."""
    return one.top_mhz * held_back.clock_together(one.profiles, one.seen)


def row(own: Sequence[MeasuredPair], clocks: Floats, measured: Floats) -> str:
    """Columns of one way to know the clock."""
    off = clocks - measured
    low, high = _interval([frozenset(one.point.jobs) for one in own], np.abs(off))
    tenth = np.percentile(np.abs(off), 90)
    fits = f"{np.corrcoef(clocks, measured)[0, 1]:.2f}" if np.ptp(clocks) else "-"
    return (
        f"| {len(own)} | {off.mean():+.0f} | {np.abs(off).mean():.0f} [{low:.0f} {high:.0f}] | "
        f"{tenth:.0f} | {fits} |"
    )


def _interval(pairs: Sequence[frozenset[str]], sizes: Floats) -> tuple[float, float]:
    """Of the mean, from pairs drawn again with all their splits."""
    by_pair = [sizes[[p == pair for p in pairs]] for pair in sorted(set(pairs), key=sorted)]
    sums, counts = np.array([[of.sum(), of.size] for of in by_pair]).T
    drawn = np.random.default_rng(0).integers(len(by_pair), size=(DRAWS, len(by_pair)))
    low, high = np.percentile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), [2.5, 97.5])
    return float(low), float(high)


if __name__ == "__main__":
    main()
