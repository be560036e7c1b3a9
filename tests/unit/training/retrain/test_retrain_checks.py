"""What new points have to pass before anything is learned from them."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import synthetic_pairs as made_up
from retraining import BUNDLED_POINTS, FIRST_DAY, changed, collected, faster, points

from advisor.core.records import PairPoint
from advisor.core.wording import listed
from advisor_training.retrain.points import PointSet, Sifted, by_reason, sift

# The intervals of a model of three jobs are wide, so what is wrong here is very wrong.
KNOWN_JOBS = made_up.JOBS[:3]


def sifted(own: PointSet, learned: PointSet = BUNDLED_POINTS) -> Sifted:
    return sift(collected(own), learned, FIRST_DAY)


def test_good_points_pass() -> None:
    own = points(made_up.JOBS)
    found = sifted(own)
    assert found.refused == ()
    assert found.new == len(list(own))
    assert found.accepted.ids == own.ids | BUNDLED_POINTS.ids


def part_with(point: PairPoint, **fields: object) -> PairPoint:
    first, *rest = point.parts
    return replace(point, parts=(replace(first, **fields), *rest))  # pyright: ignore


FAULTS: dict[str, tuple[str, Callable[[PairPoint], PairPoint], str]] = {
    "from the future": (
        "malformed", lambda p: replace(p, started_at="2026-02-03T00:00:00Z"), "which is now"
    ),
    "no moment": ("malformed", lambda p: replace(p, started_at="yesterday"), "'yesterday'"),
    "no share": ("malformed", lambda p: part_with(p, share_percent=0.0), "at 0 %"),
    "no number": ("malformed", lambda p: part_with(p, rate=float("nan")), "nan/s"),
    "no window": ("malformed", lambda p: replace(p, window_s=0.0), "window_s is 0"),
    "minus power": ("malformed", lambda p: replace(p, power_w=-1.0), "power_w is -1"),
    "above the limit": (
        "impossible", lambda p: replace(p, power_w=721.1, power_limit_w=700.0), "limit of 700 W"
    ),
    "below idle": ("impossible", lambda p: replace(p, power_w=70, idle_power_w=80.0), "70 W"),
    "too fast": ("impossible", lambda p: faster(p, 20), "alone it does"),
    "flagged": ("flagged", lambda p: replace(p, flags=("limit-broken",)), "limit-broken"),
    "wrong results": ("flagged", lambda p: part_with(p, results="wrong"), "not right"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_refused_by_its_name(name: str) -> None:
    """Only the point that has it, which keeps its place in the store."""
    reason, spoil, words = FAULTS[name]
    own = points(KNOWN_JOBS)
    place = next(n for n, p in enumerate(own.pairs) if p.shares_percent == (60.0, 40.0))
    spoilt = spoil(own.pairs[place])
    found = sifted(replace(own, pairs=(*own.pairs[:place], spoilt, *own.pairs[place + 1 :])))
    [refused] = found.refused
    assert (refused.reason, refused.point_id) == (reason, spoilt.point_id)
    assert words in refused.why
    assert spoilt.point_id not in found.accepted.ids


def test_bounds_of_power_are_those_of_the_instruments() -> None:
    """A card at its limit reads a little more than that."""
    own = points(KNOWN_JOBS)
    warm = changed(own, 0, power_limit_w=(own.pairs[0].power_w or 0) / 1.03)
    assert sifted(warm).refused == ()


def test_a_window_under_another_name_is_a_duplicate() -> None:
    """Of two new ones one stays; of a known one and a new one the known one."""
    own = points(KNOWN_JOBS)
    copies = tuple(replace(p, run="copy") for p in own.pairs)
    found = sifted(replace(own, pairs=(*own.pairs, *copies)))
    [counted] = by_reason(found.refused)
    assert (counted.reason, counted.points) == ("duplicate", len(copies))
    assert len(found.accepted.pairs) == len(own.pairs) + len(BUNDLED_POINTS.pairs)
    known = PointSet(pairs=tuple(replace(p, run="copy") for p in BUNDLED_POINTS.pairs))
    found = sifted(known)
    assert {one.point_id for one in found.refused} == known.ids


def test_unlike_copies_of_a_window_keep_each_other_out() -> None:
    """A forged copy takes no place of the true one, whoever is first by name; neither teaches."""
    own = points(KNOWN_JOBS)
    for forger in ("a", "z"):
        forged = replace(faster(own.pairs[0], 0.7), written_by=forger)
        forged = replace(forged, started_at=forged.started_at.replace("+00:00", "Z"))
        found = sifted(replace(own, pairs=(*own.pairs, forged)))
        assert {one.point_id for one in found.refused} == {own.pairs[0].point_id, forged.point_id}
        [counted] = by_reason(found.refused)
        assert counted.reason == "disputed"
        assert f"by {listed(sorted((forger, 'this site itself')))}" in counted.example
        assert "--written-by NAME" in counted.example


def test_what_was_learned_stays_beside_an_unlike_copy() -> None:
    """Else who writes copies would empty the model."""
    known = BUNDLED_POINTS.pairs[0]
    found = sifted(PointSet(pairs=(replace(faster(known, 0.7), written_by="a"),)))
    assert [one.reason for one in found.refused] == ["duplicate"]
    assert known.point_id in found.accepted.ids


def test_one_writer_teaches_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest first; others and what this site measured itself are not held up."""
    monkeypatch.setattr("advisor_training.retrain.points.LEAST_TAUGHT", 5)
    monkeypatch.setattr("advisor_training.retrain.points.MOST_TAUGHT", 0.0)
    own = points(KNOWN_JOBS)
    sent = replace(own, pairs=tuple(replace(p, written_by="agents") for p in own.pairs[:20]))
    others = tuple(replace(p, written_by="bench") for p in own.pairs[20:24])
    found = sifted(replace(sent, pairs=(*sent.pairs, *others, *own.pairs[24:])))
    [counted] = by_reason(found.refused)
    assert (counted.reason, counted.points) == ("too-many", 15)
    assert "agents teaches 5 pairs at most" in counted.example
    taught = [p for p in found.accepted.pairs if p.written_by == "agents"]
    assert max(p.started_at for p in taught) <= min(
        p.started_at for p in sent.pairs if p.point_id in counted.point_ids
    )


@pytest.mark.parametrize(("power_w", "words"), [(721.1, "limit of 700 W"), (70.0, "idle GPU")])
def test_power_of_a_job_alone_has_the_same_bounds(power_w: float, words: str) -> None:
    """Nothing draws more than the limit, or less than the idle GPU."""
    profiled = points(KNOWN_JOBS[:1]).profiled
    bad = replace(profiled[0], power_w=power_w, power_limit_w=700.0, idle_power_w=80.0)
    [refused] = sifted(PointSet(profiled=(bad, *profiled[1:]))).refused
    assert (refused.reason, refused.point_id) == ("impossible", bad.point_id)
    assert words in refused.why
