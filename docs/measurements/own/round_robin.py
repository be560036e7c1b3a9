"""Count the kernels that a GPU deals to two processes: a line for docs/round-robin.md.

    python docs/measurements/own/round_robin.py    # NVIDIA, Volta or later, idle; a minute

The probes of kernels_per_unit.py fill the GPU with kernels of 0.1 ms and 0.5 ms: each alone, then
both together; under MPS without limits, if it runs, then time-sliced. It needs the package and the
driver, no PyTorch, and changes no setting of the GPU: the first that CUDA_VISIBLE_DEVICES names.
"""

import os
import sys
import tempfile
from pathlib import Path

import pynvml
from kernels_per_unit import PROBES
from windows import START_S, Process, are_ready, end, per_s

from advisor.errors import AdvisorError
from advisor.runtime.backend import look

PIPES = "CUDA_MPS_PIPE_DIRECTORY"
NO_MPS = f"""MPS is missing: no daemon answers in {os.environ.get(PIPES, "/tmp/nvidia-mps")},
so the line has no counts under it. Start one as the user who runs this, and run this again:
    nvidia-cuda-mps-control -d    # ends with: echo quit | nvidia-cuda-mps-control
A container needs the daemon's folder and /dev/shm of its host, and {PIPES}."""

Rates = tuple[float, ...]
"""Kernels a second: of each probe alone, then of each beside the other."""


def counted(folder: Path) -> Rates:
    """All rates, under MPS or not as the environment says."""
    command = [sys.executable, "short_kernels.py", "--ms"]
    probes = [Process(n, [*command, ms, "--block-us", b], folder) for n, (ms, b) in PROBES.items()]
    try:
        if not are_ready(probes, START_S):
            logs = "\n".join(probe.log.read_text()[-500:] for probe in probes)
            sys.exit(f"the probes did not start (46: the GPU is set to one process):\n{logs}")
        return tuple(rate for some in (probes[:1], probes[1:], probes) for rate in per_s(some))
    finally:
        end(probes)


def line(model: str, driver: str, mps: Rates | None, sliced: Rates) -> str:
    """One row. By the law one kernel of each follows the other, so both make as many."""
    one, other = (mps or sliced)[:2]
    cells = [model, driver, f"{one:,.0f}, {other:,.0f}", f"{1 / (1 / one + 1 / other):,.0f}"]
    for rates in (mps, sliced):
        both = rates[2:] if rates else ()
        cells.append(", ".join(f"{rate:,.0f}" for rate in both))
        cells.append(f"{both[0] / both[1]:.2f}" if both else "")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Count, and print the line."""
    try:
        first = look(os.environ)[0]
    except AdvisorError as error:
        sys.exit(str(error))
    if not first.mps:
        print(NO_MPS, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        mps = counted(Path(folder)) if first.mps else None
        (Path(folder) / "no-daemon").mkdir()
        os.environ[PIPES] = f"{folder}/no-daemon"
        alone = look(os.environ)[0]
        if alone.mps or alone.units != first.units:
            sys.exit(f"MPS has a limit ({first.units} of {alone.units} SMs), or answers everywhere")
        sliced = counted(Path(folder))
    pynvml.nvmlInit()
    model = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByUUID(first.uuid))
    print("| GPU | driver | kernels/s alone | law | MPS | ratio | time-sliced | ratio |")
    print(line(model, pynvml.nvmlSystemGetDriverVersion(), mps, sliced))


if __name__ == "__main__":
    main()
