"""Telemetry of NVIDIA GPUs through a dcgm-exporter that is already running.

The exporter collects at its own interval (`-c`, 30 s unless set) and answers each request with
what it collected last, so a profile needs `-c 1000` and windows of several seconds.
"""

import time
from collections.abc import Callable, Collection
from statistics import fmean

import requests
import urllib3

from advisor.core.gpu import Gpu
from advisor.core.telemetry import ENERGY_GPU, Channel, Readings, channels_of
from advisor.errors import SourceError
from advisor_profiling.telemetry.dcgm_text import (
    COUNTERS,
    THROTTLE_MASK,
    csv_lines,
    missing_counters,
    values_of,
)
from advisor_profiling.telemetry.nvml import throttle_names

_FASTER = "start it with `-c 1000` (or DCGM_EXPORTER_INTERVAL=1000)"
_CONNECT_S, _READ_S = 2.0, 5.0
_LARGEST_BYTES = 4 * 2**20
_LONGEST_LINE = 16 * 2**10
"""The parser takes a time that grows with the square of a line, by its labels and its quotes."""
_TYPES = ("text/plain", "application/openmetrics-text")


class DcgmSource:
    """One GPU as an exporter shows it.

    The exporter is asked at most once per `interval_s`, when a reading is wanted. It counts as
    too slow when what it says of the GPU stays the same: for three intervals where it shows the
    energy counter, which always moves, and for ten where it does not, because an idle GPU can
    repeat all other values.

    Raises:
        SourceError: no exporter, not a metrics page, the GPU is not there, or the exporter does
            not collect the counters that profiles need.
    """

    name = "dcgm"

    def __init__(
        self,
        url: str,
        gpu: Gpu,
        interval_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_s = interval_s
        self._url, self.gpu, self._clock = url, gpu, clock
        self._session = requests.Session()
        self._window: list[dict[str, float]] = []
        text = fetch(url, self._session)
        _check_counters(text)
        self._values = values_of(text, gpu)
        self._asked_s = self._changed_s = clock()

    @property
    def channels(self) -> tuple[Channel, ...]:
        """What the exporter has shown of the GPU."""
        return channels_of(name for name in self._values if name != THROTTLE_MASK)

    def read(self, names: Collection[str]) -> Readings:
        """Counters are averages of the collections that appeared since `start_window`.

        The first of them began before the window, so it counts only when it is the only one.

        Raises:
            SourceError: counters are asked for and none appeared.
        """
        values = self._now()
        means = self._means() if any(name in COUNTERS for name in names) else {}
        return {name: means[name] if name in means else values.get(name) for name in names}

    def throttle_reasons(self) -> tuple[str, ...] | None:
        """From the mask of clock event reasons; None where the exporter does not collect it."""
        mask = self._now().get(THROTTLE_MASK)
        return None if mask is None else throttle_names(int(mask))

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        """None: the exporter does not know processes."""
        return None

    def start_window(self) -> None:
        """Leave the collection that is out now to the window before."""
        self._now()
        self._window = []

    def close(self) -> None:
        """Close the connection to the exporter."""
        self._session.close()

    def _means(self) -> dict[str, float | None]:
        if not self._window:
            raise SourceError(
                f"the exporter at {self._url} collected nothing within the window",
                why=f"the window is shorter than its interval, expected to be {self.interval_s} s",
                fix=f"{_FASTER} and choose a longer window",
            )
        collected = self._window[1:] or self._window
        return {name: _mean(name, collected) for name in COUNTERS}

    def _now(self) -> dict[str, float]:
        now_s = self._clock()
        if now_s - self._asked_s >= self.interval_s:
            self._asked_s = now_s
            values = values_of(fetch(self._url, self._session), self.gpu)
            if _fingerprint(values) != _fingerprint(self._values):
                self._changed_s = now_s
                self._window.append(values)
            self._values = values
            self._check_fresh(now_s - self._changed_s)
        return self._values

    def _check_fresh(self, unchanged_s: float) -> None:
        intervals = 3 if ENERGY_GPU in self._values else 10
        if unchanged_s >= intervals * self.interval_s:
            raise SourceError(
                f"the exporter at {self._url} has said the same for {unchanged_s:.1f} s",
                why=f"it does not collect every {self.interval_s} s; its default is 30 s",
                fix=_FASTER,
            )


def fetch(url: str, session: requests.Session | None = None) -> str:
    """The metrics text at `url`, whole.

    Raises:
        SourceError: unreachable, too slow, an HTTP error, too large, cut off, or no metrics.
    """
    session = session or requests.Session()
    session.headers["Accept"] = "text/plain"
    try:
        with session.get(url, timeout=(_CONNECT_S, _READ_S), stream=True) as answer:
            _check_answer(url, answer)
            body = _read(url, answer)
    except (requests.ReadTimeout, urllib3.exceptions.ReadTimeoutError) as error:
        raise _too_slow(url) from error
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise SourceError(
            f"no answer from the exporter at {url}",
            why=str(error),
            fix="start dcgm-exporter (`-c 1000`) or set ADVISOR_DCGM_URL to its address",
        ) from error
    # The text format ends every line, the last one too.
    if not body.endswith(b"\n"):
        raise _bad(url, f"was cut off after {len(body)} bytes")
    if max(map(len, body.split(b"\n"))) > _LONGEST_LINE:
        raise _bad(url, f"sent a line of more than {_LONGEST_LINE} bytes")
    return body.decode(errors="replace")


def _read(url: str, answer: requests.Response) -> bytes:
    started_s = time.monotonic()
    body = bytearray()
    # read1 returns what has arrived; iter_content would wait for more without end, because the
    # timeouts of requests are for each read of the socket.
    while part := answer.raw.read1(65536, decode_content=True):
        body += part
        if len(body) > _LARGEST_BYTES:
            raise _bad(url, f"sent more than {_LARGEST_BYTES} bytes")
        if time.monotonic() - started_s > _READ_S:
            raise _too_slow(url)
    return bytes(body)


def _check_answer(url: str, answer: requests.Response) -> None:
    if answer.status_code != 200:
        raise _bad(url, f"answered HTTP {answer.status_code}")
    kind = answer.headers.get("Content-Type", "")
    if not kind.startswith(_TYPES):
        raise _bad(url, f"sent {kind or 'no content type'} instead of metrics text")


def _too_slow(url: str) -> SourceError:
    return _bad(url, f"took longer than {_READ_S} s")


def _bad(url: str, what: str) -> SourceError:
    return SourceError(
        f"the exporter at {url} {what}",
        fix=f"see what `curl -i {url}` prints; the path is usually /metrics",
    )


def _check_counters(text: str) -> None:
    if missing := missing_counters(text):
        raise SourceError(
            f"the exporter does not collect {', '.join(missing)}",
            why="its default CSV leaves them out",
            fix=(
                "add these lines to its CSV (`-f`, /etc/dcgm-exporter/default-counters.csv) and"
                f" restart it:\n{csv_lines(missing)}\n"
            ),
        )


def _fingerprint(values: dict[str, float]) -> object:
    return values.get(ENERGY_GPU, values)


def _mean(name: str, collected: list[dict[str, float]]) -> float | None:
    known = [values[name] for values in collected if name in values]
    return fmean(known) if known else None
