"""Which jobs are paired: kinds, and balanced samples."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given, settings
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
    assert {"gemm": "compute", "triad": "memory", "mobilenet-infer-b2": "launch"}.items() <= (
        kinds.items()
    )
    assert kinds.keys() == {point.job for point in points}
    assert min(Counter(kinds.values()).values()) >= 5


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
    """The newest point at the largest share decides; without a counter there is no kind."""
    counters = {"sm_active_percent": 90.0, "dram_active_percent": 80.0}
    points = [
        solo_point("a", started_at="2026-03-01T00:00:00+00:00", share_percent=10.0, **counters),
        solo_point("a", started_at="2026-02-01T00:00:00+00:00", **fields),
        solo_point("a", started_at="2026-01-01T00:00:00+00:00", **counters),
    ]
    assert kind_of(points) == kind
    assert kinds_of(points) == ({"a": kind} if kind else {})


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
@settings(max_examples=20)
def test_sample_is_balanced(names: list[str], part: float, seed: str, selves: bool) -> None:
    """It is the same for a seed, however jobs are ordered and repeated."""
    every, kinds = all_pairs(names, selves=selves), even_kinds(names)
    count = round(part * len(every))
    drawn = sample(names, count, seed, kinds, selves=selves)
    assert sample([*names[::-1], *names], count, seed, kinds, selves=selves) == drawn
    assert len(set(drawn) & set(every)) == len(drawn) == min(count, len(every))
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


def test_selves_have_their_part_of_a_sample() -> None:
    """Twelve jobs have 78 pairs, 12 of them with themselves: 6 of a sample of half.

    Jobs that were never profiled take part, too.
    """
    names = [f"j{number:02}" for number in range(12)]
    drawn = {tuple(sample(names, 39, str(seed), {})) for seed in range(5)}
    assert [sum(a == b for a, b in pairs) for pairs in drawn] == [6] * 5


def unmet(names: Iterable[str], kinds: dict[str, BoundBy], pairs: Iterable[PairNames]) -> list[str]:
    """Jobs that do not meet jobs of every kind."""
    met: defaultdict[str, set[BoundBy]] = defaultdict(set)
    for a, b in pairs:
        met[a].add(kinds[b])
        met[b].add(kinds[a])
    return [name for name in names if met[name] != set(THREE)]
