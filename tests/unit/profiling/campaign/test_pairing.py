"""Which jobs are paired: kinds, and balanced samples."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from planned import solo_point

from advisor_data.bundled import bundled_solo_points
from advisor_profiling.campaign.plan import BoundBy, PairNames, all_pairs, kind_of, kinds_of, sample
from advisor_training.pairs import HIGH_PERCENT, job_classes

THREE: tuple[BoundBy, ...] = ("compute", "memory", "launch")

names_of = st.integers(1, 14).map(lambda count: [f"j{number:02}" for number in range(count)])
seeds = st.text(max_size=5)


def even_kinds(names: Iterable[str]) -> dict[str, BoundBy]:
    """The three kinds in turn."""
    return {name: THREE[number % 3] for number, name in enumerate(names)}


def test_every_measured_job_has_a_kind() -> None:
    """No bundled job is left out, each kind has several, and names promise the right one."""
    points = bundled_solo_points()
    kinds = kinds_of(points)
    promised: dict[str, BoundBy] = {
        "gemm": "compute",
        "llm-prefill": "compute",
        "triad": "memory",
        "transpose": "memory",
        "mobilenet-infer-b2": "launch",
        "wav2vec2-infer-b2": "launch",
    }
    assert promised.items() <= kinds.items()
    assert kinds.keys() == {point.job for point in points}
    assert min(Counter(kinds.values()).values()) >= 5


def test_kind_is_that_of_the_newest_point_at_the_largest_share() -> None:
    """At a small share every job keeps its few SMs busy; and a job may have been measured again."""
    old = {"sm_active_percent": 90.0, "dram_active_percent": 80.0}
    new = {"sm_active_percent": 90.0, "dram_active_percent": 10.0}
    points = [
        solo_point("a", started_at="2026-03-01T00:00:00+00:00", share_percent=10.0, **old),
        solo_point("a", started_at="2026-02-01T00:00:00+00:00", **new),
        solo_point("a", started_at="2026-01-01T00:00:00+00:00", **old),
    ]
    assert kind_of(points) == "compute"


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"sm_active_percent": 49.9, "dram_active_percent": 60.0}, "launch"),
        ({"sm_active_percent": 50.0, "dram_active_percent": 50.0}, "memory"),
        ({"sm_active_percent": 50.0, "dram_active_percent": 49.9}, "compute"),
        (
            {"sm_active_percent": 60.0, "dram_active_percent": 60.0, "flags": ("cpu-bound",)},
            "launch",
        ),
        ({"flags": ("cpu-bound",)}, "launch"),
        ({"sm_active_percent": 60.0}, None),
        ({"dram_active_percent": 60.0}, None),
    ],
)
def test_kind_by_counters(fields: dict[str, Any], kind: BoundBy | None) -> None:
    """Both thresholds are at half; without a counter there is no kind, not a guess."""
    assert kind_of([solo_point("a", **fields)]) == kind
    assert kinds_of([solo_point("a", **fields)]) == ({"a": kind} if kind else {})


@given(compute=st.floats(0, 100), memory=st.floats(0, 100), busy=st.floats(0, 100))
@example(compute=HIGH_PERCENT, memory=HIGH_PERCENT, busy=0)
@example(compute=HIGH_PERCENT, memory=math.nextafter(HIGH_PERCENT, 0), busy=100)
@example(compute=math.nextafter(HIGH_PERCENT, 0), memory=HIGH_PERCENT, busy=0)
def test_kinds_agree_with_the_classes_of_the_report(
    compute: float, memory: float, busy: float
) -> None:
    """Pairs are drawn and reported by the same counters, cut at the same place."""
    point = solo_point(
        "a",
        sm_active_percent=compute,
        dram_active_percent=memory,
        memory_busy_percent=busy,
    )
    (code,) = job_classes([point]).values()
    kinds = {"HH": "memory", "HL": "compute", "LH": "launch", "LL": "launch"}
    assert kind_of([point]) == kinds[code]


@given(names=names_of, part=st.floats(0, 1.2), seed=seeds, selves=st.booleans())
def test_sample_is_balanced(names: list[str], part: float, seed: str, selves: bool) -> None:
    every = all_pairs(names, selves=selves)
    count = round(part * len(every))
    drawn = sample(names, count, seed, even_kinds(names), selves=selves)
    assert len(drawn) == len(set(drawn)) == min(count, len(every))
    assert set(drawn) <= set(every)
    occurrences = Counter(name for pair in drawn for name in set(pair))
    numbers = [occurrences[name] for name in names]
    assert max(numbers) - min(numbers) <= 2


@pytest.mark.parametrize("selves", [True, False])
@pytest.mark.parametrize("count", [6, 7, 12, 24])
def test_each_job_of_a_sample_meets_every_kind(count: int, selves: bool) -> None:
    names = [f"j{number:02}" for number in range(count)]
    kinds = even_kinds(names)
    for seed in "abc":
        drawn = sample(names, 3 * count, seed, kinds, selves=selves)
        assert not unmet(names, kinds, drawn)


@given(names=names_of, count=st.integers(0, 60), seed=seeds)
def test_sample_is_the_same_for_a_seed(names: list[str], count: int, seed: str) -> None:
    kinds = even_kinds(names)
    again = sample([*names[::-1], *names], count, seed, kinds)
    assert sample(names, count, seed, kinds) == again
    # Jobs that were never profiled take part, too.
    assert sample(names, 200, seed, {}) == all_pairs(names)


def test_sample_differs_by_seed() -> None:
    names = [f"j{number:02}" for number in range(12)]
    drawn = {tuple(sample(names, 20, str(seed), even_kinds(names))) for seed in range(5)}
    assert len(drawn) == 5


def test_selves_have_their_part_of_a_sample() -> None:
    """Twelve jobs have 78 pairs, 12 of them with themselves: 6 of a sample of half."""
    names = [f"j{number:02}" for number in range(12)]
    drawn = sample(names, 39, "seed", even_kinds(names))
    assert sum(a == b for a, b in drawn) == 6


def unmet(names: Iterable[str], kinds: dict[str, BoundBy], pairs: Iterable[PairNames]) -> list[str]:
    """Jobs that do not meet jobs of every kind."""
    met: defaultdict[str, set[BoundBy]] = defaultdict(set)
    for a, b in pairs:
        met[a].add(kinds[b])
        met[b].add(kinds[a])
    return [name for name in names if met[name] != set(THREE)]
