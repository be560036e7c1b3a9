"""Requests that arrive at a fixed rate, and the server that answers them, in virtual time."""

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import workload_scripts
from hypothesis import example, given, settings, strategies as st

open_loop = workload_scripts.load("open_loop")

SEEDS = st.integers(0, 2**32)
RATES = st.floats(0.5, 5000)
MOST = 8
QUEUE = 4 * MOST


def arrived(rate: float, seed: int, looks: Sequence[float], queue: int = 10**6) -> list[float]:
    """When requests arrived, for a process that starts at 0 and looks at these moments."""
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
    sleeps_s: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def launch(self, size: int) -> None:
        self.sizes.append(size)
        self.free_s = max(self.free_s, self.now_s) + self.fixed_s + self.each_s * size

    def record(self) -> Any:
        return SimpleNamespace(synchronize=partial(self._wait, self.free_s))

    def _wait(self, done_s: float) -> None:
        self.now_s = max(self.now_s, done_s) + self.wake_s

    def sleep(self, duration_s: float) -> None:
        assert self.free_s <= self.now_s, "it sleeps while an answer is under way"
        self.sleeps_s.append(duration_s)
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


def server(gpu: Gpu, counts: Counts, rate: float, seed: int = 0, tokens: int | None = None) -> Any:
    """A server of batches, or of requests of so many tokens."""
    arrivals = open_loop.Arrivals(rate, QUEUE, seed)
    asked = (arrivals, gpu.launch, gpu.record, counts, MOST, lambda: gpu.now_s, gpu.sleep)
    return open_loop.ContinuousServer(*asked, tokens=tokens) if tokens else open_loop.Server(*asked)


def turn_until(serving: Any, gpu: Gpu, end_s: float) -> None:
    while gpu.now_s < end_s:
        serving.turn()


def serve(
    rate: float, duration_s: float, gpu: Gpu, seed: int = 0, tokens: int | None = None
) -> list[float]:
    counts = Counts()
    turn_until(server(gpu, counts, rate, seed, tokens), gpu, duration_s)
    return counts.latencies_s


@given(SEEDS, st.floats(0.05, 0.5))
@settings(max_examples=10)
def test_below_its_capacity_a_server_answers_the_demand(seed: int, load: float) -> None:
    """The rate is that of the requests, and none waits longer than a few batches."""
    gpu = Gpu()
    rate = load * gpu.capacity
    latencies_s = serve(rate, 1000 / rate, gpu, seed)
    assert abs(len(latencies_s) - 1000) < 5 * 1000**0.5 + QUEUE
    assert min(latencies_s) >= gpu.fixed_s + gpu.each_s - 1e-9
    assert max(gpu.sizes) <= MOST


@given(SEEDS, st.floats(1.5, 20), st.sampled_from([0.0, 0.005]))
@settings(max_examples=10)
def test_above_its_capacity_the_rate_falls_short_and_latencies_stay_bounded(
    seed: int, load: float, wake_s: float
) -> None:
    """Full batches without gaps and a full queue; a full batch is launched before the last ends."""
    gpu = Gpu(wake_s)
    full_s = MOST / gpu.capacity
    latencies_s = serve(load * gpu.capacity, 200 * full_s, gpu, seed)
    assert len(latencies_s) == pytest.approx(gpu.capacity * gpu.now_s, rel=0.05)
    longest_s = (QUEUE / MOST + open_loop.BATCHES_IN_FLIGHT + 1) * full_s
    assert max(latencies_s) <= longest_s + wake_s


def test_a_server_without_requests_sleeps_and_looks_at_the_gate() -> None:
    """It neither spins nor sleeps through a pause that is asked for."""
    gpu, looks_s = Gpu(), list[float]()
    turn_until(server(gpu, Counts(gate=lambda: looks_s.append(gpu.now_s)), rate=1e-6), gpu, 10)
    assert sum(gpu.sleeps_s) == pytest.approx(10, abs=0.1)
    assert len(gpu.sleeps_s) == pytest.approx(10 / open_loop.LOOK_S, abs=2)
    assert max(b - a for a, b in itertools.pairwise(looks_s)) <= open_loop.LOOK_S + 1e-9


@given(SEEDS, st.floats(0.1, 3), st.floats(1, 1000))
@settings(max_examples=10)
def test_a_pause_leaves_no_backlog(seed: int, load: float, pause_s: float) -> None:
    """Batches under way are answered before the job waits; afterwards only new requests count."""
    gpu, counts = Gpu(), Counts()
    expected = load * gpu.capacity
    serving = server(gpu, counts, expected, seed)

    def hold() -> None:
        """What Progress does at a closed gate, with the time that passes there."""
        counts.gate = lambda: None
        serving.pause()
        assert gpu.free_s <= gpu.now_s, "the GPU still works while the job waits"
        gpu.now_s += pause_s

    turn_until(serving, gpu, 5)
    counts.gate = hold
    turn_until(serving, gpu, 5 + pause_s)
    counts.latencies_s.clear()
    resumed_s = gpu.now_s
    turn_until(serving, gpu, resumed_s + 1)
    assert max(counts.latencies_s, default=0) < gpu.now_s - resumed_s + 0.2
    assert len(counts.latencies_s) < expected + 5 * expected**0.5 + MOST


TOKENS = 16


@given(SEEDS, st.floats(0.05, 3))
@settings(max_examples=10)
@example(0, 0.1)
@example(0, 2)
def test_requests_join_at_the_next_token_and_leave_with_their_last(seed: int, load: float) -> None:
    """Far below capacity nobody waits for more than a token; above it all steps are full."""
    gpu = Gpu()
    step_s = gpu.fixed_s + gpu.each_s * MOST
    capacity = MOST / (TOKENS * step_s)
    latencies_s = serve(load * capacity, 500 * step_s, gpu, seed, TOKENS)
    assert max(gpu.sizes) <= MOST
    assert min(latencies_s) >= TOKENS * (gpu.fixed_s + gpu.each_s) - 1e-9
    if load < 0.2:
        assert statistics.median(latencies_s) <= (TOKENS + 1) * step_s + 1e-9
    if load > 1.5:
        assert len(latencies_s) == pytest.approx(capacity * gpu.now_s, rel=0.1)
    assert max(latencies_s) <= (QUEUE / MOST + 2) * TOKENS * step_s


@given(SEEDS, st.floats(0.1, 3))
def test_who_has_joined_is_answered_before_a_pause(seed: int, load: float) -> None:
    """The gate may close at any token, and also while the last ones are answered."""
    gpu, counts = Gpu(), Counts()
    serving = server(gpu, counts, load * gpu.capacity / TOKENS, seed, TOKENS)
    while not gpu.sizes:
        serving.turn()
    counts.gate = serving.pause
    serving.turn()
    assert sum(gpu.sizes) == TOKENS * len(counts.latencies_s)
    assert gpu.free_s <= gpu.now_s
