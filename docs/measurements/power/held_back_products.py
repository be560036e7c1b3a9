"""How does the rate of products that are held back follow the energy of their work?

    .venv/bin/python docs/measurements/power/held_back_products.py

No GPU: products of an H100 at 34 SMs, where nothing held them back, and the same data at 66 SMs,
where heat did. With E the energy of the work for each one of the reference's, P power above idle
and r the rate likewise, P = E r^n; n is printed of each that differs in rate by 2 % or more, and
what holds 95 % of its median when other products are drawn.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from advisor_power.inputs.keeping import read_kept
from advisor_power.inputs.result import InputPower

FOLDER = Path(__file__).parent / "inputs"
FREE, HELD = FOLDER / "h100-34.jsonl", FOLDER / "h100-66.jsonl"
LEAST_MOVED = 0.02
DRAWS = 4000


def main() -> None:
    """Print each exponent, and their median."""
    energies = relative_energies(_products(FREE))
    found = exponents(_products(HELD), energies)
    for operands, (moved, exponent) in sorted(found.items(), key=lambda one: one[1][0]):
        print(f"{operands}: rate {moved:.3f}, exponent {exponent:.2f}")
    values = np.array([exponent for _, exponent in found.values()])
    drawn = np.random.default_rng(0).choice(values, (DRAWS, values.size))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    print(f"{values.size} products: median {np.median(values):.2f} ({low:.2f} to {high:.2f})")


def _products(file: Path) -> list[InputPower]:
    return [r for r in read_kept(file) if (r.case.work, r.case.dtype) == ("product", "bf16")]


def _above_w(result: InputPower) -> float:
    return result.power_w.value - result.idle_w


def relative_energies(free: Sequence[InputPower]) -> Mapping[str, float]:
    """Power above idle for each one of the reference's, at one clock and nearly one rate."""
    unhindered = [r for r in free if not r.throttle_reasons]
    reference = np.median([_above_w(r) / r.rate.value for r in unhindered if r.is_reference])
    return {r.case.operands: _above_w(r) / r.rate.value / float(reference) for r in unhindered}


def exponents(
    held: Sequence[InputPower], energies: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """By operands, the rate for each one of the reference's, and the exponent."""
    slowed = [r for r in held if r.throttle_reasons]
    references = [r for r in slowed if r.is_reference]
    above_w = float(np.median([_above_w(r) for r in references]))
    rate = float(np.median([r.rate.value for r in references]))
    found: dict[str, tuple[float, float]] = {}
    for result in slowed:
        moved, energy = result.rate.value / rate, energies.get(result.case.operands)
        if energy and abs(moved - 1) >= LEAST_MOVED and not result.is_reference:
            power = _above_w(result) / above_w / energy
            found[result.case.operands] = (moved, float(np.log(power) / np.log(moved)))
    return found


if __name__ == "__main__":
    main()
