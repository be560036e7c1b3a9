"""`advisor check` from end to end: real processes, a fake driver, libraries that are wrong."""

import json
import re
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

pytestmark = pytest.mark.slow

PYTHON = ("--python", str(FAKES / "fake_library_check.py"))
TWELVE = ("--counts", ",".join(map(str, range(8, 32, 2))))


def check(host: FakeHost, *options: str, code: int = 0, **more: str) -> dict[str, Any]:
    """Check and return the JSON; the command must have ended with this code."""
    done = host.advisor("check", *PYTHON, *options, "--json", **more)
    assert done.returncode == code, done.stderr
    return answer_of(done.stdout)


def doctor(host: FakeHost, **more: str) -> tuple[str, str]:
    """Verdict and words of the doctor on the results."""
    rows = json.loads(host.advisor("doctor", "--json", **more).stdout)["findings"]
    row = next(row for row in rows if row["check"] == "gpu 0 results")
    return row["verdict"], f"{row['found']}; {row['fix']}"


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
        next(line for line in process.stderr if line.strip().startswith(f"{done}/12"))
        yield process


def test_the_one_count_that_is_wrong_is_found(host: FakeHost) -> None:
    """It is unsafe, the others are safe, that is stored, and the doctor shows it."""
    assert doctor(host)[0] == "warning"
    answer = check(host, "--counts", "8,40,66,92,132", FAKE_WRONG_AT="92")
    kept = stored(host)
    assert {key: answer[key] for key in kept} == kept
    assert answer.keys() - kept.keys() == {"safe", "unsafe", "not_known", "skipped"}
    known = {
        "safe": [8, 40, 66, 132],
        "unsafe": [92],
        "not_known": {},
        "wrong": {"92": answer["operations"][:2]},
        "libraries": {"torch": "2.0.0", "cublas": "130100"},
        "gpu_uuid": UUID,
        "units_total": 132,
        "skipped": {"attention bf16 cudnn": "no such thing"},
    }
    assert {key: answer[key] for key in known} == known
    verdict, words = doctor(host)
    assert verdict == "ok"
    assert re.match("4 of 5 SM counts are safe, checked .* here;", words)


def test_what_a_person_reads(host: FakeHost) -> None:
    done = host.advisor("check", *PYTHON, "--counts", "8,10,12,92", FAKE_WRONG_AT="92")
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert [*lines[:4], lines[-1]] == [
        "Fake H200, 132 SMs, driver 580.00.00, torch 2.0.0, cublas 130100",
        "safe 8-12 132",
        "unsafe 92",
        "92 SMs 2 of 3: matmul bf16 forward 4096x4096x4096, convolution fp32 3x3 nchw",
        "From now on no job is given 92 SMs.",
    ]
    assert re.search(
        "4/4.*92 SMs  2 operations wrong  eta 0:0|92 SMs  2 operations", done.stderr, re.S
    )


def test_interrupt_then_the_same_command_goes_on(host: FakeHost) -> None:
    with after_counts(host, 2, FAKE_WRONG_AT="10") as process:
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate()
    assert process.returncode == 130, rest
    assert host.control("get_default_active_thread_percentage") == ""
    kept = stored(host)["checked"]
    assert 3 <= len(kept) < 13
    answer = check(host, *TWELVE, FAKE_WRONG_AT="10")
    assert (answer["unsafe"], len(answer["checked"])) == ([10], 13)
    assert set(started(host)) == {132} | set(answer["checked"]) - set(kept)
    again = check(host, *TWELVE, FAKE_CRASH_AT="8,10,132")
    assert again["unsafe"] == [10], "known counts need no GPU"


def test_a_process_that_crashes_is_not_called_safe(host: FakeHost) -> None:
    """Its count is not known, with the reason and another exit code; it is tried twice."""
    answer = check(host, "--counts", "8,92", code=5, FAKE_CRASH_AT="92")
    reason = "ended with exit code 3: CUDA error: an illegal memory access was encountered"
    assert (answer["checked"], answer["safe"]) == ([8, 132], [8, 132])
    assert answer["not_known"] == {"92": reason}
    assert started(host) == [8, 92, 92, 132]
    # What failed next to others is tried again alone.
    once = check(host, "--counts", "8,92", FAKE_CRASH_AT="92", FAKE_ONCE="92")
    assert (once["safe"], once["not_known"]) == ([8, 92, 132], {})
    # A count that cannot be computed is not known any more; nor one at which other SMs are seen.
    for faults in ({"FAKE_CRASH_AT": "92"}, {"FAKE_BLIND": "1"}):
        fresh = check(host, "--counts", "92", "--fresh", code=5, **faults)
        assert fresh["checked"] == stored(host)["checked"] == [8, 132]
    assert fresh["not_known"] == {"92": "it saw 132 SMs"}


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


def test_another_driver_or_library_asks_for_another_check(host: FakeHost, tmp_path: Path) -> None:
    """The doctor says what changed; the next check believes nothing of the old one.

    Versions are those of the interpreter that jobs run with.
    """
    check(host, "--counts", "8,92", FAKE_WRONG_AT="92")
    # Under its whole name: PATH would lead back here.
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} {PYTHON[1]} "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    path = f"{tmp_path}:{host.environment()['PATH']}"
    assert "cublas 130100 then, 130200 now" in doctor(host, PATH=path, FAKE_CUBLAS="130200")[1]
    (host.folder / "nvml" / "driver").write_text("590.10.01")
    changed = "driver 580.00.00 then, 590.10.01 now"
    verdict, words = doctor(host)
    assert (verdict, changed in words, "advisor check again" in words) == ("warning", True, True)
    done = host.advisor("check", *PYTHON, "--counts", "92")
    assert f"{changed}: all is checked again" in done.stderr
    assert (stored(host)["checked"], doctor(host)[0]) == ([92, 132], "ok")


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
    assert (file.read_text(), doctor(host)[0]) == ("{", "missing")
