"""Input from a storage that takes its time for each batch, so that the GPU waits for it.

The time of the storage is a sleep, on average the same; cropping, mirroring and copying are real
work of the CPU within that time.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Value = TypeVar("Value")
STORED_IMAGES = 256
MARGIN = 32
AHEAD = 2


def prefetched(read: Callable[[], Value], every_s: float, seed: object) -> Iterator[Value]:
    """What `read` returns, read in a thread, one each `every_s` seconds at most, two ahead.

    Each comes at a random moment of its own `every_s` seconds: jobs alike that begin at the same
    moment would wait and work in step otherwise. The rate is as steady as without that.
    """
    chance, slot_s = random.Random(str(seed)), float("-inf")

    def paced() -> Value:
        nonlocal slot_s
        # Later only where reading takes longer than that, or nobody has asked for a batch.
        slot_s = max(slot_s + every_s, time.monotonic())
        due_s = slot_s + every_s * chance.random()
        value = read()
        time.sleep(max(0.0, due_s - time.monotonic()))
        return value

    with ThreadPoolExecutor(max_workers=1) as thread:
        ahead: deque[Future[Value]] = deque(thread.submit(paced) for _ in range(AHEAD))
        while True:
            value = ahead.popleft().result()
            ahead.append(thread.submit(paced))
            yield value


def token_reader(
    batch: int, tokens: int, vocabulary: int, seed: int
) -> Callable[[], "npt.NDArray[np.int64]"]:
    """Reads random texts; shape (batch, tokens). From 1: token 0 is padding."""
    import numpy as np

    chance = np.random.default_rng(seed)
    return lambda: chance.integers(1, vocabulary, (batch, tokens))


def image_reader(batch: int, pixels: int, seed: int) -> Callable[[], "npt.NDArray[np.uint8]"]:
    """Reads random images, each cut and mirrored at random; shape (batch, pixels, pixels, 3)."""
    import numpy as np

    chance = np.random.default_rng(seed)
    side = pixels + MARGIN
    stored = chance.integers(0, 256, (STORED_IMAGES, side, side, 3), dtype=np.uint8)

    def read() -> "npt.NDArray[np.uint8]":
        images = np.empty((batch, pixels, pixels, 3), dtype=np.uint8)
        for image in images:
            number, top, left = chance.integers((STORED_IMAGES, MARGIN, MARGIN))
            cut = stored[number, top : top + pixels, left : left + pixels]
            image[:] = cut[:, ::-1] if chance.integers(2) else cut
        return images

    return read
