"""The power limit of a GPU that a launch lowers, and puts back.

The old limit is written to a file before the new one is set. The launch puts it back at its end. If
the launch is killed, its guard does so (`python -P -m advisor_profiling.power_limit GPU_UUID`), or
the next command of advisor that holds the GPU. A limit that another tool has set meanwhile stays.
"""

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from advisor.core.gpu import LIMIT_COMMANDS, Gpu
from advisor.errors import BusyError, InputError
from advisor.files import gpu_lock, private_folder, read_plain, replace_file
from advisor.settings import read_settings
from advisor_profiling.telemetry import nvml


@contextmanager
def lowered(gpu: Gpu, limit_w: float, runtime_dir: Path) -> Generator[None]:
    """A GPU that we hold at a lower limit; as it was at the end.

    Raises:
        InputError: the card has no such limit, or it is not an NVIDIA one, or not one alone.
        SourceError: the driver does not let this user set it; nothing has changed then.
    """
    if gpu.vendor != "nvidia" or len(gpu.each) > 1:
        raise InputError(
            f"the power limit of {gpu.model} is not set here",
            why="advisor sets that of one NVIDIA GPU",
            fix=f"set it as administrator, {LIMIT_COMMANDS[gpu.vendor]} {limit_w:g}, and leave out "
            "--power-limit: the limit of each card is read",
        )
    before_w, (least_w, most_w) = nvml.power_limits_w(gpu.uuid)
    if not least_w <= limit_w <= most_w:
        raise InputError(
            f"the power limit of {gpu.model} cannot be {limit_w:g} W",
            fix=f"choose {least_w:g} to {most_w:g} W",
        )
    file = _file(gpu.uuid, runtime_dir)
    replace_file(file, json.dumps({"before_w": before_w, "ours_w": limit_w}).encode())
    try:
        nvml.set_power_limit(gpu.uuid, limit_w)
        yield
    finally:
        put_back(gpu.uuid, runtime_dir)


def put_back(gpu_uuid: str, runtime_dir: Path) -> bool:
    """Set the limit that a GPU had before one of ours was; the caller holds the GPU.

    Returns:
        Whether one of ours was still set.

    Raises:
        SourceError: the driver does not let this user set it; it is tried again the next time.
    """
    file = _file(gpu_uuid, runtime_dir)
    if (kept := read_plain(file, 4096)) is None:
        return False
    limits = json.loads(kept)
    is_ours: bool = nvml.power_limits_w(gpu_uuid)[0] == limits["ours_w"]
    if is_ours:
        nvml.set_power_limit(gpu_uuid, limits["before_w"])
    file.unlink()
    return is_ours


def _file(gpu_uuid: str, runtime_dir: Path) -> Path:
    return private_folder(runtime_dir) / f"power-limit-{gpu_uuid}"


def main(gpu_uuid: str) -> None:
    """Put the limit back, unless a process of advisor holds the GPU: that one has done so."""
    with suppress(BusyError), gpu_lock((settings := read_settings()).lock_dir, gpu_uuid):
        put_back(gpu_uuid, settings.runtime_dir)


if __name__ == "__main__":
    main(sys.argv[1])
