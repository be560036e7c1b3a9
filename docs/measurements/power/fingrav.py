"""Do two of FinGraV's takeaways hold on this card? Measures, goes on, and prints the table.

    .venv/bin/python docs/measurements/power/fingrav.py RESULTS --python python3 --minutes 8

measures cells one after the other with `advisor power kernel` and stops beginning new ones in time
for the limit; the same command goes on. Without a GPU, `--minutes 0` prints what is there. It needs
the record of `advisor power sensor`. RESULTS is a folder, a file of JSON for each cell.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advisor.formats.wire import read_tolerant
from advisor.wire.kernel_power import KernelPower, KernelReport
from advisor_profiling.kernels.takeaways import (
    Rise,
    Shift,
    equal_times_differ_in_power,
    light_inherit_heavy_do_not,
    rise_of,
    shift_of,
)

SIZES = (8192, 4096, 2048)
COUNTS = (66, 132)
HEAVY = "gemm-8192"
KERNELS = {f"{name}-{size}": (name, size) for name in ("gemm", "gemv") for size in SIZES}
AFTER = {HEAVY: "gemv-8192", **{f"gemv-{size}": HEAVY for size in SIZES}, "gemm-2048": HEAVY}
"""What runs before which kernel: heavy before light, light before heavy."""

CELL_S = 150
"""Kept free for a cell; the command itself is ended by its own limit."""


def words(kernel: str) -> list[str]:
    """A kernel of the paper's sizes as options."""
    name, size = KERNELS[kernel]
    sides = "mnk" if name == "gemm" else "mk"
    return [name, *(word for side in sides for word in (f"--{side}", str(size)))]


def cells() -> Iterator[tuple[str, list[str]]]:
    """Name and options of each cell; the whole GPU is measured without MPS."""
    for units in COUNTS:
        limit = ["--units", str(units)] if units != COUNTS[-1] else []
        for kernel in KERNELS:
            yield f"{units}-{kernel}", [*words(kernel), *limit]
        for kernel, before in AFTER.items():
            yield (
                f"{units}-{kernel}-after",
                [*words(kernel), *limit, "--after", " ".join(words(before))],
            )


def measure(folder: Path, python: str, gpu: str, minutes: float) -> None:
    """The cells that are missing, as far as time goes."""
    end_s = time.monotonic() + minutes * 60
    folder.mkdir(parents=True, exist_ok=True)
    for name, options in cells():
        path = folder / f"{name}.json"
        if path.exists():
            continue
        if time.monotonic() + CELL_S > end_s:
            return
        command = [sys.executable, "-m", "advisor.cli", "power", "kernel", *options]
        limits = ["--python", python, "--gpu", gpu, "--minutes", "2", "--json"]
        print(name, file=sys.stderr)
        done = subprocess.run([*command, *limits], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0:
            path.write_text(done.stdout)


def results(folder: Path) -> dict[str, tuple[dict[str, Any], KernelPower]]:
    """What was measured, by name of the cell."""
    found: dict[str, tuple[dict[str, Any], KernelPower]] = {}
    for name, _ in cells():
        path = folder / f"{name}.json"
        if path.exists():
            found[name] = (
                json.loads(path.read_text()),
                read_tolerant(KernelReport, path.read_text()),
            )
    return found


def table(found: dict[str, tuple[dict[str, Any], KernelPower]]) -> Iterator[str]:
    """Rows of Markdown, and a verdict for each number of SMs."""
    for units in COUNTS:
        rises: list[Rise] = []
        shifts: dict[str, Shift] = {}
        yield from (
            "",
            f"| {units} SMs | SSE W | SSP W | J | after another: read | corrected | +- |",
        )
        yield "|---|---|---|---|---|---|---|"
        for kernel in KERNELS:
            if f"{units}-{kernel}" not in found:
                continue
            head, power = found[f"{units}-{kernel}"]
            rise = rise_of(power)
            rises += [rise] if rise else []
            after = found.get(f"{units}-{kernel}-after")
            own, settle_ms = power.ssp_power_w, head["window_ms"] + head["delay_ms"]
            shift = shift_of(after[1], own.value, settle_ms) if after and own else None
            if shift:
                shifts[kernel] = shift
            yield row(kernel, power, head["launch_energy_j"], shift)
        light = {kernel: shift for kernel, shift in shifts.items() if kernel != HEAVY}
        heavy = {kernel: shift for kernel, shift in shifts.items() if kernel == HEAVY}
        first = equal_times_differ_in_power(rises)
        complete = set(shifts) == set(AFTER)
        fourth = light_inherit_heavy_do_not(light, heavy) if complete else "open"
        yield f"\nequal times, different power: {first}; light inherit, heavy do not: {fourth}"


def row(
    kernel: str, power: KernelPower, energy: dict[str, float] | None, shift: Shift | None
) -> str:
    """One kernel."""
    watts = ["" if w is None else f"{w.value:.0f}" for w in (power.sse_power_w, power.ssp_power_w)]
    joules = f"{energy['value']:.4g}" if energy else ""
    raw = "" if shift is None or shift.raw is None else f"{shift.raw:+.1%}"
    corrected = ["", ""] if shift is None else [f"{shift.corrected:+.1%}", f"{shift.error:.1%}"]
    return f"| {' | '.join([kernel, *watts, joules, raw, *corrected])} |"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--python", default="python3", help="interpreter that has PyTorch")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--minutes", type=float, default=8)
    options = parser.parse_args()
    measure(options.results, options.python, options.gpu, options.minutes)
    for line in table(results(options.results)):
        print(line)


if __name__ == "__main__":
    main()
