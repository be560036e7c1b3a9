"""Shorter windows live, from end to end: real processes, a fake driver, a job at its gate."""

import subprocess
import sys
from pathlib import Path

from host import UUID, FakeHost
from made_up_kernel import record
from test_power_kernel_command import FAST

from advisor.runtime.jobs.launcher import leftovers
from advisor.validity.sensor_record import keep_record
from advisor_power.sensor.trace import read_trace

SCRIPT = Path(__file__).parents[2] / "docs/measurements/power/shorter_windows.py"


def shorter(host: FakeHost, *jobs: str, seconds: str = "10") -> subprocess.CompletedProcess[str]:
    folder = str(host.folder / "steady")
    options = ["--live", "--seconds", seconds, "--folder", folder, "--jobs", *jobs]
    return subprocess.run(
        [sys.executable, str(SCRIPT), *options],
        env=host.environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_jobs_are_recorded_and_the_same_command_goes_on(host: FakeHost) -> None:
    """One that fails is an error; what was recorded before it is not recorded again."""
    keep_record(record(FAST, gpu_uuid=UUID), host.folder / "home")
    host.write_job("steady")
    host.write_job("broken", "--behave", "exit")
    failed = shorter(host, "steady", "broken")
    assert failed.returncode == 2
    assert "broken" in failed.stderr
    assert "s to go" in failed.stderr
    file = host.folder / "steady/steady.jsonl"
    trace = read_trace(file)
    assert trace.whole
    assert [round(end_s - begin_s) for begin_s, end_s in trace.stages[-1].on] == [5, 3]
    written_ns = file.stat().st_mtime_ns

    done = shorter(host, "steady")
    assert done.returncode == 0, done.stderr
    assert file.stat().st_mtime_ns == written_ns
    assert done.stdout.startswith("steady on Fake H200")
    assert "begins 2x" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("| 2.1 | constants"))
    # The power of the fake card is the same all the time.
    assert abs(float(row.split(" | ")[4])) < 2
    assert leftovers(UUID, Path(host.folder / "run")) == []


def test_recording_that_was_stopped_is_made_again(host: FakeHost) -> None:
    """Half of one would be taken for a load that ended early."""
    keep_record(record(FAST, gpu_uuid=UUID), host.folder / "home")
    host.write_job("steady")
    assert shorter(host, "steady", seconds="8").returncode == 0
    file = host.folder / "steady/steady.jsonl"
    lines = [line for line in file.read_text().splitlines() if '"end"' not in line]
    file.write_text("\n".join(lines[:-20]) + "\n")
    assert not read_trace(file).whole
    assert shorter(host, "steady", seconds="8").returncode == 0
    assert read_trace(file).whole


def test_what_is_no_steady_load_is_refused(host: FakeHost) -> None:
    """A time that is too short, and a job that nothing holds back."""
    host.write_job("steady")
    host.write_job("free", gate=False)
    assert "give --seconds between 8 and 60" in shorter(host, "steady", seconds="5").stderr
    assert "give --seconds between 8 and 60" in shorter(host, "steady", seconds="61").stderr
    assert "free has no gate" in shorter(host, "free").stderr
