"""`advisor power kernel` from end to end: real processes, a fake driver, no GPU."""

import gzip
import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from host import FAKES, UUID, FakeHost
from made_up_kernel import FAST as FAST_CHANNEL
from made_up_kernel import record
from typer.testing import CliRunner

from advisor.errors import InputError
from advisor.formats.wire import read_tolerant
from advisor.runtime.processes import wait_until
from advisor.runtime.running_job import leftovers
from advisor.validity.safe_counts import CountCheck, keep_check
from advisor.validity.sensor_record import keep_record
from advisor.wire.power import KernelReport
from advisor_cli.app import app

PYTHON = ("--python", str(FAKES / "fake_kernel_worker.py"))
COMMAND = ("power", "kernel", "gemm", "--m", "64", *PYTHON, "--runs", "20", "--resolution-ms", "4")
FAST = replace(FAST_CHANNEL, period_ms=5.0, window_ms=4.0)


def know_sensor(host: FakeHost) -> None:
    """What `advisor power sensor` would have found."""
    keep_record(record(FAST, gpu_uuid=UUID), host.folder / "home")


def lines_kept(host: FakeHost) -> list[str]:
    """Lines of the file of runs: what was found, then a line for each block."""
    files = list((host.folder / "home/kernels").glob("*.jsonl.gz"))
    return gzip.decompress(files[0].read_bytes()).decode().splitlines() if files else []


def refused(host: FakeHost, *options: str, code: int, **more: str) -> str:
    """What the command said when it ended with this code."""
    done = host.advisor(*(options or COMMAND), "--json", **more)
    assert done.returncode == code, done.stderr
    return str(json.loads(done.stdout)["error"]["message"])


def test_interrupt_then_the_same_command_goes_on(host: FakeHost) -> None:
    know_sensor(host)
    command = (*COMMAND, "--runs", "80")  # four blocks, to be met in one of them
    with host.start_advisor(*command) as process:
        assert wait_until(lambda: len(lines_kept(host)) >= 2 or process.poll() is not None, 90)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "the same command goes on from here" in errors
    assert leftovers(UUID, Path(host.folder / "run")) == []
    before = lines_kept(host)
    assert 2 <= len(before) < 5

    done = host.advisor(*command, "--json")
    assert done.returncode == 0, done.stderr
    answer = read_tolerant(KernelReport, done.stdout)
    assert lines_kept(host)[: len(before)] == before
    assert len(lines_kept(host)) == 5
    assert (answer.operation, answer.before) == ("gemm m=64 n=64 k=64 bf16", "idle")
    assert (answer.runs, answer.golden_runs, answer.dropped) == (80, 80, {})
    assert answer.execution_ms == pytest.approx(2.0)
    assert answer.stretch
    assert answer.ssp_power_w is not None
    assert 300 < answer.ssp_power_w.value < 450
    # Two launches are one execution.
    assert answer.ssp_energy_j is not None
    assert answer.launch_energy_j is not None
    assert answer.launch_energy_j.value == pytest.approx(answer.ssp_energy_j.value / 2)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("memory", "needs more memory than the GPU has free"),
        ("crash", "an illegal memory access was encountered"),
    ],
)
def test_operation_that_fails_is_named_and_leaves_nothing(
    host: FakeHost, fault: str, said: str
) -> None:
    know_sensor(host)
    assert said in refused(host, code=5, FAKE_FAULT=fault)
    assert leftovers(UUID, Path(host.folder / "run")) == []


def test_without_a_record_it_says_what_to_run(host: FakeHost) -> None:
    """Nobody measures with a window that was guessed; a record of another driver is none."""
    keep_record(record(FAST, gpu_uuid=UUID, driver="999.1"), host.folder / "home")
    said = refused(host, code=2)
    assert "no record of the power sensors of Fake H200" in said
    assert "run `advisor power sensor` first" in said


def test_gpu_on_which_somebody_computes_is_refused(host: FakeHost) -> None:
    know_sensor(host)
    (host.folder / "nvml/gpu0/compute_processes").write_text("1 100\n")
    assert "use GPU" in refused(host, code=8)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("gemm", "--within-w", "0"), "is no precision"),
        (("gemm", "--call", "a:b"), "both gemm and --call"),
        ((), "no operation was named"),
    ],
)
def test_contradiction_is_refused(options: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(app, ["power", "kernel", *options])
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)


def test_unsafe_count_is_refused(host: FakeHost) -> None:
    know_sensor(host)
    keep_check(
        CountCheck(
            gpu_model="Fake H200",
            gpu_uuid=UUID,
            units_total=132,
            driver="580.00.00",
            libraries={"torch": "2.0.0"},
            checked=(66, 92),
            wrong={92: ("matmul bf16",)},
            operations=("matmul bf16",),
            checked_at="2026-11-23T00:00:00Z",
            seconds=1.0,
        ),
        host.folder / "home",
    )
    assert "92" in refused(host, *COMMAND, "--units", "92", code=12)


def test_collective_on_a_host_with_one_gpu_is_refused(host: FakeHost) -> None:
    """And one under a limit, or after another operation."""
    know_sensor(host)
    for options, said in (
        (("--bytes", "64KiB"), "a collective needs two GPUs, and this host has 1"),
        (("--units", "66"), "a collective at 66 SMs cannot be measured"),
        (("--after", "gemm"), "goes with neither --after nor --rotate"),
    ):
        words = ("power", "kernel", "all-reduce", "--resolution-ms", "4", *options)
        assert said in refused(host, *words, code=2)
