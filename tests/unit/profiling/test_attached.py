"""Where a process that runs already is counted: its own page, its file, its output."""

import http.server
import os
import threading
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from advisor.core.gpu import Gpu
from advisor.core.job import Job, ProgressSettings
from advisor.core.records import UNCOUNTED_UNIT, WATCHED, SoloPoint
from advisor.core.telemetry import COUNTERS, MEMORY_USED, POWER_GPU
from advisor.errors import InputError, JobError
from advisor.progress import FILE_BYTES, Progress
from advisor_profiling import attached
from advisor_profiling.attached import GpuLook, ProgressSource, SoloWatch, watch
from advisor_profiling.window import VirtualClock

US, ANOTHER = (os.getpid(),), (os.getppid(),)
CARD = Gpu(uuid="GPU-1", model="NVIDIA H200", power_limit_w=700.0)


def alone(
    told: ProgressSource | None, kept: list[SoloPoint] | None = None, **job: Any
) -> SoloWatch:
    """This process, as the job `train`; what is kept of it goes to `kept`."""

    def keep(_pid: int, _job: Job, point: SoloPoint) -> None:
        if kept is not None:
            kept.append(point)

    return SoloWatch(os.getpid(), Job(name="train", command=("train",), **job), told, keep)


class Page(http.server.BaseHTTPRequestHandler):
    """A metrics page of this process."""

    tokens = 0

    def do_GET(self) -> None:
        """As HTTP servers name it."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"vllm:generation_tokens_total {Page.tokens}\n".encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called
        """Keep quiet."""


@pytest.fixture
def port() -> Generator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("options", [("--port", "{port}"), ("--config", "serve.yaml"), ()])
def test_the_page_of_a_server_is_on_its_own_port(port: int, options: tuple[str, ...]) -> None:
    """The port of the command line, or another one, as a config file may set it."""
    words = [word.format(port=port) for word in options]
    told = ProgressSource.find(US, ("vllm", "serve", "m", *words), ProgressSettings())
    assert told is not None
    assert told.progress.url == f"http://127.0.0.1:{port}/metrics"
    counts = list[float | None]()
    for Page.tokens in (10, 15, 2, 4):
        counts.append(told.read())
    assert counts == [10, 15, 17, 19], "a restart goes on"


def test_a_page_of_another_process_is_not_read(port: int) -> None:
    """Though the command line names its port; nor where the program is no server."""
    command = ("vllm", "serve", "m", "--port", f"{port}")
    training = ("/envs/vllm/bin/python", "train.py", "--port", f"{port}")
    assert ProgressSource.find(ANOTHER, command, ProgressSettings()) is None
    assert ProgressSource.find(US, training, ProgressSettings()) is None
    with pytest.raises(InputError, match="no port on which the process listens"):
        ProgressSource.find(
            ANOTHER, command, ProgressSettings(counter="vllm:generation_tokens_total")
        )


def test_a_reason_in_the_progress_file_is_that_of_the_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate is unknown, and nothing is raised."""
    file = tmp_path / "progress"
    file.write_bytes(bytes(FILE_BYTES))
    monkeypatch.setenv("ADVISOR_PROGRESS_FILE", str(file))
    monkeypatch.setattr(attached, "environment_of", lambda _pid: os.environ)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    Progress().uncounted("HTTP 500")
    told = ProgressSource.find(US, ("server",), ProgressSettings())
    assert told is not None
    with pytest.raises(JobError, match="HTTP 500"):
        told.read()
    told.close()


def test_a_look_without_a_count_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it can be read again; one look is shown however long it takes to open the GPUs."""
    answers, clock = iter([1.0, 2.0, 3.0]), VirtualClock()

    def read() -> float:
        if (count := next(answers, None)) is None:
            raise JobError("the page is gone")
        return count

    monkeypatch.setattr(attached, "_gpus", lambda _pid: [clock.sleep(0.3)][:0])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert len([*watch(alone(None), lambda: None, 0.05, 0.05, clock)]) == 1
    *_, look = watch(alone(ProgressSource(ProgressSettings(), read)), lambda: None, 2, 4, clock)
    assert (look.count, look.rate, look.fault) == (None, None, "the page is gone.")


def test_a_process_that_has_just_begun_is_seen_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It imports its libraries first: no GPU, nothing told; a source opened since reads from then.

    While it begins the driver names it on all GPUs of the host, and then on its own.
    """
    clock, kept, opened = VirtualClock(), list[SoloPoint](), list[Mock]()
    read = dict.fromkeys(COUNTERS, 40.0) | {POWER_GPU: 300.0, MEMORY_USED: 1000.0}
    other = replace(CARD, uuid="GPU-2")

    def gpus(_pid: int) -> list[Gpu]:
        return [] if clock.now_s() < 9 else [CARD, other] if clock.now_s() < 11 else [other]

    def source(uuid: str) -> Mock:
        reads = {"read.return_value": read, "processes_memory_mib.return_value": 500.0}
        opened.append(Mock(gpu=replace(CARD, uuid=uuid), channels=(), gates=(), **reads))
        return opened[-1]

    told = ProgressSource(ProgressSettings(kind="output", pattern="step"), lambda: clock.now_s())
    monkeypatch.setattr(attached, "_gpus", gpus)
    monkeypatch.setattr(attached, "NvmlSource", source)
    monkeypatch.setattr(attached, "compute_pids", lambda _uuid: [*US])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setattr(attached, "held_mib", lambda _uuid: 900.0)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    looks = [*watch(alone(None, kept), lambda: told if clock.now_s() >= 13 else None, 2, 80, clock)]
    assert [len(look.gpus) for look in looks[:8]] == [0, 0, 0, 0, 0, 1, 1, 1]
    assert (kept[-1].gpu_uuid, kept[-1].rate, kept[-1].rate_unit) == (
        "GPU-2",
        pytest.approx(1),
        "steps",
    )
    assert looks[-1].alone_s == pytest.approx(62, abs=4)
    assert {source.gpu.uuid for source in opened if source.close.called} == {"GPU-1", "GPU-2"}


def test_output_that_starts_again_is_counted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with each epoch; colours are left out, and so is what is no number."""
    log = tmp_path / "log"
    log.write_text("step 1\nstep 2\n")
    monkeypatch.setattr(attached, "_outputs", lambda _pids: [log])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    both = [
        ProgressSource.find(US, ("train",), ProgressSettings(pattern=pattern))
        for pattern in (r"step (\S+)", "step")
    ]
    assert [told and told.read() for told in both] == [2, 2]
    with log.open("a") as more:
        more.write("\x1b[1mstep 3\x1b[0m\nstep none\nstep 1\nstep 2\nstep 3\n")
    assert [told and (told.read(), told.close()) for told in both] == [(6, None), (7, None)]


def one_look(watts: float = 300.0, *, is_whole: bool = True) -> GpuLook:
    means = {"power_w": watts, "sm_active_percent": 40.0, "memory_free_mib": 1.0}
    return GpuLook(gpu=CARD, means=means, pids=US, is_whole=is_whole, process_memory_mib=5000.0)


def test_a_job_alone_is_kept_in_one_growing_window() -> None:
    """Watts from when it counts on; after a minute, two, four: the same row of the store."""
    kept = list[SoloPoint]()
    one = alone(ProgressSource(ProgressSettings(), lambda: None), kept)
    for second in range(0, 20, 2):
        one.add(second, one_look(90.0), None, 70.0)
    for second in range(20, 340, 2):
        one.add(second, one_look(), 5.0 * second, 70.0)
    assert [point.window_s for point in kept] == [60, 120, 240]
    assert len({point.point_id for point in kept}) == 1
    last = kept[-1]
    assert (last.flags, last.share_percent, last.rate) == ((WATCHED,), 100, pytest.approx(5.0))
    assert (last.power_w, last.idle_power_w, last.memory_used_mib) == (300.0, 70.0, 5000.0)
    assert (last.sm_active_percent, last.dram_active_percent) == (40.0, None)


def test_kernels_that_a_job_file_declares_are_those_of_a_job_that_is_seen() -> None:
    """A kernel lasts its part of the busy time; in the unit of the file, where that is counted."""
    kept = list[SoloPoint]()
    counted = ProgressSource(ProgressSettings(), lambda: None)
    for source in (counted, None):
        one = alone(source, kept, kernels_per_unit=8.0)
        for second in range(0, 70, 2):
            one.add(second, one_look(), source and 5.0 * second, None)
    assert [point.kernels_per_unit for point in kept] == [8.0, None]
    assert kept[0].kernel_hold_s == pytest.approx(0.4 / (8 * 5))


def test_nothing_is_kept_of_a_job_beside_another_or_that_stands_still() -> None:
    """Nor of one that MPS may limit; the time alone begins anew once the other has left."""
    kept = list[SoloPoint]()
    one = alone(None, kept)
    for second in range(0, 170, 2):
        one.add(second, None if second == 50 else one_look(), None, None)
    assert [(p.window_s, p.rate, p.rate_unit) for p in kept] == [(60, 1.0, UNCOUNTED_UNIT)]
    assert kept[0].idle_power_w is None
    limited = alone(None, kept)
    for second in range(0, 100, 2):
        limited.add(second, one_look(is_whole=False), None, None)
    still = alone(ProgressSource(ProgressSettings(), lambda: 7.0), kept)
    for second in range(0, 100, 2):
        still.add(second, one_look(), 7.0, None)
    assert len(kept) == 1
