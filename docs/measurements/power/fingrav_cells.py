"""What fingrav.py measures: each cell, what it is expected to take, and how it is measured."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from order import PAIR_S, measure_pair

from advisor.formats.wire import read_tolerant, to_plain
from advisor.validity.sensor_record import PowerChannel
from advisor.wire.kernel_power import StretchPower
from advisor_power.kernels.plan import make_plan, mean_gap_s
from advisor_power.kernels.running.live import LiveKernelBench
from advisor_power.kernels.running.measure import KernelStep
from advisor_power.kernels.running.operation import measure_operation, measure_stretch
from advisor_power.kernels.running.wanted import LEAD_S, Sensors, Wanted
from advisor_power.kernels.stretch import STRETCH_S
from advisor_power.kernels.trace import IDLE

SIZES = (8192, 4096, 2048)
COUNTS = (66, 132)
HEAVY, LIGHT, LARGEST = "gemm-8192", "gemm-2048", "gemv-8192"
COMPUTE = tuple(f"gemm-{size}" for size in SIZES)
MEMORY = tuple(f"gemv-{size}" for size in SIZES)
ROTATING = ("gemv-4096-rotating", "gemv-2048-rotating")
"""With inputs that no cache holds; the largest fits into none anyway."""

AFTER = {HEAVY: LARGEST, **dict.fromkeys(MEMORY, HEAVY), LIGHT: HEAVY}
"""What runs before which kernel: heavy before light, light before heavy."""

RUNS = {"gemm-4096": 200, "after": 80}
"""The paper judges its steps, 50 against 200 runs, by this kernel; see also `FEWER_RUNS`."""

FEWER_RUNS = 120
"""Steady points of the others: power after so many is known to a fraction of the thresholds."""

LONGEST_S, ENOUGH = 75.0, 40
"""Where power takes a second and more to be steady, so many runs are made as take this long: such
long runs meet more readings."""

PREPARE_S, AVERAGE_S = 2.0, 1.1
SEARCH_RUNS, SEARCH_RUN_S = 36, 0.25
"""About what looking for the length of runs takes."""

ORDER = (LARGEST, HEAVY)
"""Light and heavy operation whose order is tried."""

PAIRS = 3
COLLECTIVES = tuple(
    f"{name}-{size}"
    for name in ("all-reduce", "all-gather")
    for size in ("64KiB", "512MiB", "128KiB", "1GiB")
)
LATENCY_BOUND = tuple(name for name in COLLECTIVES if name.endswith("KiB"))
RISING = tuple(name for name in COLLECTIVES if name.endswith(("64KiB", "512MiB")))
"""Of which SSE and SSP are measured, too."""

Kind = Literal["stretch", "runs", "after", "order"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement.

    Attributes:
        kernel: Such as gemm-8192, or gemv-4096-rotating.
        before: Kernel before each run; empty: idle.
        number: Of several that are the same.
    """

    units: int
    kind: Kind
    kernel: str
    before: str = ""
    number: int | None = None

    @property
    def name(self) -> str:
        """Of its file."""
        number = "" if self.number is None else f"-{self.number}"
        return f"{self.units}-{self.kernel}-{self.kind}{number}"

    @property
    def together(self) -> bool:
        """Whether it takes two GPUs."""
        return self.kernel in COLLECTIVES

    @property
    def start(self) -> tuple[int, bool]:
        """Cells with the same can be measured by one worker."""
        return self.units, self.together

    @property
    def options(self) -> tuple[str, ...]:
        """Of the workload."""
        if self.kind == "order":
            return tuple(words(ORDER[0]))
        after = ("--after", " ".join(words(self.before))) if self.before else ()
        return (*words(self.kernel), *after)

    @property
    def runs(self) -> int:
        """How many."""
        return RUNS.get("after" if self.together else self.kind) or RUNS.get(
            self.kernel, FEWER_RUNS
        )


def words(kernel: str) -> list[str]:
    """A kernel of the paper's sizes as options."""
    if kernel in COLLECTIVES:
        name, _, size = kernel.rpartition("-")
        return [name, "--bytes", size]
    name, size, *rotating = kernel.split("-")
    sides = "mnk" if name == "gemm" else "mk"
    sizes = [word for side in sides for word in (f"--{side}", size)]
    return [name, *sizes, *(f"--{word.replace('rotating', 'rotate')}" for word in rotating)]


def cells() -> Iterator[Cell]:
    """In the order of what they decide in a second: first those that need no runs."""
    for units in COUNTS:
        for kernel in (LIGHT, HEAVY, LARGEST, "gemv-2048", "gemv-4096", "gemm-4096", *ROTATING):
            yield Cell(units, "stretch", kernel)
        for kernel in ("gemm-4096", HEAVY, LIGHT, *MEMORY):
            yield Cell(units, "runs", kernel)
        for kernel, before in AFTER.items():
            yield Cell(units, "after", kernel, before)
        for number in range(PAIRS):
            yield Cell(units, "order", "-".join(ORDER), number=number)
    for kernel in COLLECTIVES:
        yield Cell(COUNTS[-1], "stretch", kernel)
    for kernel in RISING:
        yield Cell(COUNTS[-1], "runs", kernel)


def cell_s(cell: Cell, channel: PowerChannel) -> float:
    """What a cell is expected to take, s."""
    if cell.kind == "order":
        return PREPARE_S + PAIR_S
    if cell.kind == "stretch":
        return PREPARE_S + AVERAGE_S + STRETCH_S
    smear_s = (channel.window_ms + channel.delay_spread_ms) / 1000
    after = cell.kind == "after"
    # Half of the runs after idle are half as long.
    run_s = channel.settle_s + 0.075 if after else 0.75 * 3 * smear_s
    plan = make_plan(
        channel, bin_ms=5.0, run_s=run_s, runs=cell.runs, lead_s=LEAD_S if after else 0.0
    )
    search_s = 0.0 if after else SEARCH_RUNS * (SEARCH_RUN_S + mean_gap_s(channel))
    return PREPARE_S + search_s + plan.seconds


def measured(
    cell: Cell, bench: LiveKernelBench, sensors: Sensors, folder: Path, home: Path
) -> dict[str, Any]:
    """One cell as JSON has it."""
    if cell.kind == "order":
        light, heavy = (words(kernel) for kernel in ORDER)
        return measure_pair(bench, light, heavy, cell.number or 0)
    bench.prepare(cell.options)
    if cell.kind == "stretch":
        ready = bench.ready
        return {
            "operation": ready.operation,
            "units": ready.units,
            "launches": ready.launches,
            "launch_flop": ready.launch_flop,
            "launch_bytes": ready.launch_bytes,
            "stretch": to_plain(measure_stretch(bench, sensors)),
        }
    wanted = Wanted(
        runs=cell.runs,
        most_s=LONGEST_S,
        enough=ENOUGH,
        before=" ".join(words(cell.before)) if cell.before else IDLE,
        lead_s=LEAD_S if cell.before else 0.0,
        stretch=_known_stretch(folder / f"{cell.units}-{cell.kernel}-stretch.json"),
    )
    found = measure_operation(bench, bench.gpu, sensors, wanted, home, _progress, lambda _: None)
    return to_plain(found)


def _known_stretch(path: Path) -> StretchPower | None:
    if not path.exists():
        return None
    return read_tolerant(StretchPower, json.dumps(json.loads(path.read_text())["stretch"]))


def _progress(step: KernelStep) -> None:
    if step.total and step.done % 40 == 0:
        print(f"  {step.done}/{step.total}  eta {step.eta_s or 0:.0f} s", file=sys.stderr)
