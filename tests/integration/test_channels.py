"""C7: collectives with fewer channels of NCCL, from a folder of results and on a fake host."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from host import FAKES, FakeHost
from test_power_kernel_command import know_sensor

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs/measurements/power/channels.py"
MEASURED = ROOT / "docs/measurements/power/channels-h100"
GATHER = "all-gather --bytes 512MiB"


def channels(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), *options],
        env=environment or None,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def keep(folder: Path, number: int, channels: int, ms: float, power_w: float) -> None:
    """One number of channels, as the script keeps it, measured twice."""
    found = {"operation": GATHER, "ms": ms, "power_w": power_w}
    text = json.dumps({"channels": channels, "operations": [found, found]})
    (folder / f"{number}-channels-{channels or 'own'}.json").write_text(text)


def test_fewer_channels_take_longer_and_more_energy() -> None:
    """What was measured on two H100."""
    done = channels(MEASURED, "--minutes", "0")
    assert done.returncode == 0, done.stderr
    assert f"| {GATHER} | 16 | 1.271 | +21.3 | 306 | 0.390 | -11.4 |" in done.stdout
    assert done.stdout.rstrip().endswith(": refuted")


@pytest.mark.parametrize(
    ("ms", "power_w", "verdict"),
    [(1.01, 270.0, "confirmed"), (1.03, 100.0, "refuted"), (1.01, 295.0, "refuted")],
)
def test_verdict(tmp_path: Path, ms: float, power_w: float, verdict: str) -> None:
    """A saving counts at 2 % more time, from 5 % of the energy on."""
    keep(tmp_path, 0, 0, 1.0, 300.0)
    keep(tmp_path, 5, 8, ms, power_w)
    assert channels(tmp_path, "--minutes", "0").stdout.rstrip().endswith(verdict)


def test_host_with_one_gpu_says_so(host: FakeHost, tmp_path: Path) -> None:
    """Nothing is kept, and the claim stays open."""
    know_sensor(host)
    python = str(FAKES / "fake_kernel_worker.py")
    done = channels(tmp_path, "--python", python, "--minutes", "20", **host.environment())
    assert done.returncode == 0, done.stderr
    assert "a collective needs two GPUs, and this host has 1" in done.stderr
    assert "C7: open, not measured" in done.stdout
    assert not list(tmp_path.glob("*.json"))
