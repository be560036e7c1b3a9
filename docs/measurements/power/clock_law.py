"""With which power of the clock do SMs and operations draw more, in the model of power by data?

    .venv/bin/python docs/measurements/power/clock_law.py

Trains the bundled models' points anew with other exponents. Mean errors in percent: a pattern of
data left out (power where nothing held the clock back, speed where something did), each H200 from
the H100s with two points of each type known, and matmul-bf16 at all its numbers of SMs, of which
the models know three at most: power above a card with a context, by its busy tensor cores.
"""

from dataclasses import replace

import numpy as np
from bundle_inputs import INPUTS, OF

from advisor.core.records import SoloPoint
from advisor.wire.input_power import InputPoint
from advisor_data.files.bundled import bundled_solo_points
from advisor_power.inputs.keeping import read_kept
from advisor_power.inputs.predicting.learned_from import points_of
from advisor_power.learn.evaluate import errors_of, other_card
from advisor_power.learn.held_out import group_left_out
from advisor_power.learn.model import InputModel, physics_and_trees
from advisor_power.learn.train import learnable
from advisor_power.model import physics

EXPONENTS = ((1.5, 2.5), (1.75, 2.5), (2.0, 2.5), (2.0, 3.0), (2.25, 2.5))
"""Of the clock: in the energy of an operation, and in the power of an SM."""

JOB, DTYPE = "matmul-bf16", "bf16"

OPERATIONS_PER_CYCLE = 4096
"""Of bf16, by the tensor cores of one SM (NVIDIA H100 Tensor Core GPU Architecture, table 3)."""


def main() -> None:
    """Print a row for each pair of exponents and GPU model."""
    learned = {gpu_model: points(gpu_model, names) for gpu_model, names in OF.items()}
    solos = bundled_solo_points({JOB})
    first, *_ = learned.values()
    print("| operation | SM | GPU model | power | speed | other cards | matmul-bf16 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for physics.WORK_EXPONENT, physics.SM_POWER_EXPONENT in EXPONENTS:
        for gpu_model, kept in learned.items():
            drawn = [p for p in kept if not p.real]
            found = errors_of(group_left_out(drawn, {"model": physics_and_trees})["model"])
            own = [p for p in solos if p.gpu_model == gpu_model]
            cells = (
                f"{physics.WORK_EXPONENT:g} | {physics.SM_POWER_EXPONENT:g}",
                gpu_model,
                f"{100 * found.power.mean:.2f}" if found.power else "-",
                f"{100 * found.speed.mean:.2f}" if found.speed else "-",
                ", ".join(f"{100 * off:.1f}" for off in other_cards(first, kept)),
                f"{100 * matmul_error(physics_and_trees(kept), kept, own):.1f}",
            )
            print(f"| {' | '.join(cells)} |", flush=True)


def points(gpu_model: str, names: tuple[str, ...]) -> tuple[InputPoint, ...]:
    """What the bundled model of a GPU model learns from."""
    found, _ = points_of([result for name in names for result in read_kept(INPUTS / name)])
    return learnable(found, gpu_model)[0]


def other_cards(first: tuple[InputPoint, ...], kept: tuple[InputPoint, ...]) -> list[float]:
    """Error on each card of another GPU model than the first one's."""
    if kept is first:
        return []
    cards = sorted({p.gpu_uuid for p in kept})
    there = {card: [p for p in kept if p.gpu_uuid == card] for card in cards}
    return [other_card([*first, *of], card)["model"].mean for card, of in there.items()]


def matmul_error(model: InputModel, kept: tuple[InputPoint, ...], own: list[SoloPoint]) -> float:
    """Mean error of what the job draws above a card with a context."""
    usual = next(p for p in kept if p.is_reference and p.dtype == DTYPE)
    idle_w = float(np.median([p.idle_w for p in kept]))
    asked = [_as_input(usual, p) for p in own]
    expected_w = model(asked) - np.array([p.idle_w for p in asked])
    measured_w = np.array([(p.power_w or np.nan) - idle_w for p in own])
    return float(np.abs(expected_w / measured_w - 1).mean())


def _as_input(usual: InputPoint, point: SoloPoint) -> InputPoint:
    clock_mhz, units = point.sm_clock_mhz or 0.0, point.units_granted or 0
    busy = (point.tensor_active_percent or 0.0) / 100 * (point.units_total or 0)
    rate = busy * OPERATIONS_PER_CYCLE * clock_mhz * 1e6
    return replace(usual, units=units, clock_mhz=clock_mhz, flop_per_s=rate)


if __name__ == "__main__":
    main()
