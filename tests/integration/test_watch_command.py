"""`advisor watch`: processes that run already beside a fake driver, and how to profile them."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from fake_nvml import FakeNvml
from host import FAKES, FakeHost
from launched import wait_for_line
from waiting import eventually, free_port

from advisor.formats.job_file import load_job
from advisor.progress import FILE_BYTES
from advisor.scrape.fetch import answers
from advisor.scrape.page import SERVERS

pytestmark = pytest.mark.slow

STEPS_PER_S = 100.0
PRINTS = (
    "import time; begun = time.monotonic()\n"
    "for n in range(1, 10**6):\n"
    "    print(f'step {n}/1000000 loss 0.1', flush=True)\n"
    f"    time.sleep(max(0, begun + n / {STEPS_PER_S} - time.monotonic()))"
)
COUNTS = (
    "import time; from advisor.progress import Progress; progress = Progress()\n"
    "while True: progress.add(7); time.sleep(0.01)"
)


@contextmanager
def running(
    *words: str, output: int | IO[bytes] = subprocess.DEVNULL, **environment: str
) -> Generator[int]:
    """A process that nobody started for us."""
    with subprocess.Popen([sys.executable, *words], stdout=output, env=environment) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def looks(host: FakeHost, pid: int, *options: str) -> list[dict[str, Any]]:
    done = host.advisor("watch", str(pid), "--json", *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_process_that_prints_is_counted_beside_what_its_gpu_does(
    host: FakeHost, tmp_path: Path
) -> None:
    """Its own memory, the watts of the card, and who else computes there; keys stay the same."""
    log = tmp_path / "log"
    with log.open("wb") as output, running("-c", PRINTS, output=output) as pid:
        (host.folder / "nvml" / "gpu0" / "compute_processes").write_text(f"{pid} 5000\n1 30")
        eventually(lambda: b"step 9/" in log.read_bytes())
        *_, last = looks(host, pid, "--every", "0.5", "--for", "2")
        shown = host.advisor("watch", str(pid), "--once", "--every", "0.5").stdout
    assert set(last) == {
        "schema", "pid", "job", "at", "watched_s", "alone_s", "count", "unit", "rate", "fault",
        "gpus",
    }  # fmt: skip
    # A busy host makes it late, never early.
    assert 0 < last["rate"] < 1.03 * STEPS_PER_S
    (gpu,) = last["gpus"]
    assert set(gpu) == {
        "index", "model", "power_w", "power_limit_w", "sm_active_percent", "memory_mib", "others",
        "impossible",
    }  # fmt: skip
    assert None not in gpu.values()
    assert (gpu["memory_mib"], gpu["others"]) == (5000, [1])
    assert "to profile it: advisor profile --name" in shown


def test_a_count_goes_before_what_is_printed(host: FakeHost, tmp_path: Path) -> None:
    """As where optimizer steps are counted in a process that was started so."""
    file = tmp_path / "progress"
    file.write_bytes(bytes(FILE_BYTES))
    with running("-c", "import time; time.sleep(60)", ADVISOR_PROGRESS_FILE=str(file)) as pid:
        (look,) = looks(host, pid, "--once", "--every", "0.5")
        assert (look["count"], look["rate"]) == (0, None)
    with running("-c", COUNTS, ADVISOR_PROGRESS_FILE=str(file)) as pid:
        eventually(lambda: file.read_bytes()[0])
        (look,) = looks(host, pid, "--once", "--every", "0.5")
    assert (look["count"] % 7, look["gpus"]) == (0, [])


def test_a_server_is_counted_by_its_page_and_kept_as_a_job(host: FakeHost) -> None:
    """The page is named, or that of a server which is known by its command line."""
    port = free_port()
    url, counter = f"http://127.0.0.1:{port}/metrics", "fake:generation_tokens_total"
    with running(
        str(FAKES / "metrics_job.py"), str(port), LD_LIBRARY_PATH=str(host.libraries)
    ) as pid:
        eventually(lambda: answers(url))
        page = ("--url", url, "--counter", counter)
        (look,) = looks(host, pid, "--once", "--every", "0.5", *page, "--save", "server")
        half = host.advisor("watch", str(pid), "--url", url)
    assert look["rate"] > 0
    kept = load_job(host.folder / "jobs" / "server.yaml").progress
    assert (kept.kind, kept.url, kept.counter) == ("metrics", url, counter)
    assert half.returncode == 2
    assert "say both --url and --counter" in half.stderr


def test_a_process_that_tells_nothing_is_told_how_to(host: FakeHost) -> None:
    """It makes no job; neither do all processes, or one that is not there."""
    with running("-c", "import time; time.sleep(60)") as pid:
        shown = host.advisor("watch", str(pid), "--once", "--every", "0.5")
        assert shown.returncode == 0, shown.stderr
        assert "it writes to /dev/null" in shown.stdout
        for words in ([str(pid)], []):
            assert host.advisor("watch", *words, "--save", "job").returncode == 2
    assert f"there is no process {pid}" in host.advisor("watch", str(pid)).stderr


def test_names_of_known_servers_are_those_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "job-file.md").read_text()
    for server in SERVERS:
        assert server.counter is None or f"`{server.counter}`" in page
        assert server.histogram is None or f"`{server.histogram}`" in page


def test_all_jobs_of_a_host_are_watched(host: FakeHost) -> None:
    """Each with its process, and who could share a card; who shares one already stays there."""
    nvml = FakeNvml(host.libraries, host.folder / "nvml")
    nvml.write(gpu_count=4)
    words, once = ("-c", "import time; time.sleep(60)"), ("watch", "--once", "--every", "0.5")
    with running(*words) as a, running(*words) as b:
        for gpu, pids in enumerate(([a], [b], [a, b], [])):
            told = "\n".join(f"{pid} 5000" for pid in pids)
            own = {"name": "NVIDIA H200", "memory_reserved_mib": 600, "power_mw": 180_000}
            used = 600 + 5000 * bool(pids)
            nvml.write(gpu=gpu, compute_processes=told, memory_used_mib=used, **own)
        nvml.write(gpu=2, gpm_support=0)
        nvml.write(gpu=3, power_mw=3_700_000_000, power_instant=3_700_000_000)
        seen = host.answer(*once)
        shown = " ".join(host.advisor(*once).stdout.split())
        with host.start_advisor("watch", "--every", "0.5") as until_stopped:
            wait_for_line(until_stopped, "could share a GPU")
            until_stopped.send_signal(signal.SIGINT)
            assert until_stopped.wait(30) == 0
    assert set(seen) == {"at", "basis", "jobs", "free_gpus", "together", "impossible"}
    assert seen["impossible"] > 0
    assert f"{seen['impossible']} impossible readings left out" in shown
    assert set(seen["jobs"][0]) == {
        "job", "gpu", "gpu_model", "pids", "user", "power_w", "sm_active_percent", "memory_mib",
        "half_speed", "fills", "rate", "rate_unit", "alone_s",
    }  # fmt: skip
    one, two, both = seen["jobs"]
    assert [job["pids"] for job in seen["jobs"]] == [[a], [b], [a, b]]
    assert (one["memory_mib"], one["fills"], both["fills"], both["half_speed"]) == (
        5000, False, None, None
    )  # fmt: skip
    half = one["half_speed"]
    assert 0.5 < half["low"] < half["high"] <= 1
    assert half["low"] <= half["value"] <= half["high"]
    (together,) = seen["together"]
    assert set(together) == {
        "jobs", "speeds", "limits_percent", "power_w", "saved_w", "command"
    }  # fmt: skip
    assert (together["jobs"], seen["free_gpus"]) == ([one["job"], two["job"]], [3])
    saved_w = together["saved_w"]
    assert 0 < saved_w["low"] < saved_w["value"] < saved_w["high"] < 360
    assert f"{one['job']} and {two['job']} could share a GPU" in shown
    assert re.search(r"\d+ \(\d+ to \d+\) W less", shown)
