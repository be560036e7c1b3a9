"""Runs a server and counts its progress by its Prometheus page.

    python -m advisor.scrape --url http://127.0.0.1:8000/metrics \
        --counter vllm:generation_tokens_total -- vllm serve MODEL

The page is read four times a second by this process alone, so whoever reads the progress file waits
for nothing. What cannot be read yet is told in the output and tried again.
"""

import argparse
import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import FrameType

from advisor.errors import AdvisorError, JobError, SourceError
from advisor.progress import Progress
from advisor.scrape.fetch import address_of, answers, fetch
from advisor.scrape.mirror import PageMirror
from advisor.scrape.page import parse_selector, read_page

_INTERVAL_S = 0.25
_TELL_AGAIN_S = 10.0
_LEAVE_S = 10.0


def main(words: list[str]) -> int:
    """Run the command that `words` name; its exit code, or 1 where it cannot be counted."""
    options = _options(words)
    try:
        scraper = _Scraper(options)
        if answers(options.url):
            raise JobError(
                f"somebody answers at {options.url} before the job has begun",
                why="another server would be counted in its place",
                fix="end it, or choose another port",
            )
        server = subprocess.Popen(options.command)
    except (AdvisorError, OSError) as error:
        _say(str(error))
        return 1

    def forward(number: int, _frame: FrameType | None) -> None:
        server.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)
    return _watch(server, scraper, ends=options.end_on_fault)


class _Scraper:
    """Reads the page once a time, and tells what stands in the way."""

    def __init__(self, options: argparse.Namespace) -> None:
        address_of(options.url)
        self._url = options.url
        self._counter = parse_selector(options.counter)
        self._histogram = parse_selector(options.histogram) if options.histogram else None
        self._progress = Progress()
        self._mirror = PageMirror(self._progress, options.promised_ms)
        self._told, self._told_s = "", 0.0

    def look(self) -> None:
        """Read it, if it can be read now.

        Raises:
            JobError: it never can.
        """
        try:
            page = fetch(self._url)
        except SourceError as error:
            self._tell(str(error))
            return
        try:
            self._mirror.take(read_page(page, self._counter, self._histogram))
        except SourceError as error:
            # Some servers show a counter with their first request only: until then they wait.
            self._progress.add(0)
            self._tell(str(error))

    def _tell(self, what: str) -> None:
        now_s = time.monotonic()
        if what != self._told or now_s - self._told_s >= _TELL_AGAIN_S:
            self._told, self._told_s = what, now_s
            _say(f"not counted now: {what}")


def _watch(server: subprocess.Popen[bytes], scraper: _Scraper, *, ends: bool) -> int:
    while server.poll() is None:
        next_s = time.monotonic() + _INTERVAL_S
        try:
            scraper.look()
        except JobError as error:
            _say(f"not counted any more: {error}")
            if ends:
                _end(server)
                return 1
            break
        with suppress(subprocess.TimeoutExpired):
            server.wait(max(next_s - time.monotonic(), 0))
    status = server.wait()
    return status if status >= 0 else 128 - status


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(_LEAVE_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _say(what: str) -> None:
    print(f"advisor.scrape: {what}", file=sys.stderr, flush=True)


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m advisor.scrape", description=__doc__)
    parser.add_argument("--url", required=True, help="of the page, on this host")
    parser.add_argument("--counter", required=True, help='name, or name{label="value"}')
    parser.add_argument("--histogram", help="of latencies, without _bucket")
    parser.add_argument("--promised-ms", type=float, help="the p99 that is promised")
    parser.add_argument(
        "--end-on-fault", action="store_true", help="end the server where it cannot be counted"
    )
    parser.add_argument("command", nargs="+", help="the server, after --")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
