"""Reads counter and latencies of a job from a Prometheus page, into its progress file."""

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from advisor.errors import InputError, JobError, SourceError
from advisor.progress import LATENCY_STEP, Progress

_SUFFIX = re.compile(r"_(total|sum|count|bucket)$")
_TYPE = re.compile(rb"^# TYPE (\S+) (?:counter|histogram)", re.MULTILINE)

_LONGEST_LINE = 16 * 2**10
"""The parser takes a time that grows with the square of a line."""

# Beyond it a float does not tell two counts apart.
_LARGEST_COUNT = 2.0**53

_SECONDS = {"_us": 1e-6, "_microseconds": 1e-6, "_ms": 1e-3, "_milliseconds": 1e-3}
"""By the end of a histogram's name; seconds are what Prometheus asks for."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A name, and labels that samples of it must have."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a page says of a job.

    Attributes:
        counts: The counter of each label set that is counted.
        buckets: Upper bounds, s, each with how many requests did not exceed it; the last bound is
            infinite. Empty where no histogram is wanted, or the page has none yet.
    """

    counts: Mapping[str, float]
    buckets: tuple[tuple[float, float], ...] = ()

    @property
    def total(self) -> float:
        """Sum of the counts."""
        return sum(self.counts.values())


class SeriesTotal:
    """Sum of counters over restarts of their server, as Prometheus sees them.

    A counter that went back began again at 0. One that is missing adds nothing until it is back.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self._last: dict[str, float] = {}

    def add(self, counts: Mapping[str, float]) -> float:
        """Take a reading over; the total since the first counter began."""
        for series, now in counts.items():
            before = self._last.get(series, 0.0)
            self.total += now - before if now >= before else now
            self._last[series] = now
        if len(self._last) > 10_000:  # a server may show others each time
            self._last = {**counts}
        return self.total


def parse_selector(text: str) -> Selector:
    """A name with or without labels, such as `vllm:generation_tokens_total{engine="0"}`.

    Raises:
        InputError: it is none.
    """
    try:
        (family,) = text_string_to_metric_families(f"{text} 1\n")
        (sample,) = family.samples
    except ValueError as error:
        raise InputError(
            f"{text!r} is no name of a metric",
            why=str(error)[:200],
            fix='write it as the page does: name, or name{label="value"}',
        ) from error
    return Selector(sample.name, sample.labels)


def read_page(page: bytes, counter: Selector, histogram: Selector | None) -> Reading:
    """What the page says.

    Raises:
        SourceError: it has no such counter, or no such histogram, now.
        JobError: what has the name cannot be counted by.
    """
    samples = [*_samples(page, counter)]
    if not samples:
        names = sorted({name.decode(errors="replace") for name in _TYPE.findall(page)})
        near = difflib.get_close_matches(counter.name, names, 3, 0.5) or names[:3]
        labels = " with these labels" if counter.labels else ""
        raise SourceError(
            f"the page has no counter {counter.name}{labels}",
            why=f"near ones: {', '.join(near)}" if near else "it has no counters at all",
            fix="some servers show it with their first request only",
        )
    for kind, name, _ in samples:
        if kind not in ("counter", "unknown") and not (
            kind in ("histogram", "summary") and name.endswith(("_sum", "_count"))
        ):
            raise JobError(
                f"{counter.name} is a {kind}, not a counter",
                why="what goes up and down tells no progress",
                fix="name a counter; its name mostly ends in _total",
            )
    for _, _, sample in samples:
        if not 0 <= sample.value < _LARGEST_COUNT:
            raise JobError(f"{counter.name} is {sample.value}, which is no count")
    if counter.name.startswith("nv_inference_") and "model" not in counter.labels:
        counts = _without_parts(sample for _, _, sample in samples)
    else:
        counts = dict[str, float]()
        for _, _, sample in samples:
            series = f"{sorted(sample.labels.items())}"
            counts[series] = counts.get(series, 0.0) + sample.value
    return Reading(counts, _buckets(page, histogram) if histogram else ())


def _without_parts(samples: Iterable[Any]) -> dict[str, float]:
    """Requests to Triton, where each request to an ensemble counts at its parts as well.

    The page does not name the parts. An ensemble has no GPU (triton-inference-server/core,
    src/ensemble_scheduler/ensemble_scheduler.cc: METRIC_REPORTER_ID_CPU), and each of its requests
    runs each part once. So where models without a GPU stand beside models with one:

    - A model with a GPU that counts less than each of these is part of none: it counts by itself.
    - All others count as one, with the most that the sums can mean: at least the largest model,
      and at most the models without a GPU together, each request of which reaches some GPU.

    Assumed is that a model without a GPU is an ensemble or the first step of one. Calls of a part
    past its ensemble count only where they outnumber it; `nv_inference_count{model="NAME"}` counts
    one model alone. Versions and GPUs of a model are summed.
    """
    models, on_gpu = dict[str, float](), set[str]()
    for sample in samples:
        model = f"{sample.labels.get('namespace', '')}/{sample.labels.get('model', '')}"
        models[model] = models.get(model, 0.0) + sample.value
        if "gpu_uuid" in sample.labels:
            on_gpu.add(model)
    # A model with a GPU has a series without one as well, which stays 0 (core, src/model.cc).
    entries = [n for model, n in models.items() if n and model not in on_gpu]
    if not entries or not on_gpu:
        return models
    alone = {model: models[model] for model in on_gpu if models[model] < min(entries)}
    together = min(sum(entries), sum(models[model] for model in on_gpu))
    largest = max(n for model, n in models.items() if model not in alone)
    return {**alone, "ensembles": max(together, largest)}


def _buckets(page: bytes, histogram: Selector) -> tuple[tuple[float, float], ...]:
    wanted = Selector(f"{histogram.name}_bucket", histogram.labels)
    kinds, sums = set[str](), dict[float, float]()
    scale = next((s for end, s in _SECONDS.items() if histogram.name.endswith(end)), 1.0)
    for kind, _, sample in _samples(page, wanted):
        kinds.add(kind)
        text = sample.labels.get("le", "")
        try:
            bound = scale * float(text)
        except ValueError as error:
            raise JobError(f"a bucket ends at le={text[:100]!r}, which is no number") from error
        sums[bound] = sums.get(bound, 0.0) + sample.value
    told = re.search(rb"^# TYPE %b (\S+)" % re.escape(histogram.name.encode()), page, re.MULTILINE)
    is_other = told is not None and told[1] not in (b"histogram", b"untyped", b"unknown")
    if kinds - {"histogram", "unknown"} or is_other:
        raise JobError(f"{histogram.name} is no histogram")
    found = tuple(sorted(sums.items()))
    counts = [count for _, count in found]
    if found and (found[-1][0] != math.inf or not counts[0] >= 0 or counts != sorted(counts)):
        raise JobError(f"the buckets of {histogram.name} are no cumulative ones up to +Inf")
    if not all(count < _LARGEST_COUNT for count in counts):
        raise JobError(f"{histogram.name} has a count that is not finite")
    return found


def _samples(page: bytes, wanted: Selector) -> Iterator[tuple[str, str, Any]]:
    """Type, name and sample of all that are meant; only lines of the family are parsed."""
    stem = _SUFFIX.sub("", wanted.name).encode()
    lines = [ln for ln in page.split(b"\n") if ln.startswith((stem, b"# TYPE " + stem))]
    if any(len(line) > _LONGEST_LINE for line in lines):
        raise JobError(f"the page has a line of {wanted.name} of more than {_LONGEST_LINE} bytes")
    text = b"\n".join((*lines, b"")).decode(errors="replace")
    try:
        families: list[Any] = list(text_string_to_metric_families(text))
    except ValueError as error:
        raise SourceError("the page is no metrics text", why=str(error)[:200]) from error
    # The parser ends each counter with _total, as OpenMetrics wants it.
    names = (wanted.name, f"{wanted.name}_total")
    yield from (
        (family.type, sample.name, sample)
        for family in families
        for sample in family.samples
        if sample.name in names and wanted.labels.items() <= sample.labels.items()
    )


_GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples, without the whole part, lie evenly however few or many of them are taken in a row
(Knuth, The Art of Computer Programming, volume 3, section 6.4)."""


class PageMirror:
    """Writes readings into a progress file; counters that went back started again.

    Buckets of servers are wide and those of a progress file 5 % apart, so requests of one bucket
    are spread evenly over it: percentiles are then linear within a bucket, as those of Prometheus.
    Of requests beyond the last bound nothing else is known: they count as 5 % above it.

    Args:
        promised_ms: The p99 that is promised of the job.
    """

    def __init__(self, progress: Progress, promised_ms: float | None = None) -> None:
        self._progress, self._promised_ms = progress, promised_ms
        self._total, self._told = SeriesTotal(), 0
        self._buckets: tuple[tuple[float, float], ...] = ()

    def take(self, reading: Reading) -> None:
        """Take a reading over.

        Raises:
            JobError: the buckets do not reach a promised latency.
        """
        before, self._told = self._told, int(self._total.add(reading.counts))
        self._progress.add(self._told - before)
        if reading.buckets:
            self._take_latencies(reading.buckets)

    def _take_latencies(self, buckets: tuple[tuple[float, float], ...]) -> None:
        last_ms = 1000 * max((bound for bound, _ in buckets if bound < math.inf), default=0.0)
        if self._promised_ms is not None and self._promised_ms > last_ms:
            raise JobError(
                f"a p99 of {self._promised_ms:g} ms is promised, and the last bucket of the "
                f"histogram ends at {last_ms:g} ms",
                why="beyond it nothing is known",
                fix="give the server larger buckets, or promise less",
            )
        before, bounds_s = dict(self._buckets), [bound_s for bound_s, _ in buckets]
        if bounds_s != [*before]:
            self._progress.bounded(bounds_s)
        counts = [round(count) for _, count in buckets]
        known = [round(before.get(bound_s, 0.0)) for bound_s in bounds_s]
        # What one bucket has is the difference to the one below it.
        new, old = _differences(counts), _differences(known)
        if any(now < then for now, then in zip(new, old, strict=True)):
            old = [0] * len(new)  # the server started again
        for bounds, then, now in zip(pairwise([0.0, *bounds_s]), old, new, strict=True):
            self._spread(bounds, then, now)
        self._buckets = buckets

    def _spread(self, bounds_s: tuple[float, float], known: int, now: int) -> None:
        low_s, high_s = max(bounds_s[0], 0.0), bounds_s[1]
        if high_s == math.inf:
            low_s = high_s = low_s * LATENCY_STEP
        # So many different latencies are taken from one bucket in one reading.
        for first, after in pairwise([*range(known, now, 1 + (now - known) // 1000), now]):
            self._progress.took(low_s + (high_s - low_s) * (first * _GOLDEN % 1), after - first)


def _differences(counts: list[int]) -> list[int]:
    return [after - before for before, after in pairwise([0, *counts])]
