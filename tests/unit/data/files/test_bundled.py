"""The measurements that come with the package, all of them or those of some jobs."""

from advisor_data.bundled import bundled_solo_points


def test_points_of_some_jobs_are_those_of_all_points_that_are_of_these_jobs() -> None:
    names = {"bert-infer", "transpose"}
    expected = [point for point in bundled_solo_points() if point.job in names]
    assert {point.job for point in expected} == names
    assert bundled_solo_points(names) == expected


def test_no_job_and_a_job_that_was_not_measured_have_no_points() -> None:
    assert bundled_solo_points(()) == []
    assert bundled_solo_points(["bert"]) == []
