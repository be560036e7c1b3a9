"""Series in a file: a line of JSON for each, as Prometheus answers range queries.

    {"metric": {"__name__": "DCGM_FI_DEV_POWER_USAGE", "UUID": "GPU-..."}, "values": [[0, "251.5"]]}

What `jq -c '.data.result[]'` makes of an answer is such a file, and so is what `--keep` writes.
"""

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from advisor.errors import InputError
from advisor_audit.sources.prometheus import GPUS_OF_PAGE, PAGE_S, Asked
from advisor_audit.sources.series import Series, gpu_of, metrics_for, workload_name

STRAY_S = 366 * 86400.0
"""Samples further than this from the middle one are of a clock that was wrong."""


def write_lines(file: IO[bytes], series: Iterable[Series]) -> None:
    """Append series, each as a line."""
    for one in series:
        values = [[t, f"{v:.15g}"] for t, v in zip(one.times_s, one.values, strict=True)]
        file.write(json.dumps({"metric": one.labels, "values": values}).encode() + b"\n")


@dataclass(slots=True)
class _Index:
    """Where the lines of a GPU begin, and what time they cover."""

    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    begins_s: "array[float]" = field(default_factory=lambda: array("d"))
    ends_s: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, offset: int, times_s: Sequence[float]) -> None:
        """One more line."""
        self.offsets.append(offset)
        self.begins_s.append(min(times_s))
        self.ends_s.append(max(times_s))

    def longest_s(self) -> float:
        """Time that one line covers at most."""
        return max(end - begin for begin, end in zip(self.begins_s, self.ends_s, strict=True))


class SeriesFile:
    """The metrics of GPUs in a file; of it only places of lines are kept in memory.

    Raises:
        InputError: it cannot be read, has a line that is no series, or none of a GPU.
    """

    def __init__(self, path: Path, *, step_s: float) -> None:
        self.url, self.step_s, self.asked = str(path), step_s, Asked()
        self._gpus: dict[str, _Index] = {}
        exporters, names = set[str](), set[str]()
        for offset, one in self._lines():
            # The labels of the exporter itself stand beside those of a job.
            if one.labels.get("exported_pod"):
                exporters.add(workload_name(one.labels.get("pod", "")))
            names.add(one.metric)
            gpu = gpu_of({**one.labels, "GPU_I_ID": ""})
            if gpu and one.times_s:
                self._gpus.setdefault(gpu, _Index()).add(offset, one.times_s)
        self.metrics, self.exporters = metrics_for(names), frozenset(exporters - {""})
        if not self._gpus or not self.metrics:
            raise InputError(
                f"{path} has no metric of a GPU",
                why="no line has a name of dcgm-exporter and a label UUID",
                fix="write what a range query of Prometheus answers, a line for each series",
            )
        self._leave_out_strays()
        begin_s = min(min(index.begins_s) for index in self._gpus.values())
        self.begin_s = step_s * (begin_s // step_s) - step_s
        self.end_s = max(max(index.ends_s) for index in self._gpus.values())
        longest_s = max(map(_Index.longest_s, self._gpus.values()))
        # A long line is read once, not for each of many short pages.
        self.page_s = max(PAGE_S, step_s * (longest_s // step_s + 1))
        gpus, size = sorted(self._gpus), max(1, int(GPUS_OF_PAGE * PAGE_S / self.page_s))
        self.groups = tuple(tuple(gpus[n : n + size]) for n in range(0, len(gpus), size))

    def read(self, group: int, begin_s: float, end_s: float) -> Iterator[Series]:
        """All series of a group of GPUs that have a sample there."""
        with Path(self.url).open("rb") as file:
            for gpu in self.groups[group]:
                index = self._gpus[gpu]
                lines = zip(index.offsets, index.begins_s, index.ends_s, strict=True)
                for offset, first_s, last_s in lines:
                    if first_s <= end_s and last_s > begin_s:
                        file.seek(offset)
                        yield _series(json.loads(file.readline()))

    def _leave_out_strays(self) -> None:
        """Or one clock that began in 1970 would make years of empty pages."""
        ends = sorted(end for index in self._gpus.values() for end in index.ends_s)
        low, high = (ends[len(ends) // 2] + side * STRAY_S for side in (-1, 1))
        for gpu, index in [*self._gpus.items()]:
            if low <= min(index.begins_s) and max(index.ends_s) <= high:
                continue
            near = self._gpus[gpu] = _Index()
            for offset in index.offsets:
                times_s = self._at(offset).times_s
                kept = [t for t in times_s if low <= t <= high]
                self.asked.strays += len(times_s) - len(kept)
                if kept:
                    near.add(offset, kept)
            if not near.offsets:
                del self._gpus[gpu]

    def _at(self, offset: int) -> Series:
        with Path(self.url).open("rb") as file:
            file.seek(offset)
            return _series(json.loads(file.readline()))

    def _lines(self) -> Iterator[tuple[int, Series]]:
        path, number, offset = Path(self.url), 0, 0
        with InputError.instead_of(OSError, f"{path} cannot be read"), path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                with InputError.instead_of(
                    (ValueError, KeyError, TypeError, AttributeError),
                    f"line {number} of {path} is no series",
                    fix="each line is one, as a range query of Prometheus answers: "
                    '{"metric": {"__name__": NAME, "UUID": GPU}, "values": [[SECONDS, "VALUE"]]}',
                ):
                    yield offset, _series(json.loads(line))
                offset += len(line)


def _series(line: Mapping[str, Any]) -> Series:
    if not {"metric", "values"} <= line.keys():
        raise ValueError("it has no metric with values")
    labels = {str(name): str(value) for name, value in line["metric"].items()}
    values = line["values"]
    times_s = [float(t) for t, _ in values]
    if not all(map(math.isfinite, times_s)):
        raise ValueError("a time is no number")
    return Series(labels, times_s, [float(v) for _, v in values])
