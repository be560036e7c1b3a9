"""Telemetry of NVIDIA GPUs through a dcgm-exporter that is already running.

The exporter collects at its own interval (`-c`, 30 s unless set) and answers each request with
what it collected last, so a profile needs `-c 1000` and windows of several seconds.
"""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import requests
import urllib3

from advisor.core.gpu import Gpu
from advisor.core.telemetry import (
    CLOCK_MEMORY,
    CLOCK_SM,
    ENERGY_GPU,
    MEMORY_USED,
    POWER_GPU,
    POWER_LIMIT,
    TEMPERATURE_GPU,
    UNITS,
    Channel,
    ReadingGate,
    Readings,
    channels_of,
)
from advisor.core.wording import shown
from advisor.errors import SourceError, TooMuchError
from advisor.runtime.processes import in_thread
from advisor.scrape.page import typed_samples
from advisor_profiling.telemetry.nvml import throttle_names


@dataclass(frozen=True, slots=True)
class DcgmField:
    """A value that we want, and the fields that hold it, the best first.

    Attributes:
        scale: Factor from the exporter's unit to ours.
    """

    names: tuple[str, ...]
    scale: float = 1


_RATIO = 100.0  # 0..1 to percent
_BYTES = 1 / 2**20  # bytes per second to MiB per second

COUNTERS: dict[str, DcgmField] = {
    "counter.sm_active": DcgmField(("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO"), _RATIO),
    "counter.sm_occupancy": DcgmField(("PROF_SM_OCCUPANCY", "PROF_SM_OCCUPANCY_RATIO"), _RATIO),
    "counter.fp32_active": DcgmField(("PROF_PIPE_FP32_ACTIVE", "PROF_FP32_UTIL_RATIO"), _RATIO),
    "counter.fp64_active": DcgmField(("PROF_PIPE_FP64_ACTIVE", "PROF_FP64_UTIL_RATIO"), _RATIO),
    "counter.fp16_active": DcgmField(("PROF_PIPE_FP16_ACTIVE", "PROF_FP16_UTIL_RATIO"), _RATIO),
    "counter.tensor_active": DcgmField(
        ("PROF_PIPE_TENSOR_ACTIVE", "PROF_TENSOR_UTIL_RATIO"), _RATIO
    ),
    "counter.integer_active": DcgmField(("PROF_PIPE_INT_ACTIVE", "PROF_INT_UTIL_RATIO"), _RATIO),
    "counter.dram_active": DcgmField(("PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO"), _RATIO),
    "counter.gpu_busy": DcgmField(("PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO"), _RATIO),
    "counter.memory_busy": DcgmField(("DEV_MEM_COPY_UTIL",)),
    "counter.pcie_tx": DcgmField(("PROF_PCIE_TX_BYTES",), _BYTES),
    "counter.pcie_rx": DcgmField(("PROF_PCIE_RX_BYTES",), _BYTES),
    "counter.nvlink_tx": DcgmField(("PROF_NVLINK_TX_BYTES",), _BYTES),
    "counter.nvlink_rx": DcgmField(("PROF_NVLINK_RX_BYTES",), _BYTES),
}

# A value that is no channel: reasons are named.
_THROTTLE_MASK = "throttle mask"

STATE: dict[str, DcgmField] = {
    # The instant fields first; the others are an average over 1 s on most GPUs.
    POWER_GPU: DcgmField(
        (
            "DEV_POWER_USAGE_INSTANT",
            "DEV_BOARD_POWER_RAW_WATTS",
            "DEV_POWER_USAGE",
            "DEV_BOARD_POWER_WATTS",
        )
    ),
    ENERGY_GPU: DcgmField(("DEV_TOTAL_ENERGY_CONSUMPTION",), 1 / 1000),  # from mJ
    CLOCK_SM: DcgmField(("DEV_SM_CLOCK",)),
    CLOCK_MEMORY: DcgmField(("DEV_MEM_CLOCK",)),
    TEMPERATURE_GPU: DcgmField(("DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS")),
    MEMORY_USED: DcgmField(("DEV_FB_USED",)),
    POWER_LIMIT: DcgmField(("DEV_ENFORCED_POWER_LIMIT", "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS")),
    _THROTTLE_MASK: DcgmField(("DEV_CLOCKS_EVENT_REASONS", "DEV_CLOCK_THROTTLE_REASONS")),
}

# Counters that the exporter's default CSV leaves out, with the help text of their line.
_OFF_BY_DEFAULT: dict[str, str] = {
    "counter.sm_active": "The ratio of cycles an SM has at least 1 warp assigned.",
    "counter.sm_occupancy": "The ratio of number of warps resident on an SM.",
    "counter.fp64_active": "Ratio of cycles the fp64 pipes are active.",
    "counter.fp32_active": "Ratio of cycles the fp32 pipes are active.",
    "counter.fp16_active": "Ratio of cycles the fp16 pipes are active.",
}

PREFIX = "DCGM_FI_"

BLANK = 140737488355328.0
"""DCGM says "no value" with this or more (dcgm_structs.h, DCGM_FP64_BLANK)."""


def missing_counters(text: str) -> tuple[str, ...]:
    """Fields that no GPU has in this text though profiles need them, by their older names.

    Raises:
        SourceError: the text is no metrics text.
    """
    shown = {name for name, _, _ in samples(text)}
    names = [COUNTERS[column].names for column in _OFF_BY_DEFAULT]
    return tuple(PREFIX + n[0] for n in names if not any(PREFIX + name in shown for name in n))


def csv_lines(fields: tuple[str, ...]) -> str:
    """Lines of the exporter's CSV that turn these fields on."""
    texts = {PREFIX + COUNTERS[column].names[0]: text for column, text in _OFF_BY_DEFAULT.items()}
    return "\n".join(f"{field}, gauge, {texts[field]}" for field in fields)


def values_of(text: str, gpu: Gpu) -> dict[str, float]:
    """Every value that the text has for this GPU, named as in `COUNTERS` and `STATE`.

    A GPU is known by its UUID, or by its index where rows have no UUID. The exporter repeats a
    row for each pod on a GPU: equal ones count once, and values that differ between pods are
    those of a process, not of the GPU, and are left out. Rows of MIG instances are left out too.

    Raises:
        SourceError: the text is no metrics text, has no row of this GPU, or only those of its
            MIG instances.
    """
    rows: dict[str, set[float]] = {}
    others: set[str] = set()
    only_mig = False
    for name, labels, value in samples(text):
        # The device plugin names the replicas of a shared GPU "<uuid>::<number>".
        uuid, index = labels.get("uuid", "").split("::")[0], labels.get("gpu", "")
        if (uuid or index) != (gpu.uuid if uuid else str(gpu.index)):
            others.add(labels.get("uuid") or index)
        elif labels.get("gpu_i_id"):
            only_mig = True
        else:
            rows.setdefault(name, set()).add(value)
    if not rows and only_mig:
        raise SourceError(
            f"the exporter has only rows of MIG instances for {gpu.uuid}",
            why="the counters of an instance are not those of the GPU",
            fix="turn MIG off (`nvidia-smi -mig 0`) or choose another GPU",
        )
    if not rows:
        raise SourceError(
            f"the exporter has no row for {gpu.uuid}",
            why=f"it shows {', '.join(sorted(others)) or 'no GPU'}",
            fix="use the exporter of the node that has this GPU",
        )
    values = ((name, _pick(rows, field)) for name, field in (COUNTERS | STATE).items())
    return {name: value for name, value in values if value is not None}


def samples(text: str, prefix: str = PREFIX) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Name, labels in small letters and value of each row whose name begins so.

    Raises:
        SourceError: the text is no metrics text.
    """
    wanted = (prefix, f"# TYPE {prefix}")
    for _, sample in typed_samples(ln for ln in text.split("\n") if ln.lstrip().startswith(wanted)):
        # Older exporters write Hostname and UUID where newer ones write hostname.
        labels = {key.lower(): label for key, label in sample.labels.items()}
        # The parser ends each counter with _total, as OpenMetrics wants it.
        yield sample.name.removesuffix("_total"), labels, float(sample.value)


def _pick(rows: Mapping[str, set[float]], field: DcgmField) -> float | None:
    for name in field.names:
        values = {value for value in rows.get(PREFIX + name, ()) if not BLANK <= value < math.inf}
        if len(values) == 1:
            return values.pop() * field.scale
    return None


_FASTER = "start it with `-c 1000` (or DCGM_EXPORTER_INTERVAL=1000)"
_CONNECT_S, _READ_S = 2.0, 5.0


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
        if missing := missing_counters(text):
            raise SourceError(
                f"the exporter does not collect {', '.join(missing)}",
                why="its default CSV leaves them out",
                fix=(
                    "add these lines to its CSV (`-f`, /etc/dcgm-exporter/default-counters.csv) and"
                    f" restart it:\n{csv_lines(missing)}\n"
                ),
            )
        (self._gate,) = self.gates = (ReadingGate(gpu, lambda: self._limit_w, clock),)
        self._values = self._sifted(text)
        self._read_at_s = self._changed_s = clock()

    @property
    def channels(self) -> tuple[Channel, ...]:
        """What the exporter has shown of the GPU."""
        return channels_of(name for name in self._values if name != _THROTTLE_MASK)

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
        mask = self._now().get(_THROTTLE_MASK)
        return throttle_names(int(mask)) if mask is not None and math.isfinite(mask) else None

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
        by_name = {name: [v[name] for v in collected if name in v] for name in COUNTERS}
        return {name: fmean(values) if values else None for name, values in by_name.items()}

    def _sifted(self, text: str) -> dict[str, float]:
        values = values_of(text, self.gpu)
        self._limit_w = values.get(POWER_LIMIT)
        read = self._gate.sift({name: of for name, of in values.items() if name in UNITS})
        return {name: of for name, of in {**values, **read}.items() if of is not None}

    def _now(self) -> dict[str, float]:
        now_s = self._clock()
        if now_s - self._read_at_s >= self.interval_s:
            self._read_at_s = now_s
            values = self._sifted(fetch(self._url, self._session))
            if _fingerprint(values) != _fingerprint(self._values):
                self._changed_s = now_s
                self._window.append(values)
            self._values = values
            unchanged_s = now_s - self._changed_s
            if unchanged_s >= (3 if ENERGY_GPU in values else 10) * self.interval_s:
                raise SourceError(
                    f"the exporter at {self._url} has said the same for {unchanged_s:.1f} s",
                    why=f"it does not collect every {self.interval_s} s; its default is 30 s",
                    fix=_FASTER,
                )
        return self._values


def fetch(url: str, session: requests.Session | None = None) -> str:
    """The metrics text at `url`, whole.

    Raises:
        SourceError: unreachable, too slow, an HTTP error, too large, cut off, or no metrics.
    """
    session = session or requests.Session()
    session.headers["Accept"] = "text/plain"
    # What is silent for so long is not waited for any more.
    timeout_s = (_CONNECT_S, 2 * _READ_S)
    try:
        status, headers, body = exchange(
            session, "GET", url, most_bytes=4 * 2**20, within_s=_READ_S, timeout=timeout_s
        )
    except TooMuchError as error:
        raise _bad(url, error.what) from error
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise SourceError(
            f"no answer from the exporter at {url}",
            why=str(error),
            fix="start dcgm-exporter (`-c 1000`) or set ADVISOR_DCGM_URL to its address",
        ) from error
    if status != 200:
        raise _bad(url, f"answered HTTP {status}")
    kind = headers.get("Content-Type", "")
    if not kind.startswith(("text/plain", "application/openmetrics-text")):
        raise _bad(url, f"sent {kind or 'no content type'} instead of metrics text")
    # The text format ends every line, the last one too.
    if not body.endswith(b"\n"):
        raise _bad(url, f"was cut off after {len(body)} bytes")
    return body.decode(errors="replace")


def exchange(
    session: requests.Session,
    method: str,
    url: str,
    *,
    most_bytes: int,
    within_s: float,
    **given: Any,
) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and body of an answer; nothing is sent again to where it redirects.

    Raises:
        TooMuchError: it is too long, or takes too long, with the words that follow its subject.
        SourceError: it is a redirect.
    """
    answer = in_thread(lambda: _exchanged(session, method, url, most_bytes, within_s, given))
    # The timeouts of requests are for each read of the socket.
    if not wait({answer}, within_s).done:
        raise TooMuchError(f"took longer than {within_s:g} s")
    return answer.result()


def _exchanged(
    session: requests.Session,
    method: str,
    url: str,
    most_bytes: int,
    within_s: float,
    given: Mapping[str, Any],
) -> tuple[int, Mapping[str, str], bytes]:
    ends_s, body = time.monotonic() + within_s, bytearray()
    with session.request(method, url, stream=True, allow_redirects=False, **given) as answer:
        if answer.is_redirect:
            raise SourceError(
                f"{url} redirects to {shown(answer.headers['Location'])}",
                why="the host there would get the request",
                fix="name that address, if it is the right one",
            )
        # read1 returns what has arrived; iter_content would wait for more without end.
        while part := answer.raw.read1(65536, decode_content=True):
            body += part
            if len(body) > most_bytes:
                raise TooMuchError(f"sent more than {most_bytes} bytes")
            if time.monotonic() > ends_s:  # the caller has given up
                raise TooMuchError(f"took longer than {within_s:g} s")
        return answer.status_code, answer.headers, bytes(body)


def _bad(url: str, what: str) -> SourceError:
    return SourceError(
        f"the exporter at {url} {what}",
        fix=f"see what `curl -i {url}` prints; the path is usually /metrics",
    )


def _fingerprint(values: dict[str, float]) -> object:
    return values.get(ENERGY_GPU, values)
