"""GPUs watched now, for some minutes, into a file of series: through exporters, or on this host."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from advisor.core.gpu import Gpu
from advisor.core.telemetry import COUNTERS, MEMORY_USED, POWER_GPU, POWER_LIMIT
from advisor_audit.sources.lines import write_lines
from advisor_audit.sources.series import BUSY, FREE, LIMIT, METRICS, NAMES, POWER, USED, Series
from advisor_profiling.telemetry.dcgm import fetch, samples
from advisor_profiling.telemetry.nvml import NvmlSource, busy_percent, held_mib, list_gpus

EVERY_S = 10.0
LINE_S = 60.0
"""A line holds so much: what is written survives an interruption."""

_Row: TypeAlias = tuple[Mapping[str, str], float]

_STATES = {POWER_GPU: POWER, POWER_LIMIT: LIMIT, MEMORY_USED: USED}


def record(
    read: Callable[[], Iterator[_Row]],
    path: Path,
    span_s: float,
    on_progress: Callable[[float], None],
    *,
    every_s: float = EVERY_S,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Append what is read to a file of series until the time is over.

    Raises:
        SourceError: the source is gone.
    """
    begin_s = written_s = clock()
    waiting: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = defaultdict(list)
    try:
        while True:
            now_s = clock()
            for labels, value in read():
                waiting[tuple(sorted(labels.items()))].append((now_s, value))
            over = now_s - begin_s >= span_s
            if now_s - written_s >= LINE_S:
                _write(path, waiting)
                written_s = now_s
            on_progress(min(span_s, now_s - begin_s))
            if over:
                return
            sleep(max(0.0, every_s - (clock() - now_s)))
    finally:
        _write(path, waiting)  # also what Ctrl-C leaves


def _write(
    path: Path, waiting: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]]
) -> None:
    with path.open("ab") as file:
        write_lines(file, _series(waiting))
    waiting.clear()


def _series(
    waiting: Mapping[tuple[tuple[str, str], ...], Sequence[tuple[float, float]]],
) -> Iterator[Series]:
    for labels, pairs in waiting.items():
        yield Series(dict(labels), [t for t, _ in pairs], [v for _, v in pairs])


def read_exporters(urls: Sequence[str]) -> Iterator[_Row]:
    """Every row of these exporters that an audit knows.

    Raises:
        SourceError: one of them does not answer, or not with metrics.
    """
    for url in urls:
        for name, labels, value in samples(fetch(url)):
            if name in NAMES:
                kept = {**labels, "GPU_I_ID": labels.get("gpu_i_id", "")}
                kept["modelName"] = labels.get("modelname", "")
                yield {**kept, "__name__": name}, value


class ThisHost:
    """The NVIDIA GPUs of this host, through NVML.

    Raises:
        SourceError: no driver, or no GPU.
    """

    def __init__(self) -> None:
        self._sources = [NvmlSource(gpu.uuid) for gpu in list_gpus()]
        for source in self._sources:
            source.start_window()

    def read(self) -> Iterator[_Row]:
        """What the GPUs read now, under the names of dcgm-exporter."""
        for gpu, found in self.look():
            labels = {"UUID": gpu.uuid, "modelName": gpu.model}
            for column, value in found.items():
                name, scale = next(iter(METRICS[column].items()))
                yield {**labels, "__name__": name}, value / scale

    def look(self) -> Iterator[tuple[Gpu, dict[str, float]]]:
        """Each GPU, and what it reads now; counters are means since the last look."""
        for source in self._sources:
            uuid = source.gpu.uuid
            read = source.read([channel.name for channel in source.channels])
            found = {_STATES.get(name) or COUNTERS.get(name, ""): of for name, of in read.items()}
            # Cards before Hopper have no other activity.
            if found.get(BUSY) is None:
                found[BUSY] = busy_percent(uuid)
            # Of an empty card, too, the driver keeps some memory for itself.
            taken_mib, held = found[USED], held_mib(uuid)
            if source.gpu.memory_mib is not None and taken_mib is not None:
                found[USED] = taken_mib if held is None else held
                found[FREE] = source.gpu.memory_mib - taken_mib
            known = ((column, value) for column, value in found.items() if column in METRICS)
            yield source.gpu, {column: value for column, value in known if value is not None}
            source.start_window()

    def close(self) -> None:
        """Let the driver go."""
        for source in self._sources:
            source.close()
