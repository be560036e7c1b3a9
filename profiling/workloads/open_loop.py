"""Requests that arrive at random at a fixed rate, and the loop that answers them.

Open loop: requests arrive whether or not the GPU keeps up, as those of users do. The latency of a
request counts from its own moment of arrival, not from when the server looked, so one that arrives
while the GPU is busy waits on the record too (no coordinated omission).

Nothing here needs PyTorch, so all of it can be tested without it.
"""

import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import harness

BATCHES_IN_FLIGHT = 2
# A pause must be noticed soon also where a request comes every few seconds.
LOOK_S = 0.02


class Arrivals:
    """A Poisson process, and the queue of its requests.

    Args:
        rate: Requests per second.
        most: Longest queue: a request that finds it full takes the place of the oldest one, which
            is never answered. So a server that cannot keep up shows a lower rate, and latencies
            that its queue bounds, instead of both growing forever.
        seed: Of the times between arrivals.
    """

    def __init__(self, rate: float, most: int, seed: object) -> None:
        self._rate, self._random = rate, random.Random(str(seed))
        self._waiting: deque[float] = deque(maxlen=most)
        self.next_s = float("inf")
        self.dropped = 0

    def start(self, now_s: float) -> None:
        """Begin at this moment with an empty queue, for the first time or after a pause.

        The process has no memory, so one that begins again is the same process.
        """
        self._waiting.clear()
        self.next_s = now_s + self._gap_s()

    def waiting(self, now_s: float) -> int:
        """How many have arrived until now and were not taken yet."""
        while self.next_s <= now_s:
            self.dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append(self.next_s)
            self.next_s += self._gap_s()
        return len(self._waiting)

    def take(self, most: int) -> list[float]:
        """Remove the oldest requests; their moments of arrival."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def _gap_s(self) -> float:
        return self._random.expovariate(self._rate)


class Server:
    """Answers in batches what has arrived meanwhile, up to the largest batch.

    One batch at a time, as inference servers do, so that the next one gathers all that arrive until
    then; a second one is launched ahead only when it is full, so that the GPU has no gaps at
    overload.

    `record` marks what was launched so far, and its event is completed together with it. Counting
    may wait while the gate is closed. `most` is the largest batch.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        launch: Callable[[int], object],
        record: Callable[[], Any],
        counts: harness.Progress,
        most: int,
        now_s: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._arrivals, self._launch, self._record = arrivals, launch, record
        self._counts, self._most = counts, most
        self._now_s, self._sleep = now_s, sleep
        self._in_flight: deque[tuple[Any, list[float]]] = deque()
        self._paused = True

    def turn(self) -> None:
        """Launch what has arrived, or wait for what is next: an answer or a request."""
        now_s, waiting = self._look()
        is_full = waiting >= self._most and len(self._in_flight) < BATCHES_IN_FLIGHT
        if is_full or (waiting and not self._in_flight):
            batch = self._arrivals.take(self._most)
            self._launch(len(batch))
            self._in_flight.append((self._record(), batch))
        elif self._in_flight:
            self._answer_oldest()
        else:
            self._wait(now_s)

    def pause(self) -> None:
        """Answer what is under way; arrivals stop, and begin again with the next turn."""
        while self._in_flight:
            self._answer_oldest()
        self._paused = True

    def _look(self) -> tuple[float, int]:
        """The moment, and how many wait; arrivals begin with the first look after a pause."""
        now_s = self._now_s()
        if self._paused:
            self._arrivals.start(now_s)
            self._paused = False
        return now_s, self._arrivals.waiting(now_s)

    def _wait(self, now_s: float) -> None:
        self._sleep(max(0.0, min(self._arrivals.next_s - now_s, LOOK_S)))
        self._counts.add(0)

    def _answer_oldest(self) -> None:
        event, batch = self._in_flight.popleft()
        event.synchronize()
        now_s = self._now_s()
        self._counts.answered([now_s - arrived_s for arrived_s in batch])


class ContinuousServer(Server):
    """Answers token by token: requests join at the next token, and leave with their last one.

    As `Server`, but what is launched is one token of all that are under way, `most` at once.
    """

    def __init__(self, *server: Any, tokens: int, **clock: Any) -> None:
        super().__init__(*server, **clock)
        self._tokens = tokens
        # When each arrived, and how many tokens it still needs.
        self._joined: list[tuple[float, int]] = []

    def turn(self) -> None:
        """One token for all, or wait for a request."""
        now_s, _ = self._look()
        free = self._most - len(self._joined)
        self._joined += [(arrived_s, self._tokens) for arrived_s in self._arrivals.take(free)]
        if self._joined:
            self._next_token()
        else:
            self._wait(now_s)

    def pause(self) -> None:
        """Answer all that have joined; arrivals stop, and begin again with the next turn."""
        while self._joined:
            self._next_token()
        self._paused = True

    def _next_token(self) -> None:
        self._launch(len(self._joined))
        self._record().synchronize()
        now_s = self._now_s()
        left = [(arrived_s, tokens - 1) for arrived_s, tokens in self._joined]
        self._joined = [(arrived_s, tokens) for arrived_s, tokens in left if tokens]
        self._counts.answered([now_s - arrived_s for arrived_s, tokens in left if not tokens])
