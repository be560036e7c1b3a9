"""What a Prometheus page says of a job, and what is told where it says nothing."""

import math
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from advisor.errors import InputError, JobError, SourceError, TooMuchError
from advisor.progress import FILE_BYTES, Progress, latency_bucket
from advisor.runtime.counting import (
    CounterFile,
    percentile_ms,
    range_ms,
    read_bounds_ms,
    read_latencies,
)
from advisor.scrape.page import PageMirror, Reading, SeriesTotal, parse_selector, read_page

VLLM = b"""\
# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 2.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="a"} 100.0
vllm:generation_tokens_total{engine="1",model_name="a"} 20.0
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.3"} 1.0
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf"} 3.0
vllm:e2e_request_latency_seconds_count{engine="0"} 3.0
vllm:e2e_request_latency_seconds_sum{engine="0"} 9.0
vllm:e2e_request_latency_seconds_bucket{engine="1",le="0.3"} 4.0
vllm:e2e_request_latency_seconds_bucket{engine="1",le="+Inf"} 4.0
"""

TRITON = b"""\
# TYPE nv_inference_count counter
nv_inference_count{model="a",version="1"} 7
# TYPE nv_inference_first_response_histogram_ms histogram
nv_inference_first_response_histogram_ms_bucket{model="a",le="100"} 5
nv_inference_first_response_histogram_ms_bucket{model="a",le="+Inf"} 5
"""


def read(page: bytes, counter: str, histogram: str | None = None) -> Reading:
    latencies = None if histogram is None else parse_selector(histogram)
    return read_page(page, parse_selector(counter), latencies)


@pytest.mark.parametrize(
    ("counter", "total"),
    [
        ("vllm:generation_tokens_total", 120),
        ('vllm:generation_tokens_total{engine="1"}', 20),
        ("vllm:e2e_request_latency_seconds_sum", 9),
        ('vllm:e2e_request_latency_seconds_count{engine="0"}', 3),
    ],
)
def test_a_counter_is_summed_over_the_labels_that_are_meant(counter: str, total: float) -> None:
    assert read(VLLM, counter).total == total


def test_buckets_are_summed_and_in_seconds() -> None:
    """Prometheus asks for seconds; Triton and Ray say otherwise in the name."""
    seen = read(VLLM, "vllm:generation_tokens_total", "vllm:e2e_request_latency_seconds")
    assert seen.buckets == ((0.3, 5), (math.inf, 7))
    seen = read(TRITON, "nv_inference_count", "nv_inference_first_response_histogram_ms")
    assert (seen.total, seen.buckets) == (7, ((0.1, 5), (math.inf, 5)))


def test_what_is_not_there_yet_is_told_with_near_names() -> None:
    with pytest.raises(SourceError, match=r"no counter vllm:generated.*near ones: vllm:generation"):
        read(VLLM, "vllm:generated_tokens_total")
    with pytest.raises(SourceError, match="with these labels"):
        read(VLLM, 'vllm:generation_tokens_total{engine="2"}')
    with pytest.raises(SourceError, match="no counters at all"):
        read(b"", "a")
    assert read(VLLM, "vllm:generation_tokens_total", "vllm:nothing").buckets == ()
    with pytest.raises(SourceError, match="no metrics text"):
        read(b"a 1" + 400 * b"0", "a")


@pytest.mark.parametrize(
    ("page", "counter", "histogram", "said"),
    [
        (VLLM, "vllm:num_requests_running", None, "is a gauge, not a counter"),
        (VLLM, "vllm:e2e_request_latency_seconds_bucket", None, "is a histogram, not a counter"),
        (VLLM, "vllm:generation_tokens_total", "vllm:num_requests_running", "is no histogram"),
        (b"# TYPE a counter\na_total NaN\n", "a_total", None, "is nan, which is no count"),
        (b"# TYPE a counter\na_total -1\n", "a_total", None, "no count"),
        (b"# TYPE a counter\na_total +Inf\n", "a_total", None, "no count"),
        (b"a %d\n" % 2**63, "a", None, "no count"),
        (b"# TYPE a counter\na_total 1e308\n", "a_total", None, "no count"),
        (b"a 1\nh_bucket 1\n", "a", "h", "le="),
        (b'a 1\nh_bucket{le="abc"} 1\n', "a", "h", "le='abc', which is no number"),
        (b'a 1\nh_bucket{le="1e308"} 1\n', "a", "h", "no cumulative ones"),
        (b"a 1\nh_bucket{le=\"1\"} 1\n", "a", "h", "no cumulative ones"),
        (b"a 1\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\n", "a", "h", "no cumulative ones"),
        (b"a 1\nh_bucket{le=\"1\"} 0\nh_bucket{le=\"+Inf\"} NaN\n", "a", "h", "not|no"),
        (b'a{x="' + b"y" * 20_000 + b'"} 1\n', "a", None, "a line of more than 16384 char"),
        (b"a 1\n" * 600_000, "a", None, "more than 2097152 characters to parse"),
    ],
)  # fmt: skip
def test_what_can_never_be_counted_by_is_refused(
    page: bytes, counter: str, histogram: str | None, said: str
) -> None:
    with pytest.raises((JobError, TooMuchError), match=said):
        read(page, counter, histogram)


@pytest.mark.parametrize("text", ["", "a{", "a b c", 'a{x="1"', "# HELP a", "a\nb 1"])
def test_a_selector_that_is_none_is_told(text: str) -> None:
    with pytest.raises(InputError, match="is no name of a metric"):
        parse_selector(text)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "progress"
    path.write_bytes(bytes(FILE_BYTES))
    monkeypatch.setenv("ADVISOR_PROGRESS_FILE", str(path))
    return path


BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@given(
    st.lists(st.floats(0.001, 9.9), min_size=1, max_size=300),
    st.lists(st.floats(0.001, 9.9), max_size=20),
    st.integers(1, 7),
)
def test_percentiles_are_within_the_bucket_of_the_true_one(
    latencies: list[float], earlier: list[float], parts: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ADVISOR_PROGRESS_FILE", raising=False)
        progress = Histories()
        registry = CollectorRegistry()
        took = Histogram("took", "Took.", registry=registry, buckets=BOUNDS_S)
        asked = Counter("asked", "Asked.", registry=registry)
        mirror = PageMirror(progress)

        def take(part: list[float]) -> None:
            for one in part:
                took.observe(one)
                asked.inc(16)
            mirror.take(read(generate_latest(registry), "asked_total", "took"))

        take(earlier)
        before = tuple(progress.buckets)
        for n in range(parts):
            take(latencies[n::parts])
    assert progress.count == 16 * (len(latencies) + len(earlier))
    seen = [percentile_ms(before, tuple(progress.buckets), percent) for percent in (50, 90, 99)]
    assert all(one is not None for one in seen)
    told = [one / 1000 for one in seen if one is not None]
    assert told == sorted(told)
    for percent, told_s in zip((50, 90, 99), told, strict=True):
        true_s = sorted(latencies)[math.ceil(len(latencies) * percent / 100) - 1]
        high_s = next(bound for bound in BOUNDS_S if true_s <= bound)
        low_s = max((bound for bound in BOUNDS_S if bound < high_s), default=0.0)
        assert low_s / 1.05 <= told_s <= high_s * 1.05


class Histories(Progress):
    def __init__(self) -> None:
        super().__init__()
        self.buckets, self.count = [0] * 320, 0

    def took(self, latency_s: float, requests: int = 1) -> None:
        self.buckets[latency_bucket(latency_s)] += requests

    def add(
        self, steps: int = 1, value: float | None = None, latency_s: float | None = None
    ) -> None:
        self.count += steps


def test_requests_beyond_the_last_bound_are_above_it(file: Path) -> None:
    mirror = PageMirror(Progress(), promised_ms=1000)
    before = read_latencies(file)
    mirror.take(Reading({"": 3}, ((0.5, 1), (1.0, 1), (math.inf, 100))))
    p99_ms = percentile_ms(before, read_latencies(file), 99)
    assert p99_ms is not None
    assert 1000 < p99_ms / 1.05**0.5 <= 1000 * 1.05**2
    assert read_bounds_ms(file) == (500, 1000, math.inf)
    assert range_ms(p99_ms, read_bounds_ms(file)) == (1000, math.inf)
    # Of buckets that are not told, and of one of ours that lies across a bound of the server's.
    assert range_ms(100, ()) == pytest.approx((100 / 1.05**0.5, 100 * 1.05**0.5))
    assert range_ms(501, read_bounds_ms(file)) == (0, 1000)


def test_a_promise_beyond_the_last_bound_is_told_and_the_count_goes_on(file: Path) -> None:
    mirror = PageMirror(Progress(), promised_ms=1500)
    with pytest.raises(JobError, match=r"1500 ms is promised.*at 1000 ms"):
        mirror.take(Reading({"": 3}, ((1.0, 1), (math.inf, 1))))
    with closing(CounterFile(file)) as counter:
        assert counter.read() == 3


GONE = ((1.0, 4), (math.inf, 4))


@pytest.mark.parametrize(
    ("readings", "count", "answers"),
    [
        # As Prometheus takes it: a counter and buckets that went back began again at 0.
        (
            [
                Reading({"": 10}, ((1.0, 4), (math.inf, 6))),
                Reading({"": 3}, ((1.0, 1), (math.inf, 3))),
                Reading({"": 5}, ((1.0, 2), (math.inf, 4))),
            ],
            15,
            10,
        ),
        # A histogram that is gone for a moment, as behind a proxy that has lost a server.
        ([Reading({"": 10}, GONE), Reading({"": 11}), Reading({"": 12}, GONE)], 12, 4),
    ],
)
def test_what_goes_back_or_away_is_counted_once(
    file: Path, readings: list[Reading], count: int, answers: int
) -> None:
    mirror = PageMirror(Progress())
    for reading in readings:
        mirror.take(reading)
    with closing(CounterFile(file)) as counter:
        assert counter.read() == count
    assert sum(read_latencies(file)) == answers


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.integers(0, 5), st.just("restart"))))
)
def test_series_that_restart_or_vanish_count_each_step_once(
    events: list[tuple[str, int | str]],
) -> None:
    """Each reading leaves out one series; a restarted one has done something before it is read."""
    total, shown, done = SeriesTotal(), dict.fromkeys("abc", 0), 0
    for series, event in events:
        shown[series] = 0 if event == "restart" else shown[series] + int(event)
        done += 0 if event == "restart" else int(event)
        assert total.add(shown) == done
        total.add({one: count for one, count in shown.items() if one != series})
    assert total.total == done


ENSEMBLE = """\
# TYPE nv_inference_count counter
nv_inference_count{model="whole",version="1"} 100
nv_inference_count{model="head",version="1"} 0
"""


def on_gpu(**counts: int) -> str:
    line = 'nv_inference_count{{gpu_uuid="GPU-{}",model="{}",version="{}"}} {}\n'
    return "".join(
        line.format(n % 2, model, n, count) for n, (model, count) in enumerate(counts.items())
    )


PARTS = on_gpu(tokens=100, encoder=100, head=100)


@pytest.mark.parametrize(
    ("page", "total"),
    [
        (ENSEMBLE + PARTS, 100),
        # A part that was called directly 30 times, too.
        (ENSEMBLE + on_gpu(tokens=100, head=130), 130),
        # A model that has done less than the ensemble is none of its parts.
        (ENSEMBLE + PARTS + on_gpu(other=40), 140),
        # Two versions of a part, on two GPUs.
        (ENSEMBLE + on_gpu(head=60) + on_gpu(tokens=100, head=40), 100),
        # Two ensembles with a part in common.
        (ENSEMBLE + 'nv_inference_count{model="half",version="1"} 50\n' + on_gpu(head=150), 150),
        # A part on the CPU.
        (ENSEMBLE + 'nv_inference_count{model="pre",version="1"} 100\n' + on_gpu(head=100), 100),
        # No ensemble.
        (on_gpu(a=100, b=50), 150),
        ('nv_inference_count{model="a",version="1"} 7\nnv_inference_count{model="b"} 5\n', 12),
    ],
)
def test_a_request_to_an_ensemble_of_triton_counts_once(page: str, total: float) -> None:
    assert read(page.encode(), "nv_inference_count").total == total


@given(st.binary(max_size=200), st.sampled_from((b"a ", b"a{", b"h_bucket{", b"# TYPE a ")))
def test_any_page_is_read_or_refused(junk: bytes, start: bytes) -> None:
    with suppress(SourceError, JobError):
        assert 0 <= read(start + junk + b"\na 1\n", "a", "h").total < math.inf
