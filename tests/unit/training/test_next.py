"""What to measure next: which pairs, and the steps in order."""

import dataclasses
import math
import random

import pytest
import synthetic_pairs as made_up
from flat_records import changed, from_flat
from hypothesis import given, strategies as some
from made_up_rows import solo_points

from advisor.core.gpu import Split
from advisor.core.records import Observation
from advisor_profiling.campaign.plan import DEFAULT_SPLITS, plan_from_options
from advisor_training.next import (
    SPLITS,
    SPLITS_BESIDE_ITSELF,
    MeasuredSoFar,
    NextStep,
    OpenPair,
    PairUse,
    choose_pairs,
    distances,
    measured_so_far,
    nearest,
    next_steps,
    pair_minutes,
    value,
)

NAMES = some.sampled_from(["bert", "fft", "gemm", "triad", "vit"])

USE = some.tuples(some.floats(0, 1), some.floats(0, 1))

CANDIDATES = some.lists(
    some.builds(
        OpenPair,
        jobs=some.tuples(NAMES, NAMES).map(lambda jobs: (min(jobs), max(jobs))),
        minutes=some.floats(0.1, 5),
        uses=some.tuples(USE, USE),
        requests=some.integers(0, 9),
    ),
    unique_by=lambda candidate: candidate.jobs,
    max_size=15,
)

MEASURED = some.dictionaries(NAMES, some.integers(0, 5))


ALIKE = (0.5,), (0.5,)


def pair(*jobs: str, asked: int = 0, uses: PairUse = ALIKE) -> OpenPair:
    return OpenPair(jobs=(jobs[0], jobs[1]), minutes=1.0, uses=uses, requests=asked)


@given(CANDIDATES, MEASURED, some.floats(0, 20))
def test_the_budget_is_kept_and_used(
    candidates: list[OpenPair], measured: dict[str, int], minutes: float
) -> None:
    chosen = choose_pairs(candidates, measured, minutes)
    spent = sum(candidate.minutes for candidate in chosen)
    left = [candidate for candidate in candidates if candidate not in chosen]
    assert len({candidate.jobs for candidate in chosen}) == len(chosen)
    assert spent <= minutes + 1e-9
    assert all(candidate.minutes > minutes - spent - 1e-9 for candidate in left)


@given(CANDIDATES, MEASURED, some.randoms(use_true_random=False))
def test_the_order_of_candidates_does_not_matter(
    candidates: list[OpenPair], measured: dict[str, int], dice: random.Random
) -> None:
    turned = dice.sample(candidates, len(candidates))
    assert choose_pairs(candidates, measured, 8) == choose_pairs(turned, measured, 8)


@pytest.mark.parametrize(
    ("more", "less"),
    [
        (pair("bert", "gemm", asked=1), pair("bert", "fft")),
        (pair("bert", "vit"), pair("bert", "gemm")),
        (pair("triad", "vit"), pair("triad", "triad")),
    ],
    ids=["asked for", "a job in no measured pair", "two such jobs"],
)
def test_what_comes_first(more: OpenPair, less: OpenPair) -> None:
    measured = {"bert": 2, "fft": 1, "gemm": 1}
    assert value(more, measured) > value(less, measured)
    assert choose_pairs([less, more], measured, 1) == [more]


def test_what_is_unlike_all_measured_pairs_comes_first() -> None:
    low, middle, high = ((0.0,), (0.0,)), ((0.6,), (0.6,)), ((1.0,), (1.0,))
    found = [pair("a", "b", uses=low), pair("c", "d", uses=middle), pair("e", "f", uses=high)]
    chosen = choose_pairs(found, {}, 3, learned=[low])
    assert [candidate.jobs for candidate in chosen] == [("e", "f"), ("c", "d"), ("a", "b")]


@given(some.lists(some.tuples(USE, USE), min_size=1, max_size=6), some.tuples(USE, USE))
def test_a_distance_is_one(pairs: list[PairUse], other: PairUse) -> None:
    found = distances(pairs, other)
    assert found == pytest.approx(distances(pairs, (other[1], other[0])))
    assert found == pytest.approx([distances([other], one)[0] for one in pairs])
    assert nearest(pairs, [*pairs, other]) == pytest.approx(0)
    assert nearest(pairs, [other]) == pytest.approx(found)


def test_what_is_not_known_counts_as_alike() -> None:
    [found] = distances([((math.nan, 0.5), (0.1, 0.5))], ((0.3, 0.1), (0.1, math.nan)))
    assert found == pytest.approx(0.4)


JOBS = tuple(job.name for job in made_up.JOBS)
SO_FAR = made_up.pair_points(
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
        SO_FAR, solo_points(), (), launched, gpu_model=gpu_model, jobs=jobs, checked=True
    )


KNOWN = known()


def pairs(found: MeasuredSoFar, minutes: float = 1000) -> list[tuple[str, ...]]:
    return [step.jobs for step in next_steps(found, minutes) if step.kind == "pair"]


def why(steps: tuple[NextStep, ...], *jobs: str) -> str:
    return next(step.why for step in steps if step.jobs == jobs)


def test_the_budget_holds_for_everything_together() -> None:
    steps = next_steps(dataclasses.replace(KNOWN, checked=False, jobs=(*JOBS, "new")), 8)
    assert [step.kind for step in steps[:3]] == ["check", "profile", "pair"]
    assert steps[-1].total_minutes == pytest.approx(sum(step.minutes for step in steps))
    assert steps[-1].total_minutes <= 8


def test_a_gpu_model_that_was_never_seen() -> None:
    steps = next_steps(known(gpu_model="NVIDIA Another"), 1000)
    assert [(step.kind, step.jobs) for step in steps] == [("profile", (j,)) for j in sorted(JOBS)]


def test_how_little_is_known_of_the_jobs_is_said() -> None:
    steps = next_steps(KNOWN, 1000)
    assert (why(steps, "middle", "slow"), why(steps, "climber", "hog")) == (
        "middle is in no measured pair, slow is in no measured pair",
        "climber is in 1 measured pair, hog is in 2 measured pairs",
    )


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
    found = [step.jobs for step in steps if step.kind == "pair"]
    assert len(found) == len(set(found)) == 14
    assert ("climber", "sitter") not in found


def test_a_profile_that_is_needed_more_comes_first() -> None:
    steps = next_steps(known(launch("climber", "z-new"), jobs=(*JOBS, "a-new", "z-new")), 3)
    assert [step.jobs for step in steps if step.kind == "profile"] == [("z-new",), ("a-new",)]
    assert steps[0].why == "it has no profile, launched 1 time"


def test_jobs_that_do_not_fit_into_memory_are_left_out() -> None:
    large = {
        job: dataclasses.replace(profile, memory_used_mib=80_000)
        for job, profile in KNOWN.profiles.items()
    }
    on_h100 = dataclasses.replace(KNOWN, gpu_model="NVIDIA H100 80GB HBM3", profiles=large)
    assert pairs(on_h100) == []


def test_a_job_that_holds_two_gpus_is_in_no_pair() -> None:
    several = {**KNOWN.profiles, "hog": dataclasses.replace(KNOWN.profiles["hog"], gpus=2)}
    found = pairs(dataclasses.replace(KNOWN, profiles=several))
    assert {*found} == {jobs for jobs in pairs(KNOWN) if "hog" not in jobs}


@pytest.mark.parametrize(
    ("jobs", "splits"), [(("a", "b"), SPLITS), (("a", "a"), SPLITS_BESIDE_ITSELF)]
)
def test_the_cost_is_that_of_the_splits_in_a_plan(jobs: tuple[str, str], splits: int) -> None:
    plan = plan_from_options("", "+".join(jobs), DEFAULT_SPLITS)
    splits_of = [split for split in plan.entries[0].splits if isinstance(split, Split)]
    assert len({frozenset(s.shares) if jobs[0] == jobs[1] else s for s in splits_of}) == splits
    assert pair_minutes(jobs) == pytest.approx(splits * 7.8 / 60)
