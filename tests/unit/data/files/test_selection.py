"""Which pair points are used, and what is said of the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_points import pair_point

from advisor.core.records import DOUBTFUL, FLAGS
from advisor_data.bundled import Selection, select


def test_doubtful_points_are_left_out_and_counted() -> None:
    """Each point counts once, under its first doubtful flag; other flags do no harm."""
    points = [
        pair_point(0),
        pair_point(1, flags=("throttled", "noisy-rate")),
        pair_point(2, flags=("failed",)),
        pair_point(3, flags=("throttled", "counter-mismatch", "failed")),
        pair_point(4, flags=("counter-mismatch",)),
    ]
    chosen = select(points)
    assert chosen.points == tuple(points[:2])
    assert chosen.left_out == {"counter-mismatch": 2, "failed": 1}
    assert chosen.summary == "3 of 5 points left out: 2 counter-mismatch, 1 failed"


@pytest.mark.parametrize(
    ("selection", "summary"),
    [
        (Selection((pair_point(),), {}), "0 of 1 points left out"),
        (
            Selection((), {"failed": 1, "cpu-steal": 1}),
            "2 of 2 points left out: 1 cpu-steal, 1 failed",
        ),
    ],
)
def test_one_line_says_what_was_left_out(selection: Selection, summary: str) -> None:
    """The most frequent reason comes first, and names decide where two are as frequent."""
    assert selection.summary == summary


@given(st.lists(st.lists(st.sampled_from(sorted(FLAGS)), unique=True).map(tuple)))
def test_every_point_is_kept_or_counted(flags: list[tuple[str, ...]]) -> None:
    points = [pair_point(number, flags=words) for number, words in enumerate(flags)]
    chosen = select(iter(points))
    assert len(chosen.points) + sum(chosen.left_out.values()) == len(points)
    assert set(chosen.left_out) <= DOUBTFUL
    assert chosen.points == tuple(p for p in points if not DOUBTFUL & set(p.flags))
