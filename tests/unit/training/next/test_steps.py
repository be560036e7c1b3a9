"""What to measure next: its order, its reasons, its commands and its times."""

import dataclasses

import pytest
import synthetic_pairs as made_up
from flat_records import changed, from_flat
from made_up_rows import solo_points

from advisor.core.observations import Observation
from advisor.core.split import Split
from advisor_profiling.campaign.plan_file import DEFAULT_SPLITS, plan_from_options
from advisor_training.next import (
    SPLITS,
    SPLITS_BESIDE_ITSELF,
    MeasuredSoFar,
    NextStep,
    chosen_pairs,
    measured_so_far,
    next_steps,
    pair_minutes,
)

JOBS = tuple(job.name for job in made_up.JOBS)
MEASURED = made_up.pair_points(
    [(made_up.CLIMBER, made_up.SITTER), (made_up.SITTER, made_up.HOG), (made_up.HOG, made_up.HOG)]
)


def launch(a: str, b: str) -> Observation:
    return from_flat(
        Observation,
        launch_id="one",
        job_1=a,
        job_2=b,
        share_1_percent=50.0,
        share_2_percent=50.0,
        gpu_model=made_up.GPU_MODEL,
        gpu_uuid="GPU-made-up-0",
        overlap_s=60.0,
        state="finished",
        started_at="2026-11-22T10:00:00+00:00",
    )


def known(
    *launched: Observation, gpu_model: str = made_up.GPU_MODEL, jobs: tuple[str, ...] = JOBS
) -> MeasuredSoFar:
    """Three measured pairs of three jobs, and the profiles of all five."""
    return measured_so_far(
        MEASURED, solo_points(), (), launched, gpu_model=gpu_model, jobs=jobs, checked=True
    )


KNOWN = known()


def pairs(found: MeasuredSoFar, minutes: float = 1000) -> list[tuple[str, ...]]:
    return list(chosen_pairs(next_steps(found, minutes)))


def why(steps: tuple[NextStep, ...], *jobs: str) -> str:
    return next(step.why for step in steps if step.jobs == jobs)


def test_each_pair_that_is_not_measured_comes_once() -> None:
    """All fifteen but three, with a budget for all."""
    found = pairs(KNOWN)
    assert len(found) == len(set(found)) == 12
    assert not set(found) & {("climber", "sitter"), ("hog", "sitter"), ("hog", "hog")}


def test_the_budget_holds_for_everything_together() -> None:
    unchecked = dataclasses.replace(KNOWN, checked=False, jobs=(*JOBS, "new"))
    steps = next_steps(unchecked, 8)
    assert [step.kind for step in steps[:3]] == ["check", "profile", "pair"]
    assert steps[-1].total_minutes == pytest.approx(sum(step.minutes for step in steps))
    assert steps[-1].total_minutes <= 8
    # A minute is too short for a check, a profile, and a pair of two jobs.
    assert {len(set(step.jobs)) for step in next_steps(unchecked, 1)} == {1}


def test_a_job_of_a_measured_pair_that_has_no_file_here_is_left_out() -> None:
    assert {job for jobs in pairs(known(jobs=("climber", "hog"))) for job in jobs} == {
        "climber",
        "hog",
    }


def test_a_gpu_model_that_was_never_seen() -> None:
    steps = next_steps(known(gpu_model="NVIDIA Another"), 1000)
    assert [(step.kind, step.jobs) for step in steps] == [("profile", (j,)) for j in sorted(JOBS)]


def test_how_little_is_known_of_the_jobs_is_said() -> None:
    steps = next_steps(KNOWN, 1000)
    alone = "middle is in no measured pair, slow is in no measured pair"
    assert why(steps, "middle", "slow") == alone
    known_well = "climber is in 1 measured pair, hog is in 2 measured pairs"
    assert why(steps, "climber", "hog") == known_well


def test_what_is_launched_often_comes_first() -> None:
    last = pairs(KNOWN)[-1]
    often = known(*[launch(*last)] * 50)
    assert pairs(often)[0] == last
    assert "launched 50 times" in why(next_steps(often, 1000), *last)
    elsewhere = changed(launch("middle", "slow"), gpu_model="NVIDIA Another")
    assert "launched" not in why(next_steps(known(elsewhere), 1000), "middle", "slow")


def test_a_job_that_drifts_is_measured_again() -> None:
    """Its profile first, and its pairs are open as if nobody had measured them."""
    steps = next_steps(dataclasses.replace(KNOWN, drifting={"hog"}), 1000)
    assert (steps[0].kind, steps[0].jobs) == ("profile", ("hog",))
    assert "drifts" in steps[0].why
    assert "hog drifts" in why(steps, "hog", "sitter")
    assert ("hog", "hog") in chosen_pairs(steps)
    assert ("climber", "sitter") not in chosen_pairs(steps)


def test_a_profile_that_is_needed_more_comes_first() -> None:
    asked = known(launch("climber", "z-new"), jobs=(*JOBS, "a-new", "z-new"))
    steps = next_steps(asked, 3)
    assert [step.jobs for step in steps if step.kind == "profile"] == [("z-new",), ("a-new",)]
    assert steps[0].why == "it has no profile, launched 1 time"


def test_jobs_that_do_not_fit_into_memory_are_left_out() -> None:
    large = {
        job: dataclasses.replace(profile, memory_used_mib=80_000)
        for job, profile in KNOWN.profiles.items()
    }
    on_h100 = dataclasses.replace(KNOWN, gpu_model="NVIDIA H100 80GB HBM3", profiles=large)
    assert pairs(on_h100) == []


@pytest.mark.parametrize(
    ("jobs", "splits"), [(("a", "b"), SPLITS), (("a", "a"), SPLITS_BESIDE_ITSELF)]
)
def test_the_cost_is_that_of_the_splits_in_a_plan(jobs: tuple[str, str], splits: int) -> None:
    plan = plan_from_options("", "+".join(jobs), DEFAULT_SPLITS)
    splits_of = [split for split in plan.entries[0].splits if isinstance(split, Split)]
    seen = {frozenset(s.shares) if jobs[0] == jobs[1] else s for s in splits_of}
    assert len(seen) == splits
    assert pair_minutes(jobs) == pytest.approx(splits * 7.8 / 60)
