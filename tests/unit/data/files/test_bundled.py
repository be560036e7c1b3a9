"""The measurements that come with the package, all of them or those of some jobs."""

from pathlib import Path

import yaml

from advisor_data.files.bundled import bundled_dtype, bundled_solo_points

JOBS = Path(__file__).parents[4] / "jobs"


def test_points_of_some_jobs_are_those_of_all_points_that_are_of_these_jobs() -> None:
    names = {"bert-infer", "transpose"}
    expected = [point for point in bundled_solo_points() if point.job in names]
    assert {point.job for point in expected} == names
    assert bundled_solo_points(names) == expected


def test_no_job_and_a_job_that_was_not_measured_have_no_points() -> None:
    assert bundled_solo_points(()) == []
    assert bundled_solo_points(["bert"]) == []


def test_types_of_bundled_jobs_are_those_of_their_files() -> None:
    """Other data are corrected for the type that was profiled, and for no other."""
    names = {point.job for point in bundled_solo_points()}
    files = [yaml.safe_load(file.read_text()) for file in sorted(JOBS.glob("*.yaml"))]
    told = {job["name"]: job["input"]["dtype"] for job in files if job["name"] in names}
    assert told == {name: bundled_dtype(name) for name in names}
