"""Where a process that runs already is counted: its own page, its file, its output."""

import http.server
import os
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from advisor.core.job import ProgressSettings
from advisor.errors import InputError, JobError
from advisor.progress import FILE_BYTES, Progress
from advisor_profiling import attached
from advisor_profiling.attached import ToldProgress, find_told, watch
from advisor_profiling.window import VirtualClock

US, ANOTHER = (os.getpid(),), (os.getppid(),)


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
    told = find_told(US, ("vllm", "serve", "m", *words), ProgressSettings())
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
    assert find_told(ANOTHER, command, ProgressSettings()) is None
    assert find_told(US, training, ProgressSettings()) is None
    with pytest.raises(InputError, match="no port on which the process listens"):
        find_told(ANOTHER, command, ProgressSettings(counter="vllm:generation_tokens_total"))


def test_a_reason_in_the_progress_file_is_that_of_the_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate is unknown, and nothing is raised."""
    file = tmp_path / "progress"
    file.write_bytes(bytes(FILE_BYTES))
    monkeypatch.setenv("ADVISOR_PROGRESS_FILE", str(file))
    monkeypatch.setattr(attached, "environment_of", lambda _pid: os.environ)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    Progress().uncounted("HTTP 500")
    told = find_told(US, ("server",), ProgressSettings())
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
    assert len([*watch(os.getpid(), None, 0.05, 0.05, clock)]) == 1
    told = ToldProgress(ProgressSettings(), read)
    *_, look = watch(os.getpid(), told, 2, 4, clock)
    assert (look.count, look.rate, look.fault) == (None, None, "the page is gone.")


def test_output_that_starts_again_is_counted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with each epoch; colours are left out, and so is what is no number."""
    log = tmp_path / "log"
    log.write_text("step 1\nstep 2\n")
    monkeypatch.setattr(attached, "_outputs", lambda _pids: [log])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    both = [
        find_told(US, ("train",), ProgressSettings(pattern=pattern))
        for pattern in (r"step (\S+)", "step")
    ]
    assert [told and told.read() for told in both] == [2, 2]
    with log.open("a") as more:
        more.write("\x1b[1mstep 3\x1b[0m\nstep none\nstep 1\nstep 2\nstep 3\n")
    assert [told and (told.read(), told.close()) for told in both] == [(6, None), (7, None)]
