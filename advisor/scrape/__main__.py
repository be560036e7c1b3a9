"""Runs a server and counts its progress by its Prometheus page.

    python -m advisor.scrape --url http://127.0.0.1:8000/metrics \
        --counter vllm:generation_tokens_total -- vllm serve MODEL

This process alone reads the page, four times a second at most, so readers of the progress file
never wait for it. Nothing on the page ends the server. While the page cannot be counted, the reason
is in the output and, except before the first reading, in the progress file.
"""

import argparse
import signal
import subprocess
import sys
import time
from contextlib import suppress

from advisor.errors import AdvisorError, JobError, SourceError, TooMuchError
from advisor.progress import Progress
from advisor.scrape.fetch import address_of, answers, fetch
from advisor.scrape.page import PageMirror, Reading, parse_selector, read_page


def main(words: list[str]) -> int:
    """Run the command that `words` name; its exit code, or 1 where it cannot be counted."""
    parser = argparse.ArgumentParser(prog="python -m advisor.scrape", description=__doc__)
    parser.add_argument("--url", required=True, help="of the page, on this host")
    parser.add_argument("--counter", required=True, help='name, or name{label="value"}')
    parser.add_argument("--histogram", help="of latencies, without _bucket")
    parser.add_argument("--promised-ms", type=float, help="the p99 that is promised")
    parser.add_argument("command", nargs="+", help="the server, after --")
    options = parser.parse_args(words)
    try:
        scraper = Scraper(options.url, options.counter, options.histogram, options.promised_ms)
        if answers(options.url):
            raise JobError(
                f"the port of {options.url} is taken before the server starts",
                why="another server would be counted in its place",
                fix="end that server, or choose another port",
            )
        server = subprocess.Popen(options.command)
    except (AdvisorError, OSError) as error:
        _say(str(error))
        return 1

    def forward(number: int, _frame: object) -> None:
        server.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)
    while server.poll() is None:
        now_s, used_s = time.monotonic(), time.process_time()
        scraper.look(now_s)
        # A page that is slow to parse takes a fifth of a core at most.
        pause_s = 4 * (time.process_time() - used_s)
        with suppress(subprocess.TimeoutExpired):
            server.wait(max(now_s + 0.25 - time.monotonic(), pause_s))
    status = server.wait()
    return status if status >= 0 else 128 - status


class Scraper:
    """Reads the page, and says what stands in the way."""

    def __init__(
        self,
        url: str,
        counter: str,
        histogram: str | None = None,
        promised_ms: float | None = None,
    ) -> None:
        address_of(url)
        self._url, self._counter = url, parse_selector(counter)
        self._histogram = parse_selector(histogram) if histogram else None
        self._progress = Progress()
        self._mirror = PageMirror(self._progress, promised_ms)
        self._said, self._said_s = "", 0.0
        self._read_s: float | None = None

    def look(self, now_s: float) -> None:
        """Read the page once; `now_s` is of a monotonic clock."""
        try:
            self._mirror.take(self._reading())
        except Exception as error:  # noqa: BLE001 - nothing on a page may end the server
            # A server that starts has no page yet; one that restarts its worker soon has it again.
            may_come = self._read_s is None or now_s - self._read_s <= 2
            is_none = isinstance(error, SourceError) and not isinstance(error, TooMuchError)
            if not (is_none and may_come):
                self._progress.uncounted(str(error))
            if str(error) != self._said or now_s - self._said_s >= 10:
                self._said, self._said_s = str(error), now_s
                _say(f"not counted now: {error}")
        else:
            self._read_s = now_s
            self._progress.uncounted("")

    def _reading(self) -> Reading:
        page = fetch(self._url)
        try:
            return read_page(page, self._counter, self._histogram)
        except SourceError:
            # Some servers show a counter with their first request only; until then they live.
            self._progress.add(0)
            raise


def _say(what: str) -> None:
    print(f"advisor.scrape: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
