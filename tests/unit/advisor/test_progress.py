"""The job's side of progress and gate, in every language of docs/job-file.md."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_files import JobFiles

from advisor.progress import (
    FILE_BYTES,
    GO,
    QUIT,
    RUNNING,
    STARTING,
    WAITING,
    Progress,
    latency_bucket,
)
from advisor.runtime.counting import read_latencies, read_reported

PAGE = (Path(__file__).parents[3] / "docs/job-file.md").read_text()
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    return JobFiles(tmp_path)


@pytest.fixture
def job(files: JobFiles, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A job in a thread that counts by one until it is told to quit; yields what it did."""
    for name, value in files.environment.items():
        monkeypatch.setenv(name, value)
    done: list[str] = []

    def work() -> None:
        with contextlib.suppress(SystemExit):  # the way in which a job quits
            count()

    def count() -> None:
        progress = Progress(on_pause=lambda: done.append("pause"))
        progress.ready()
        while True:
            done.append("step")
            progress.add()
            time.sleep(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    yield done
    files.want(QUIT)
    thread.join(10)
    assert not thread.is_alive()


def test_nothing_happens_outside_the_advisor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADVISOR_PROGRESS_FILE", raising=False)
    monkeypatch.setenv("ADVISOR_GATE_FILE", "")
    pauses = list[str]()
    progress = Progress(on_pause=lambda: pauses.append("there is no gate"))
    progress.ready()
    progress.add(3)
    assert pauses == []


def test_missing_file_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_PROGRESS_FILE", str(tmp_path / "missing" / "file"))
    with pytest.raises(FileNotFoundError):
        Progress()


def test_gate_holds_until_go(files: JobFiles, job: list[str]) -> None:
    files.wait_for(WAITING)
    assert (job, files.count()) == (["pause"], 0)
    files.want(GO)
    files.wait_for(RUNNING)
    while files.count() < 3:
        time.sleep(0.001)
    assert job[:3] == ["pause", "step", "step"]


def test_quit_is_a_clean_exit(files: JobFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_GATE_FILE", str(files.gate))
    files.want(QUIT)
    with pytest.raises(SystemExit) as status:
        Progress().ready()
    assert status.value.code == 0


@pytest.mark.parametrize("source", snippets("python"))
def test_documented_python(files: JobFiles, source: str) -> None:
    _run([sys.executable, "-c", source], ADVISOR_PROGRESS_FILE=str(files.progress))
    assert files.count() == 96


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_documented_shell(files: JobFiles, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    source = snippets("sh")[0]
    for count in (96, 10, 0, 1234567890, 2**32 - 1):
        _run([shell, "-c", source.replace("n=96", f"n={count}")], **files.environment)
        assert files.count() == count
    assert files.progress.stat().st_size == FILE_BYTES


def test_documented_shell_gate(files: JobFiles) -> None:
    source = snippets("sh")[1] + "echo working"
    for wanted, state, output in ((GO, RUNNING, "working\n"), (QUIT, WAITING, "")):
        files.gate.write_bytes(bytes(16))
        assert _under_gate(files, ["sh", "-c", source], wanted) == output
        assert files.state() == state


@needs_cc
def test_documented_c(files: JobFiles, tmp_path: Path) -> None:
    program = _compile(tmp_path, snippets("c")[0])
    _run([program])
    assert files.count() == 0
    _run([program], **files.environment)
    assert files.count() == 96


@needs_cc
def test_documented_c_gate(files: JobFiles, tmp_path: Path) -> None:
    program, gate, *_ = snippets("c")
    body = 'int main(void) { gate = map_counts("ADVISOR_GATE_FILE", 16); pass_gate(); pass_gate();'
    source = "#define _DEFAULT_SOURCE\n#include <stdio.h>\n" + program.split("int main")[0] + gate
    command = [_compile(tmp_path, source + body + ' puts("working"); return 0; }')]
    for wanted, state, output in ((GO, RUNNING, "working\n"), (QUIT, WAITING, "")):
        files.gate.write_bytes(bytes(16))
        assert _under_gate(files, command, wanted) == output
        assert files.state() == state


@needs_cc
def test_documented_c_server(files: JobFiles, tmp_path: Path) -> None:
    latencies_s = [0.0, 3e-6, 1.2e-5, 0.0123, 2.5, 2.5, 1e4]
    program, _, server, _ = snippets("c")
    body = 'int main(void) { file = map_counts("ADVISOR_PROGRESS_FILE", 4096); '
    body += " ".join(f"answered({latency_s});" for latency_s in latencies_s) + " return 0; }"
    _run([_compile(tmp_path, program.split("int main")[0] + server + body)], **files.environment)
    assert files.count() == len(latencies_s)
    seen = Counter(dict(enumerate(read_latencies(files.progress))))
    assert +seen == Counter(map(latency_bucket, latencies_s))


def test_answers_are_counted_before_the_job_waits(
    files: JobFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in files.environment.items():
        monkeypatch.setenv(name, value)
    files.want(QUIT)
    latencies_s = [0.001, 0.001, 0.5]
    with pytest.raises(SystemExit):
        Progress().answered(latencies_s)
    assert files.count() == 3
    counts = read_latencies(files.progress)
    assert ([counts[latency_bucket(s)] for s in latencies_s], sum(counts)) == ([2, 2, 1], 3)


def _under_gate(files: JobFiles, command: list[str], wanted: int) -> str:
    """What a job prints that finds the gate closed and is then told what is wanted."""
    assert files.state() == STARTING
    with subprocess.Popen(
        command, env={**os.environ, **files.environment}, stdout=subprocess.PIPE, text=True
    ) as process:
        files.wait_for(WAITING)
        files.want(wanted)
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    return output


@needs_cc
def test_documented_c_results(files: JobFiles, tmp_path: Path) -> None:
    program, *_, report = snippets("c")
    body = (
        'int main(void) { volatile int64_t *file = map_counts("ADVISOR_PROGRESS_FILE", 4096);'
        " for (int i = 1; i <= 12; i++) { *file = 32 * i; report(file, i < 12 ? 1.0 / i : NAN); }"
        " return 0; }"
    )
    _run([_compile(tmp_path, program.split("int main")[0] + report + body)], **files.environment)
    seen = read_reported(files.progress)
    assert seen.first == tuple((32 * i, 1.0 / i) for i in range(1, 9))
    assert (seen.count, seen.not_finite, files.count()) == (12, 1, 384)


def _compile(folder: Path, source: str) -> str:
    (folder / "job.c").write_text(source)
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-O2", "-o", "job", "job.c", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return str(folder / "job")


def _run(command: list[str], **env: str) -> None:
    subprocess.run(command, env={**os.environ, **env}, check=True, timeout=20)
