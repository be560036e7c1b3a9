"""The program that runs a server and counts it: real pages over real HTTP, faults of every kind."""

import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import eventually, free_port

from advisor.errors import AdvisorError, InputError, JobError, SourceError
from advisor.progress import FILE_BYTES
from advisor.runtime.counting import parse_fault
from advisor.scrape import __main__ as scrape
from advisor.scrape.fetch import LARGEST_BYTES, address_of, answers, fetch

Answer = bytes | float
"""All bytes of an answer, or how long to say nothing."""


@contextmanager
def answering(answer: Answer) -> Generator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            if not isinstance(answer, bytes):
                time.sleep(answer)
            elif answer.startswith(b"drip"):
                for byte in answer:
                    time.sleep(0.1)
                    if self._gone(bytes([byte])):
                        return
            else:
                self._gone(answer)

        def _gone(self, data: bytes) -> bool:
            try:
                self.wfile.write(data)
            except OSError:
                return True
            return False

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()
            thread.join()


def test_a_page_comes_as_it_is() -> None:
    chunks = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na \r\n2\r\n1\n\r\n0\r\n\r\n"
    )
    for answer in (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n", chunks,
                   b"HTTP/1.0 200 OK\r\n\r\na 1\n"):  # fmt: skip
        with answering(answer) as url:
            assert answers(url)
            assert fetch(url) == b"a 1\n"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "answered HTTP 404"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://example.com/\r\n\r\n",
            "as to 'http://example.com/', are not",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\na 1\n", "no whole HTTP answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 20 + b"\r\n\r\n", "no whole HTTP answer"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\n",
            "no whole HTTP answer",
        ),
        (b"", "no whole HTTP answer"),
        (b"\xff\xfe no HTTP\r\n\r\n", "no whole HTTP answer"),
        (2.0, "took longer than 0.5 s"),
        (b"drip" * 30, "took longer than 0.5 s"),
    ],
)
def test_what_is_no_page_now_is_told_in_time(answer: Answer, said: str) -> None:
    with answering(answer) as url, pytest.raises(SourceError, match=said):
        fetch(url)


def test_a_page_without_end_is_refused() -> None:
    page = b"HTTP/1.0 200 OK\r\n\r\n" + b"# filler\n" * (LARGEST_BYTES // 9 + 1)
    with answering(page) as url, pytest.raises(JobError, match="sent more than 4194304 bytes"):
        fetch(url)


def test_nobody_there_is_told() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    assert not answers(url)
    with pytest.raises(SourceError, match=f"no service answers at http://127.0.0.1:{port}"):
        fetch(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/", "http://10.0.0.1/metrics", "http://example.com/", "file:///etc/passwd",
        "http://user@127.0.0.1/", "http://127.0.0.1:http/", "http://127.0.0.1/a b",
        "http://127.0.0.1/a\r\nX: y", "metrics", "http://[::1", "http://127.0.0.1.example.com/",
    ],
)  # fmt: skip
def test_only_this_host_is_spoken_to(url: str) -> None:
    with pytest.raises(InputError):
        address_of(url)


def test_addresses_of_this_host() -> None:
    assert address_of("http://localhost:8000/metrics?a=1") == ("localhost", 8000, "/metrics?a=1")
    assert address_of("http://[::1]:8002") == ("::1", 8002, "/")


SERVER = """
import sys, time
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
registry = CollectorRegistry()
Gauge("waiting", "Waiting.", registry=registry)
done = Counter("done", "Steps.", registry=registry)
start_http_server(int(sys.argv[1]), "127.0.0.1", registry)
while True:
    time.sleep(0.01)
    done.inc()
"""


class Program:
    def __init__(self, folder: Path, port: int) -> None:
        self.file, self.output, self.port = folder / "progress", folder / "log", port
        self.file.write_bytes(bytes(FILE_BYTES))

    @contextmanager
    def run(
        self, counter: str, *options: str, code: str = SERVER
    ) -> Generator[subprocess.Popen[bytes]]:
        url = f"http://127.0.0.1:{self.port}/metrics"
        command = [
            sys.executable, "-I", "-m", "advisor.scrape", f"--url={url}", f"--counter={counter}",
            *options, "--", sys.executable, "-c", code, str(self.port),
        ]  # fmt: skip
        env = {**os.environ, "ADVISOR_PROGRESS_FILE": str(self.file)}
        with self.output.open("wb") as log, subprocess.Popen(command, env=env, stderr=log) as ours:
            try:
                yield ours
            finally:
                ours.terminate()
                ours.wait(20)

    def count(self) -> int:
        return int.from_bytes(self.file.read_bytes()[:8], "little")

    def said(self, what: str) -> bool:
        return what in self.output.read_text()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path, free_port())


def test_a_server_is_waited_for_and_counted(program: Program) -> None:
    with program.run("done_total") as ours:
        eventually(lambda: program.count() > 20, program.output.read_text)
        assert program.said("no service answers at")
        ours.terminate()
        assert ours.wait(20) == 128 + 15
    assert not answers(f"http://127.0.0.1:{program.port}/")


def test_a_port_that_is_taken_is_refused(program: Program) -> None:
    with answering(b"") as url:
        program.port = int(url.split(":")[2].split("/")[0])
        with program.run("done_total") as ours:
            assert ours.wait(20) == 1
    assert program.said("is taken before the server starts")


def test_what_is_no_counter_is_a_fault_and_the_server_goes_on(program: Program) -> None:
    with program.run("waiting") as ours:
        eventually(lambda: parse_fault(program.file.read_bytes()), program.output.read_text)
        assert ours.poll() is None
    assert "is a gauge, not a counter" in parse_fault(program.file.read_bytes())
    assert program.said("is a gauge, not a counter")


def test_a_page_is_missed_only_when_it_was_read_before(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server starts, works, is gone for longer than a restart of its worker, and is back."""
    pages: list[bytes | AdvisorError] = []

    def next_page(_url: str) -> bytes:
        if isinstance(page := pages.pop(0), bytes):
            return page
        raise page

    monkeypatch.setenv("ADVISOR_PROGRESS_FILE", str(program.file))
    monkeypatch.setattr(scrape, "fetch", next_page)
    scraper = scrape.Scraper("http://127.0.0.1:8000/metrics", "done_total")
    gone, large = SourceError("no service answers"), JobError("sent more than 4194304 bytes")
    for now_s, page, count, fault in (
        (0.0, gone, 0, ""),
        (60.0, b"other_total 1\n", 0, ""),
        (61.0, b"done_total 5\n", 5, ""),
        (63.0, gone, 5, ""),
        (63.1, gone, 5, "no service answers."),
        (64.0, b"done_total 2\n", 7, ""),
        (64.1, large, 7, "sent more than 4194304 bytes."),
        (64.2, b"done_total 3\n", 8, ""),
        (64.3, b'done_total{a="\xff', 8, ""),
        (66.3, b"other_total 1\n", 8, "the page has no counter done_total"),
    ):
        pages.append(page)
        scraper.look(now_s)
        assert program.count() == count
        assert parse_fault(program.file.read_bytes()).startswith(fault)
        assert bool(fault) == bool(parse_fault(program.file.read_bytes()))


def test_what_cannot_be_started_is_told(program: Program) -> None:
    for counter in ("a{", "done_total"):
        command = [
            sys.executable, "-m", "advisor.scrape", f"--url=http://127.0.0.1:{program.port}",
            f"--counter={counter}", "/no/such/program",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert "advisor.scrape: " in done.stderr
