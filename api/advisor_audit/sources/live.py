"""GPUs watched now, for some minutes, into a file of series: through exporters, or on this host."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from advisor_audit.sources.prometheus import write_lines
from advisor_audit.sources.series import METRICS, NAMES, Series
from advisor_profiling.attached import HostGpus
from advisor_profiling.telemetry.dcgm import fetch, samples

EVERY_S = 10.0
LINE_S = 60.0
"""A line holds so much: what is written survives an interruption."""

_Row: TypeAlias = tuple[Mapping[str, str], float]


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
        write_lines(
            file,
            (
                Series(dict(labels), [t for t, _ in pairs], [v for _, v in pairs])
                for labels, pairs in waiting.items()
            ),
        )
    waiting.clear()


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


def read_host(host: HostGpus) -> Iterator[_Row]:
    """What the GPUs of this host read now, under the names of dcgm-exporter."""
    for look in host.look():
        labels = {"UUID": look.gpu.uuid, "modelName": look.gpu.model}
        for column, value in look.means.items():
            for name, scale in [*METRICS.get(column, {}).items()][:1]:
                yield {**labels, "__name__": name}, value / scale
