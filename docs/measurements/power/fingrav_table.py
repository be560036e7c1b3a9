"""FinGraV's takeaways on a card: the paper's words, ours, the verdict, and what decides it.

    .venv/bin/python docs/measurements/power/fingrav_table.py FOLDER [--recording FILE]

FOLDER has the cells of one card as JSON, such as fingrav/h200-3: an operation without a gap
(`stretch`), in runs, in runs after another one, or a pair of orders. F8 is decided by a recording
of sensor_campaign.py.
"""

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fingrav_findings import (
    Finding,
    Shift,
    equal_times_differ_in_power,
    light_first_saves,
    light_inherit_heavy_do_not,
    rise_of,
    shift_of,
)
from fingrav_work import (
    WorkPower,
    collectives_draw_little,
    light_and_heavy_draw_alike,
    naive_readings_mislead,
    power_follows_work,
)

from advisor.formats.wire import read_tolerant
from advisor.wire.kernel_power import KernelReport, StretchPower
from advisor_power.kernels.deconvolve import fault_of
from advisor_power.kernels.runs import IDLE
from advisor_power.sensor.analysis import record_of
from advisor_power.sensor.reading_errors import measured
from advisor_power.sensor.trace import read_trace

SIZES = (8192, 4096, 2048)
COUNTS = (66, 132)
HEAVY, LIGHT, LARGEST = "gemm-8192", "gemm-2048", "gemv-8192"
COMPUTE = tuple(f"gemm-{size}" for size in SIZES)
MEMORY = tuple(f"gemv-{size}" for size in SIZES)
ROTATING = ("gemv-4096-rotating", "gemv-2048-rotating")
"""With inputs that no cache holds; the largest fits into none anyway."""

AFTER = (HEAVY, *MEMORY, LIGHT)
"""Measured after another one as well: heavy after light, light after heavy."""

COLLECTIVES = tuple(
    f"{name}-{size}"
    for name in ("all-reduce", "all-gather")
    for size in ("64KiB", "512MiB", "128KiB", "1GiB")
)
LATENCY_BOUND = tuple(name for name in COLLECTIVES if name.endswith("KiB"))
RISING = tuple(name for name in COLLECTIVES if name.endswith(("64KiB", "512MiB")))
"""Of which SSE and SSP were measured, too."""

LIMIT_W = 700.0
"""Power limit of H100 and H200."""

PAPER = {
    "F1": "8K GEMM rises and falls until SSE, SSP slightly above; 2K GEMM rises until its 40th "
    "execution at equal times",
    "F2": "all GEMMs above all GEMVs; total falls from 8K to 2K GEMV; HBM alike but for 8K GEMM",
    "F3": "compute power of 2K GEMM about that of 8K at about half the utilisation",
    "F4": "2K GEMM far lower after GEMVs, higher after GEMMs, GEMVs likewise; 8K GEMM slightly "
    "higher after 2K",
    "F5": "a recommendation without a figure",
    "F6": "synchronised and binned profiles are tighter; 50 runs show the trend of 200",
    "F7": "SSE and SSP the same; bandwidth-bound between latency-bound and 8K GEMM in total",
    "F8": "about 80 % at worst without telling profiles apart",
}
"""arXiv 2412.12426, MI300X; the paper shows power in relative units only."""

Answers = Mapping[str, Mapping[str, Any]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recording", type=Path, help="of sensor_campaign.py, for F8")
    options = parser.parse_args()
    for line in table(options.folder, options.recording):
        print(line)


def table(folder: Path, recording: Path | None) -> Iterator[str]:
    """Rows of Markdown, then what decides each."""
    answers = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    found = [(units, finding) for units in COUNTS for finding in _of_units(answers, units)]
    yield "| takeaway | paper | ours | verdict |"
    yield "|---|---|---|---|"
    for units, finding in found:
        yield _row(f"{finding.claim}, {units} SMs", finding)
    once = [_collectives(answers), _readings(recording)]
    for finding in once:
        yield _row(finding.claim, finding)
    yield ""
    for name, finding in [(f"{f.claim}, {units} SMs", f) for units, f in found] + [
        (f.claim, f) for f in once
    ]:
        yield f"- {name}: {finding.why}"


def _row(name: str, finding: Finding) -> str:
    return f"| {name} | {PAPER[finding.claim]} | {finding.ours} | {finding.verdict} |"


def _of_units(answers: Answers, units: int) -> list[Finding]:
    works = {
        kernel: work
        for kernel in (*COMPUTE, *MEMORY, *ROTATING)
        if (work := _work(answers.get(f"{units}-{kernel}-stretch")))
    }
    powers = {
        kernel: _power(answer)
        for kernel in (*COMPUTE, *MEMORY)
        if (answer := answers.get(f"{units}-{kernel}-runs"))
    }
    rises = {kernel: rise for kernel, power in powers.items() if (rise := rise_of(power))}
    shifts = _shifts(answers, units, powers, works)
    return [
        equal_times_differ_in_power(rises),
        power_follows_work(
            {kernel: works[kernel] for kernel in COMPUTE if kernel in works},
            {kernel: works[kernel] for kernel in MEMORY if kernel in works},
            LARGEST,
            {kernel: works[kernel] for kernel in ROTATING if kernel in works},
        ),
        light_and_heavy_draw_alike(works.get(LIGHT), works.get(HEAVY)),
        light_inherit_heavy_do_not(
            {kernel: shift for kernel, shift in shifts.items() if kernel != HEAVY},
            {kernel: shift for kernel, shift in shifts.items() if kernel == HEAVY},
        ),
        _order(answers, units),
    ]


def _order(answers: Answers, units: int) -> Finding:
    pairs = [answer for name, answer in answers.items() if re.match(f"{units}-.*-order-", name)]
    return light_first_saves(
        [pair["light_first_j"] for pair in pairs], [pair["heavy_first_j"] for pair in pairs]
    )


def _collectives(answers: Answers) -> Finding:
    """Beside the product on the same whole GPU."""
    whole = COUNTS[-1]
    totals = {
        kernel: work.stretch.power_w
        for kernel in (*COLLECTIVES, HEAVY)
        if (work := _work(answers.get(f"{whole}-{kernel}-stretch"))) and work.stretch.power_w
    }
    product_w = totals.pop(HEAVY, None)
    rises = {
        kernel: rise
        for kernel in RISING
        if (answer := answers.get(f"{whole}-{kernel}-runs")) and (rise := rise_of(_power(answer)))
    }
    latency = {kernel: watts for kernel, watts in totals.items() if kernel in LATENCY_BOUND}
    bandwidth = {kernel: watts for kernel, watts in totals.items() if kernel not in latency}
    return collectives_draw_little(latency, bandwidth, product_w, rises)


def _shifts(
    answers: Answers,
    units: int,
    powers: Mapping[str, KernelReport],
    works: Mapping[str, WorkPower],
) -> dict[str, Shift]:
    """Against the operation's own power at the end of runs, else without a gap."""
    shifts: dict[str, Shift] = {}
    for kernel in AFTER:
        after = answers.get(f"{units}-{kernel}-after")
        own = powers[kernel].ssp_power_w if kernel in powers else None
        own = own or (works[kernel].stretch.power_w if kernel in works else None)
        shift = shift_of(_power(after), own.value) if after and own else None
        if shift:
            shifts[kernel] = shift
    return shifts


def _power(answer: Mapping[str, Any]) -> KernelReport:
    """What a cell says; without what it says by a curve that is not to be believed."""
    power = read_tolerant(KernelReport, json.dumps(answer))
    idle_w = power.before_w or 0.0 if answer["before"] == IDLE else 0.0
    band_w = (
        min((p.low_w for p in power.curve), default=idle_w),
        max((p.high_w for p in power.curve), default=idle_w),
    )
    differ = power.difference and power.difference.differ
    if not fault_of(band_w, idle_w, LIMIT_W, differ):
        return power
    return replace(power, sse_power_w=None, sse_energy_j=None, settled_power_w=None)


def _work(answer: Mapping[str, Any] | None) -> WorkPower | None:
    if answer is None:
        return None
    stretch = read_tolerant(StretchPower, json.dumps(answer["stretch"]))
    launches = answer["launches"]
    flop, held = answer["launch_flop"] * launches, answer["launch_bytes"] * launches
    return WorkPower(flop, held, stretch)


def _readings(recording: Path | None) -> Finding:
    if recording is None:
        return naive_readings_mislead([])
    trace = read_trace(recording)
    return naive_readings_mislead(measured(trace, record_of(trace, "replay")))


if __name__ == "__main__":
    main()
