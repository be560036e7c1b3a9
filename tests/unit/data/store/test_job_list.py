"""Rows of the jobs that are defined or measured."""

from typing import Any

from advisor_data.lists import ProfileRow, job_rows


def row(job: str, gpu_model: str = "H200", **fields: Any) -> ProfileRow:
    values: dict[str, Any] = {
        "shares": (10.0, 100.0), "points": 2, "measured_at": "2026-01-31", "flags": ("noisy-rate",),
        "rate_units": ("steps",), **fields,
    }  # fmt: skip
    return ProfileRow(job=job, gpu_model=gpu_model, **values)


def test_what_was_measured_here_stands_before_what_came_with_advisor() -> None:
    """But only where it makes a profile, as for the recommendation."""
    own = job_rows((), [row("a", "A100")], [row("a", "H200")])
    assert [(r.gpu_model, r.source) for r in own] == [("A100", "stored")]
    part = job_rows((), [row("a", "A100", shares=(50.0,))], [row("a", "H200")])
    assert [(r.gpu_model, r.source) for r in part] == [("A100", "stored"), ("H200", "bundled")]


def test_jobs_that_are_only_defined_have_no_model() -> None:
    rows = job_rows({"c", "b"}, [row("b", "Z"), row("b", "A")])
    assert [(r.job, r.gpu_model, r.launchable) for r in rows] == [
        ("b", "A", True), ("b", "Z", True), ("c", None, True),
    ]  # fmt: skip
