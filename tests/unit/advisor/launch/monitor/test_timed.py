"""When a counter was read, where the host stops whoever reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.launch.meter import timed

STOPS_S = st.lists(st.floats(0, 2), max_size=20)


class Host:
    """A counter that grows by 400 a second, and a host that stops before and after it is read."""

    def __init__(self, before_s: list[float], after_s: list[float]) -> None:
        self.now_s, self.reads = 100.0, 0
        self._before_s, self._after_s = iter(before_s), iter(after_s)

    def read(self) -> float:
        self.reads += 1
        self.now_s += next(self._before_s, 0.0)
        counted = 400 * self.now_s
        self.now_s += next(self._after_s, 0.0)
        return counted


@given(STOPS_S, STOPS_S)
def test_the_moment_is_known_as_well_as_it_says(
    before_s: list[float], after_s: list[float]
) -> None:
    """Wherever the host stops, and it is not read for ever."""
    host = Host(before_s, after_s)
    counted, moment = timed(host.read, lambda: host.now_s)
    assert abs(counted / 400 - moment.at_s) <= moment.slack_s + 1e-9
    assert host.reads <= 5
    assert moment.slack_s <= (before_s or [0.0])[0] / 2 + (after_s or [0.0])[0] / 2 + 1e-9


@pytest.mark.parametrize(
    ("stops_s", "reads", "slack_s"),
    [([0.004] * 9, 1, 0.002), ([0.3], 2, 0.0), ([0.3, 0.03, 0.3, 0.3, 0.3], 5, 0.015)],
)
def test_it_is_read_again_while_that_helps(
    stops_s: list[float], reads: int, slack_s: float
) -> None:
    """Not for what a counter takes on a quiet host, and the best reading counts."""
    host = Host(stops_s, [])
    _, moment = timed(host.read, lambda: host.now_s)
    assert (host.reads, moment.slack_s) == (reads, pytest.approx(slack_s))
    assert moment.is_known
