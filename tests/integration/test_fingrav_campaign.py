"""The campaign of FinGraV's claims from end to end: real processes, a fake driver, no GPU."""

import json
import subprocess
import sys
from pathlib import Path

from host import FAKES, UUID, FakeHost
from test_power_kernel_command import know_sensor

from advisor.runtime.jobs.launcher import leftovers

SCRIPT = Path(__file__).parents[2] / "docs/measurements/power/fingrav.py"
TWO = "132-(gemm|gemv)-8192-stretch"


def campaign(host: FakeHost, only: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Measure cells of that name, and print the table."""
    python = str(FAKES / "fake_kernel_worker.py")
    cells = str(host.folder / "cells")
    options = ["--python", python, "--minutes", "9", "--only", only]
    return subprocess.run(
        [sys.executable, str(SCRIPT), cells, *options],
        env=host.environment(**more),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_one_worker_measures_cells_and_the_same_command_goes_on(host: FakeHost) -> None:
    """What was measured is not measured again; without a sensor of the memory F2 stays open."""
    know_sensor(host)
    done = campaign(host, TWO)
    assert done.returncode == 0, done.stderr
    files = sorted((host.folder / "cells").glob("*.json"))
    assert [file.stem for file in files] == ["132-gemm-8192-stretch", "132-gemv-8192-stretch"]
    answer = json.loads(files[1].read_text())
    assert answer["operation"] == "gemv --m 8192 --k 8192"
    assert 350 < answer["stretch"]["power_w"]["value"] < 450
    assert answer["stretch"]["no_memory_power"] == "this card does not read the power of its memory"
    assert "| F2, 132 SMs |" in done.stdout
    assert "- F2, 132 SMs: gemm-8192: " in done.stdout
    assert len(list((host.folder / "home/logs").iterdir())) == 1
    times = [file.stat().st_mtime_ns for file in files]

    again = campaign(host, TWO)
    assert again.returncode == 0, again.stderr
    assert "eta" not in again.stderr
    assert [file.stat().st_mtime_ns for file in files] == times
    assert leftovers(UUID, Path(host.folder / "run")) == []


def test_cell_that_fails_is_left_out_and_the_next_worker_does_the_rest(host: FakeHost) -> None:
    know_sensor(host)
    done = campaign(host, TWO, FAKE_FAILS="gemm")
    assert done.returncode == 0, done.stderr
    assert "needs more memory than the GPU has free" in done.stderr
    files = [file.stem for file in (host.folder / "cells").glob("*.json")]
    assert files == ["132-gemv-8192-stretch"]


def test_collective_on_a_host_with_one_gpu_is_refused(host: FakeHost) -> None:
    """By the campaign, which goes on, and by the command; so is one under a limit."""
    know_sensor(host)
    done = campaign(host, "132-all-reduce-64KiB-stretch")
    assert "a collective needs two GPUs, and this host has 1" in done.stderr
    assert "- F7: it takes a host with two GPUs" in done.stdout
    for options, said in (
        (("--bytes", "64KiB"), "a collective needs two GPUs, and this host has 1"),
        (("--units", "66"), "a collective at 66 SMs cannot be measured"),
        (("--after", "gemm"), "goes with neither --after nor --rotate"),
    ):
        words = ("all-reduce", "--resolution-ms", "4", *options, "--json")
        refused = host.advisor("power", "kernel", *words)
        assert refused.returncode == 2, refused.stderr
        assert said in json.loads(refused.stdout)["error"]["message"]
