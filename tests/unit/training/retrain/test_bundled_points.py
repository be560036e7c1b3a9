"""The rules of retraining on points of real GPUs."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from advisor_training.pairs import make_pairs
from advisor_training.retrain.points import (
    Collected,
    PointSet,
    bundled_points,
    sift,
    usable_points,
    with_flags,
)


@pytest.mark.figures
def test_no_point_that_the_bundled_model_has_learned_from_is_refused() -> None:
    """As if all of them were new."""
    usable = usable_points(with_flags(bundled_points()))
    pairs, _ = make_pairs(usable.pairs, [*usable.references, *usable.profiled], full=False)
    used = {(*m.jobs, m.gpu_uuid, m.run) for pair in pairs for m in pair.measurements}
    own = tuple(p for p in usable.pairs if (*p.jobs, p.gpu_uuid, p.run) in used)
    alone = PointSet(profiled=usable.profiled, references=usable.references)
    site = Collected(own=replace(alone, pairs=own), bundled=PointSet())
    found = sift(site, alone, datetime(2026, 12, 1, tzinfo=UTC))
    assert found.new == len(own) > 800
    assert found.refused == ()
