"""Requests that arrive at a fixed rate, and the server that answers them, in virtual time."""

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import workload_scripts
from hypothesis import given
from hypothesis import strategies as st

open_loop = workload_scripts.load("open_loop")

SEEDS = st.integers(0, 2**32)
RATES = st.floats(0.5, 5000)
MOST = 8
QUEUE = 4 * MOST


def arrived(rate: float, seed: int, looks: Sequence[float], queue: int = 10**6) -> list[float]:
    """When requests arrived, for a process that starts at 0 and is looked at in these moments."""
    arrivals = open_loop.Arrivals(rate, queue, seed)
    arrivals.start(0.0)
    moments: list[float] = []
    for now_s in looks:
        arrivals.waiting(now_s)
        moments += arrivals.take(queue)
    return moments


@given(RATES, SEEDS)
def test_as_many_arrive_as_the_rate_says(rate: float, seed: int) -> None:
    expected = 2000
    moments = arrived(rate, seed, [expected / rate])
    assert abs(len(moments) - expected) < 5 * expected**0.5
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    # The times between requests of such a process are as long as they vary.
    assert statistics.stdev(gaps) == pytest.approx(statistics.fmean(gaps), rel=0.25)


@given(RATES, SEEDS, st.lists(st.floats(0, 1), max_size=20))
def test_arrivals_do_not_depend_on_when_the_server_looks(
    rate: float, seed: int, looks: list[float]
) -> None:
    """A request arrives at its own moment, and the same seed gives the same moments."""
    end_s = 50 / rate
    often = arrived(rate, seed, [*sorted(end_s * look for look in looks), end_s])
    assert often == arrived(rate, seed, [end_s])
    assert often != arrived(rate, seed + 1, [end_s])


@given(RATES, SEEDS, st.floats(0, 100), st.floats(0, 1000))
def test_nobody_arrives_during_a_pause(rate: float, seed: int, ran: float, paused: float) -> None:
    """A process that begins again has nobody waiting, and nobody who came before it did."""
    arrivals = open_loop.Arrivals(rate, 10**6, seed)
    arrivals.start(0.0)
    arrivals.waiting(ran / rate)
    again_s = (ran + paused) / rate
    arrivals.start(again_s)
    assert arrivals.waiting(again_s) == 0
    assert arrivals.next_s > again_s
    arrivals.waiting(again_s + 100 / rate)
    assert min(arrivals.take(10**6)) > again_s


@given(SEEDS, st.integers(1, 50))
def test_the_oldest_give_way_when_the_queue_is_full(seed: int, queue: int) -> None:
    everybody = arrived(10.0, seed, [20.0])
    arrivals = open_loop.Arrivals(10.0, queue, seed)
    arrivals.start(0.0)
    assert arrivals.waiting(20.0) == min(queue, len(everybody))
    assert arrivals.take(10**6) == everybody[-queue:]
    assert arrivals.dropped == max(0, len(everybody) - queue)


@dataclass
class Gpu:
    """Works off batches one after the other; waiting for one lets the time pass.

    The CPU notices `wake_s` later that one is done.
    """

    wake_s: float = 0.0
    fixed_s: float = 0.01
    each_s: float = 0.001
    now_s: float = 0.0
    free_s: float = 0.0
    idle_s: float = 0.0
    sleeps: int = 0
    sizes: list[int] = field(default_factory=list)

    def launch(self, size: int) -> None:
        self.sizes.append(size)
        self.free_s = max(self.free_s, self.now_s) + self.fixed_s + self.each_s * size

    def record(self) -> Any:
        gpu, done_s = self, self.free_s

        class Event:
            def synchronize(self) -> None:
                gpu.now_s = max(gpu.now_s, done_s) + gpu.wake_s

        return Event()

    def sleep(self, duration_s: float) -> None:
        assert self.free_s <= self.now_s, "it sleeps while an answer is under way"
        self.sleeps += 1
        self.idle_s += duration_s
        self.now_s += duration_s

    @property
    def capacity(self) -> float:
        return MOST / (self.fixed_s + self.each_s * MOST)


@dataclass
class Counts:
    """Keeps latencies; `gate` is what happens at the gate after each call."""

    latencies_s: list[float] = field(default_factory=list)
    gate: Callable[[], None] = lambda: None

    def add(self, steps: int) -> None:
        assert steps == 0
        self.gate()

    def answered(self, latencies_s: Sequence[float]) -> None:
        self.latencies_s += latencies_s
        self.gate()


def server(gpu: Gpu, counts: Counts, rate: float, seed: int = 0) -> Any:
    arrivals = open_loop.Arrivals(rate, QUEUE, seed)
    return open_loop.Server(
        arrivals, gpu.launch, gpu.record, counts, MOST, lambda: gpu.now_s, gpu.sleep
    )


def serve(rate: float, duration_s: float, gpu: Gpu, seed: int = 0) -> Counts:
    counts = Counts()
    serving = server(gpu, counts, rate, seed)
    while gpu.now_s < duration_s:
        serving.turn()
    return counts


@given(SEEDS, st.floats(0.05, 0.5))
def test_below_its_capacity_a_server_answers_the_demand(seed: int, load: float) -> None:
    """The rate is that of the requests, and none waits longer than a few batches."""
    gpu = Gpu()
    rate = load * gpu.capacity
    counts = serve(rate, 1000 / rate, gpu, seed)
    assert abs(len(counts.latencies_s) - 1000) < 5 * 1000**0.5 + QUEUE
    assert min(counts.latencies_s) >= gpu.fixed_s + gpu.each_s - 1e-9
    assert max(gpu.sizes) <= MOST


@given(SEEDS, st.floats(1.5, 20))
def test_above_its_capacity_the_rate_falls_short_and_latencies_stay_bounded(
    seed: int, load: float
) -> None:
    """Demand that cannot be met shows in the rate: full batches without gaps, a full queue."""
    gpu = Gpu()
    full_s = MOST / gpu.capacity
    counts = serve(load * gpu.capacity, 200 * full_s, gpu, seed)
    assert len(counts.latencies_s) == pytest.approx(gpu.capacity * gpu.now_s, rel=0.05)
    longest = (QUEUE / MOST + open_loop.BATCHES_UNDER_WAY + 1) * full_s
    assert max(counts.latencies_s) <= longest


def test_a_full_queue_leaves_the_gpu_no_gaps() -> None:
    """A full batch that waits is launched before the last one is done."""
    gpu = Gpu(wake_s=0.005)
    counts = serve(3 * gpu.capacity, 10, gpu)
    assert len(counts.latencies_s) == pytest.approx(gpu.capacity * gpu.now_s, rel=0.05)


def test_those_who_arrive_while_the_gpu_is_busy_have_waited() -> None:
    """A latency counts from the arrival: a slow batch makes all wait who came meanwhile."""
    counts = serve(20, 200, Gpu(fixed_s=1.0))
    assert statistics.median(counts.latencies_s) > 1.0
    waited = [latency_s for latency_s in counts.latencies_s if latency_s > 1.5]
    assert len(waited) > len(counts.latencies_s) / 4


def test_a_server_without_requests_sleeps_and_looks_at_the_gate() -> None:
    """It neither spins nor sleeps through a pause that is asked for."""
    looks = list[float]()
    gpu = Gpu()
    serving = server(gpu, Counts(gate=lambda: looks.append(gpu.now_s)), rate=1e-6)
    while gpu.now_s < 10:
        serving.turn()
    assert gpu.idle_s == pytest.approx(10, abs=0.1)
    assert gpu.sleeps == pytest.approx(10 / open_loop.LOOK_S, abs=2)
    gaps = [later - earlier for earlier, later in itertools.pairwise(looks)]
    assert max(gaps) <= open_loop.LOOK_S + 1e-9


@given(SEEDS, st.floats(0.1, 3), st.floats(1, 1000))
def test_a_pause_leaves_no_backlog(seed: int, load: float, pause_s: float) -> None:
    """What is under way is answered before the job waits; afterwards only new requests count."""
    gpu, counts = Gpu(), Counts()
    serving = server(gpu, counts, load * gpu.capacity, seed)

    def hold() -> None:
        """What Progress does at a closed gate, with the time that passes there."""
        counts.gate = lambda: None
        serving.pause()
        assert gpu.free_s <= gpu.now_s, "the GPU still works while the job waits"
        gpu.now_s += pause_s

    while gpu.now_s < 5:
        serving.turn()
    counts.gate = hold
    while gpu.now_s < 5 + pause_s:
        serving.turn()
    counts.latencies_s.clear()
    resumed_s = gpu.now_s
    while gpu.now_s < resumed_s + 1:
        serving.turn()
    assert all(latency_s < gpu.now_s - resumed_s + 0.2 for latency_s in counts.latencies_s)
    expected = load * gpu.capacity
    assert len(counts.latencies_s) < expected + 5 * expected**0.5 + MOST


TOKENS = 16


def continuous(gpu: Gpu, counts: Counts, rate: float, seed: int = 0) -> Any:
    arrivals = open_loop.Arrivals(rate, QUEUE, seed)
    return open_loop.ContinuousServer(
        *(arrivals, gpu.launch, gpu.record, counts, MOST, lambda: gpu.now_s, gpu.sleep),
        tokens=TOKENS,
    )


@given(SEEDS, st.floats(0.05, 3))
def test_requests_join_at_the_next_token_and_leave_with_their_last(seed: int, load: float) -> None:
    """Far below capacity nobody waits for more than a token; above it all steps are full."""
    gpu, counts = Gpu(), Counts()
    step_s = gpu.fixed_s + gpu.each_s * MOST
    capacity = MOST / (TOKENS * step_s)
    serving = continuous(gpu, counts, load * capacity, seed)
    while gpu.now_s < 500 * step_s:
        serving.turn()
    assert max(gpu.sizes) <= MOST
    assert min(counts.latencies_s) >= TOKENS * (gpu.fixed_s + gpu.each_s) - 1e-9
    if load < 0.2:
        assert statistics.median(counts.latencies_s) <= (TOKENS + 1) * step_s + 1e-9
    if load > 1.5:
        assert len(counts.latencies_s) == pytest.approx(capacity * gpu.now_s, rel=0.1)
    assert max(counts.latencies_s) <= (QUEUE / MOST + 2) * TOKENS * step_s


@given(SEEDS, st.floats(0.1, 3))
def test_who_has_joined_is_answered_before_a_pause(seed: int, load: float) -> None:
    """The gate may close at any token, and also while the last ones are answered."""
    gpu, counts = Gpu(), Counts()
    serving = continuous(gpu, counts, load * gpu.capacity / TOKENS, seed)
    while not gpu.sizes:
        serving.turn()
    counts.gate = serving.pause
    serving.turn()
    assert sum(gpu.sizes) == TOKENS * len(counts.latencies_s)
    assert gpu.free_s <= gpu.now_s
