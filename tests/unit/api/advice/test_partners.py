"""The best partners of one job, its size alone, and the copies that memory has room for."""

from advised import profile

from advisor.predict.profiles import Serving
from advisor_advice.answers import best_size


def test_the_size_is_the_smallest_that_keeps_the_speed() -> None:
    """With the tail there; a job that falls with every SM has none but the whole GPU."""
    serving = Serving(
        offered_rate=100.0, rate_noise=None, latency_p99_ms=((30.0, 9.0), (100.0, 4.0))
    )
    size = best_size(profile("s", rates=[50, 90, 96, *[100] * 7], serving=serving))
    assert size
    assert (size.share_percent, size.speed, size.latency_p99_ms) == (30.0, 0.96, 9.0)
    assert best_size(profile("a")) is None
