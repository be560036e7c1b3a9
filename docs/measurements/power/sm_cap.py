"""C4 of CompPow: does a cap of one kind of work, by its number of SMs, save energy?

    .venv/bin/python docs/measurements/power/sm_cap.py

From the bundled profiles, windows that passed every cross-check. A job alone at fewer SMs against
itself on the whole GPU, on the same card in the same run: energy per unit of work at a rate that is
at most 2 % lower. Confirmed: at least 5 % in three of seven memory-bound jobs or more. Refuted: in
none. The grid is the measured one, ten shares or seven safe ones, not every second SM as the claim
asks for: a saving may lie between. Clocks and limits of a card are never changed here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.core.records import SoloPoint
from advisor_data.files.bundled import bundled_solo_points
from advisor_power.components.weights import trusted

SAVED = 0.05
LOST = 0.02
CONFIRMED = 3
MEMORY_BOUND = ("albert-train", "fft", "reduction", "resnet50-infer", "transpose", "triad", "walsh")
"""As the bundled data's own table names them."""


@dataclass(frozen=True, slots=True)
class Saving:
    """The least energy of a job at fewer SMs."""

    gpu_model: str
    job: str
    saved: float
    units: int
    faster: float


def main() -> None:
    """Print each job's best, and the verdict."""
    groups: dict[tuple[str, str, str, str], list[SoloPoint]] = {}
    for p in trusted(bundled_solo_points()):
        groups.setdefault((p.gpu_model, p.job, p.gpu_uuid, p.run), []).append(p)
    found = [best for points in groups.values() if (best := saving(points))]
    print("| job | GPU model | saved, % | SMs | rate, % |\n| --- | --- | --- | --- | --- |")
    for one in sorted(found, key=lambda s: (s.job not in MEMORY_BOUND, s.job, s.gpu_model)):
        if one.job in MEMORY_BOUND:
            show(one)
    others = [one for one in found if one.job not in MEMORY_BOUND]
    most = sorted(others, key=lambda s: -s.saved)[:5]
    print("\nThe five that save most of all other jobs:")
    for one in most:
        show(one)
    print()
    judge("all", found)
    for model in sorted({one.gpu_model for one in found}):
        judge(model, [one for one in found if one.gpu_model == model])


def judge(on: str, found: Sequence[Saving]) -> None:
    """The verdict, and the memory-bound job that saves most."""
    jobs = {one.job for one in found if one.job in MEMORY_BOUND}
    best = max((one for one in found if one.job in jobs), key=lambda one: one.saved)
    reached = {one.job for one in found if one.saved >= SAVED and one.job in jobs}
    verdict = "confirmed" if len(reached) >= CONFIRMED else "open" if reached else "refuted"
    named = f": {', '.join(sorted(reached))}" if reached else ""
    print(
        f"C4, {on}, {SAVED:.0%} less energy at {LOST:.0%} less rate: {len(reached)} of {len(jobs)} "
        f"memory-bound jobs{named}; the most {100 * best.saved:.1f} % ({best.job} at {best.units} "
        f"SMs): {verdict} on this grid"
    )


def saving(points: Sequence[SoloPoint]) -> Saving | None:
    """The best of the smaller counts that keep the rate; None where none was measured with it."""
    whole = next((p for p in points if p.share_percent == 100), None)
    if whole is None or not whole.power_w:
        return None
    energy = whole.power_w / whole.rate
    kept = [p for p in points if p is not whole and p.rate >= (1 - LOST) * whole.rate]
    if not kept:
        return Saving(whole.gpu_model, whole.job, 0.0, whole.units_granted or 0, 0.0)
    best = min(kept, key=lambda p: (p.power_w or 0.0) / p.rate)
    saved = 1 - (best.power_w or 0.0) / best.rate / energy
    return Saving(
        whole.gpu_model, whole.job, saved, best.units_granted or 0, best.rate / whole.rate - 1
    )


def show(one: Saving) -> None:
    """One line."""
    print(
        f"| {one.job} | {one.gpu_model} | {100 * one.saved:.1f} | {one.units} | "
        f"{100 * one.faster:+.1f} |"
    )


if __name__ == "__main__":
    main()
