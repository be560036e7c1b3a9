"""A fake `libnvidia-ml.so.1` that the real pynvml loads, for tests without a GPU.

    fake = FakeNvml(folder, state)    # after build(folder), which compiles nvml/fake_nvml.c
    fake.write(gpu=0, power_mw=250_000, throttle=0x4)
    subprocess.run([...], env=os.environ | fake.environment)

The library must be found before Python starts, so what uses it runs as a subprocess. Its state
is read on every call, so a test or a fake job can change it while the subject runs (`write` swaps
each file atomically; from a shell: `echo 250000 > $FAKE_NVML_DIR/gpu0/power_mw`). A value of
`error(15)` makes the reading fail with that NVML code; `fake.write(gpu=0, every=error(15))` is a
GPU that fell off the bus. Where there is no file the default holds.

Keys of the host (`write(...)`): gpu_count 1, driver 580.00.00, init (only for errors).

Keys of a GPU (`write(gpu=N, ...)`): uuid GPU-00000000-0000-0000-0000-<N, 12 digits>,
name "Fake H200", power_mw 80000 (or "80000 400000 FROM UNTIL": the second between these times of
the monotonic clock, s), power_noise_mw 0 (0 to 6 times that is added, another one every 5 ms),
power_instant (only errors: 3 is a GPU without the instant
field), power_usage (only errors), power_memory_average_mw and power_memory_instant_mw (not
supported), energy_mj (default: integrates power_mw in ticks of 0.1 s,
each process for itself),
sm_clock_mhz 1980, mem_clock_mhz 3201, temperature_c 40, memory_total_mib 143771, memory_used_mib
600, memory_reserved_mib 0 (of these the driver's own),
power_limit_mw 700000, power_limit_set (only errors: 4 is no permission), throttle 0 (mask),
throttle_old (mask under the older name, absent),
memory_busy 30, compute_mode 0, mig 0, compute_processes and mps_processes (lines "pid MiB"),
gpm_support 1, gpm_sample (only errors), gpm_<metric> (percent 10 + metric, traffic 1000 + metric),
every (only errors: each call on the GPU).
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).parent / "nvml/fake_nvml.c"


def build(folder: Path) -> Path:
    library = folder / "libnvidia-ml.so.1"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    soname = "-Wl,-soname,libnvidia-ml.so.1"
    subprocess.run(["cc", *flags, soname, "-o", library, _SOURCE], check=True)
    return library


def error(code: int) -> str:
    """A value that makes the call return this NVML code."""
    return f"error {code}"


@dataclass(frozen=True, slots=True)
class FakeNvml:
    """The folder with the library and the folder with its state."""

    folder: Path
    state: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which a subprocess finds both."""
        return {"LD_LIBRARY_PATH": str(self.folder), "FAKE_NVML_DIR": str(self.state)}

    def write(self, gpu: int | None = None, **values: float | str) -> None:
        folder = self.state if gpu is None else self.state / f"gpu{gpu}"
        folder.mkdir(parents=True, exist_ok=True)
        for key, value in values.items():
            # Beside the state and renamed over it: a reader never sees half a value.
            fresh = folder / f".{key}.new"
            fresh.write_text(f"{value}\n")
            fresh.replace(folder / key)
