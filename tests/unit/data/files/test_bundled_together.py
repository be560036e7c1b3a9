"""Which bundled sets answers take in."""

from advisor_data.files.bundled import bundled_points_together, bundled_set_points


def test_sets_of_a_host_far_slower_than_the_profiles_are_not_taken_in() -> None:
    """There mobilenet-train-b2 did 78 images/s alone, and its profile 205."""
    slow = [p for p in bundled_set_points() if p.run == "sets-20" and len(set(p.jobs)) == 1]
    assert any(len(point.jobs) > 2 for point in slow)
    together = bundled_points_together()
    assert not {point.point_id for point in slow} & {point.point_id for point in together}
    assert len({point.run for point in together if len(point.jobs) > 2}) > 10
