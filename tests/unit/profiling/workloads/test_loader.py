"""The loader of jobs that wait for their input."""

import itertools
import time

import numpy as np
import pytest
import workload_scripts

loader = workload_scripts.load("harness")
EVERY_S = 0.03


def test_batches_come_in_order_and_no_faster_than_the_storage() -> None:
    """Reading is instant here, so the time is that of the storage.

    It does not catch up on the time in which nobody took a batch.
    """
    begun_s = time.monotonic()
    batches = loader.prefetched(itertools.count().__next__, EVERY_S, 1)
    assert [next(batches) for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    assert time.monotonic() - begun_s >= 5 * EVERY_S
    time.sleep(10 * EVERY_S)
    resumed_s = time.monotonic()
    for _ in range(loader.AHEAD + 3):
        next(batches)
    assert time.monotonic() - resumed_s >= 2 * EVERY_S


def test_processes_that_begin_together_do_not_wait_in_step() -> None:
    """Batches of two seeds come at other moments, no faster than the storage."""

    def gaps_s(seed: int) -> list[float]:
        batches = loader.prefetched(lambda: time.monotonic(), EVERY_S, seed)
        begun = [next(batches) for _ in range(13)][1:]
        return [later - earlier for earlier, later in itertools.pairwise(begun)]

    first, second = gaps_s(1), gaps_s(2)
    for gaps in (first, second):
        assert sum(gaps) >= 10 * EVERY_S
    assert max(abs(a - b) for a, b in zip(first, second, strict=True)) > 0.3 * EVERY_S


def test_a_fault_while_reading_ends_the_job() -> None:
    """A loader that fails is no loader that is slow for ever."""

    def fail() -> None:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        next(loader.prefetched(fail, 0.0, 1))


def test_images_are_cut_at_random_and_the_same_for_the_same_seed() -> None:
    read, again, other = (loader.image_reader(3, 16, seed=seed) for seed in (5, 5, 6))
    first, second = read(), read()
    assert (first.shape, first.dtype) == ((3, 16, 16, 3), np.uint8)
    assert first.std() == pytest.approx(73.9, rel=0.1)
    assert [np.array_equal(first, image) for image in (second, again(), other())] == [
        False, True, False
    ]  # fmt: skip
