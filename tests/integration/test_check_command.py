"""`advisor check` from end to end: real processes, a fake driver, libraries that are wrong."""

import json
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from forked import Forked
from host import FAKES, UUID, FakeHost
from reading import answer_of

from advisor.runtime.running_job import leftovers

PYTHON = ("--python", str(FAKES / "fake_library_check.py"))
FEW = "8,40,66,92,132"
TWELVE = ("--counts", ",".join(map(str, range(8, 32, 2))))
KEYS = {
    "gpu_model", "gpu_uuid", "units_total", "driver", "libraries", "checked", "wrong",
    "operations", "checked_at", "seconds", "safe", "unsafe", "not_known", "skipped",
}  # fmt: skip


def check(host: FakeHost, *options: str, code: int = 0, **more: str) -> dict[str, Any]:
    """Check and return the JSON; the command must have ended with this code."""
    done = host.advisor("check", *PYTHON, *options, "--json", **more)
    assert done.returncode == code, done.stderr
    return answer_of(done.stdout)


def doctor(host: FakeHost, **more: str) -> dict[str, str]:
    """What the doctor says of the results."""
    done = host.advisor("doctor", "--json", **more)
    return next(
        row for row in json.loads(done.stdout)["findings"] if row["check"] == "gpu 0 results"
    )


def stored(host: FakeHost) -> dict[str, Any]:
    return json.loads((host.folder / "home/checks/fake-h200.json").read_text())


def started(host: FakeHost) -> list[int]:
    """Counts at which a process of the last check was started."""
    last = max((host.folder / "home/logs").glob("check-*"))
    return sorted(int(f.name.split("-")[0]) for f in last.iterdir() if f.is_dir())


@contextmanager
def after_counts(host: FakeHost, done: int, **more: str) -> Generator[Forked]:
    """A check of twelve counts, when so many of them are done."""
    with host.start_advisor("check", *PYTHON, *TWELVE, FAKE_CHECK_S="0.5", **more) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip().startswith(f"{done}/12"):
                break
        yield process


def test_the_one_count_that_is_wrong_is_found(host: FakeHost) -> None:
    """It is unsafe, the others are safe, that is stored, and the doctor shows it."""
    assert doctor(host)["verdict"] == "warning"
    answer = check(host, "--counts", FEW, FAKE_WRONG_AT="92")
    assert set(answer) == KEYS
    assert (answer["safe"], answer["unsafe"]) == ([8, 40, 66, 132], [92])
    assert answer["wrong"] == {"92": answer["operations"][:2]}
    assert answer["libraries"] == {"torch": "2.0.0", "cublas": "130100"}
    assert (answer["gpu_uuid"], answer["units_total"]) == (UUID, 132)
    assert answer["skipped"] == {"attention bf16 cudnn": "no such thing"}
    assert stored(host) == {k: answer[k] for k in stored(host)}
    row = doctor(host)
    assert row["verdict"] == "ok"
    assert row["found"].startswith("4 of 5 SM counts are safe, checked ")
    assert row["found"].endswith(" here")


def test_what_a_person_reads(host: FakeHost) -> None:
    done = host.advisor("check", *PYTHON, "--counts", "8,10,12,92", FAKE_WRONG_AT="92")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Fake H200, 132 SMs, driver 580.00.00, torch 2.0.0, cublas 130100"
    assert lines[1].split() == ["safe", "8-12", "132"]
    assert lines[2].split() == ["unsafe", "92"]
    assert lines[3].endswith("92 SMs  2 of 3: matmul bf16 forward 4096x4096x4096, "
                             "convolution fp32 3x3 nchw")  # fmt: skip
    assert lines[-1] == "From now on no job is given 92 SMs."
    assert "4/4" in done.stderr
    assert "92 SMs  2 operations wrong  eta 0:0" in done.stderr


def test_interrupt_then_the_same_command_goes_on(host: FakeHost) -> None:
    with after_counts(host, 2, FAKE_WRONG_AT="10") as process:
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate()
    assert process.returncode == 130, rest
    assert host.control("get_default_active_thread_percentage") == ""
    kept = stored(host)["checked"]
    assert 3 <= len(kept) < 13
    answer = check(host, *TWELVE, FAKE_WRONG_AT="10")
    assert answer["unsafe"] == [10]
    assert len(answer["checked"]) == 13
    assert set(started(host)) == {132} | set(answer["checked"]) - set(kept)


def test_all_known_counts_need_no_gpu(host: FakeHost) -> None:
    check(host, "--counts", "8,92", FAKE_WRONG_AT="92")
    again = check(host, "--counts", "8,92", FAKE_CRASH_AT="8,92,132")
    assert again["unsafe"] == [92]
    fresh = check(host, "--counts", "92", "--fresh")
    assert (fresh["safe"], fresh["unsafe"]) == ([8, 92, 132], [])


def test_a_process_that_crashes_is_not_called_safe(host: FakeHost) -> None:
    """Its count is not known, with the reason and another exit code; it is tried twice."""
    answer = check(host, "--counts", "8,92", code=5, FAKE_CRASH_AT="92")
    assert answer["checked"] == answer["safe"] == [8, 132]
    assert answer["not_known"] == {
        "92": "ended with exit code 3: CUDA error: an illegal memory access was encountered"
    }
    assert started(host) == [8, 92, 92, 132]
    # What failed next to others is tried again alone.
    once = check(host, "--counts", "8,92", FAKE_CRASH_AT="92", FAKE_ONCE="92")
    assert (once["safe"], once["not_known"]) == ([8, 92, 132], {})
    # A count that cannot be computed is not known any more; nor one at which other SMs are seen.
    fresh = check(host, "--counts", "92", "--fresh", code=5, FAKE_CRASH_AT="92")
    assert fresh["checked"] == stored(host)["checked"] == [8, 132]
    blind = check(host, "--counts", "92", code=5, FAKE_BLIND="1")
    assert blind["not_known"] == {"92": "it saw 132 SMs"}
    assert blind["checked"] == [8, 132]


def test_lost_daemon_ends_everything(host: FakeHost) -> None:
    """Without its daemon a process would run on the whole GPU: nothing more is started."""
    with after_counts(host, 1) as process:
        host.control("quit")
        _, rest = process.communicate()
    assert process.returncode == 4, rest
    assert "no MPS daemon answers" in rest
    assert leftovers(UUID, host.folder / "run") == []
    assert 2 <= len(stored(host)["checked"]) < 13


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"FAKE_WRONG_AT": "132"}, "2 of 3 operations are wrong on the whole GPU: matmul bf16"),
        ({"FAKE_CRASH_AT": "132"}, "nothing could be computed on all 132 SMs"),
    ],
)
def test_without_a_right_reference_nothing_is_said(
    host: FakeHost, more: dict[str, str], words: str
) -> None:
    """A wrong reference would make the wrong counts look right."""
    done = host.advisor("check", *PYTHON, "--counts", "8", **more)
    assert done.returncode == 5
    assert words in done.stderr
    assert not (host.folder / "home/checks").exists()


def test_another_driver_asks_for_another_check(host: FakeHost) -> None:
    """The doctor says what changed; the next check believes nothing of the old one."""
    check(host, "--counts", "8,92", FAKE_WRONG_AT="92")
    (host.folder / "nvml" / "driver").write_text("590.10.01")
    row = doctor(host)
    assert row["verdict"] == "warning"
    assert "driver 580.00.00 then, 590.10.01 now" in row["found"]
    assert row["fix"] == "advisor check again"
    done = host.advisor("check", *PYTHON, "--counts", "92")
    assert "driver 580.00.00 then, 590.10.01 now: all is checked again" in done.stderr
    assert stored(host)["checked"] == [92, 132]
    assert doctor(host)["verdict"] == "ok"


def test_another_library_asks_for_another_check(host: FakeHost, tmp_path: Path) -> None:
    """The versions are those of the interpreter that jobs run with."""
    check(host, "--counts", "8")
    # Under its whole name: PATH would lead back here.
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} {PYTHON[1]} "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    path = f"{tmp_path}:{host.environment()['PATH']}"
    row = doctor(host, PATH=path, FAKE_CUBLAS="130200")
    assert "cublas 130100 then, 130200 now" in row["found"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--counts", "13"), "ask for 12 or 14"),
        (("--python", "/nonexistent"), "/nonexistent cannot say which libraries it has"),
        (("--python", "python3"), "advisor check --python /path/to/python"),
        (("--gpu", "7"), "no single GPU is called 7"),
    ],
)
def test_bad_options(host: FakeHost, options: tuple[str, ...], words: str) -> None:
    done = host.advisor("check", *PYTHON, *options)
    assert done.returncode == 2
    assert words in done.stderr


def test_damaged_file_is_named(host: FakeHost) -> None:
    file = host.folder / "home/checks/fake-h200.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    done = host.advisor("check", *PYTHON, "--counts", "8")
    assert done.returncode == 7
    assert f"{file} is not a result of `advisor check`" in done.stderr
    assert file.read_text() == "{"
    assert doctor(host)["verdict"] == "missing"


def test_all_counts_that_mps_grants(host: FakeHost) -> None:
    """Without `--counts` every even count from 8 on is checked, several at a time."""
    answer = check(host, FAKE_CUDA_UNITS="20", FAKE_WRONG_AT="12,18")
    assert (answer["safe"], answer["unsafe"]) == ([8, 10, 14, 16, 20], [12, 18])
